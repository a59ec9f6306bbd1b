// Pairs of neighbours: I. Dhillon, Y. Guan, B. Kulis, "Weighted graph cuts without eigenvectors", IEEE TPAMI 29(11),
// 2007, section 5.1.
#include "onehop/matching.hpp"

#include <algorithm>

namespace onehop {

bool match_neighbours(const MatchedGraph& graph, const int64_t* order, int64_t* cluster) {
  std::fill(cluster, cluster + graph.nodes, -1);
  for (int64_t i = 0; i < graph.nodes; ++i) {
    const int64_t node = order[i];
    if (cluster[node] >= 0) continue;
    int64_t other = node;
    double heaviest = -1;
    for (int64_t edge = graph.rowptr[node]; edge < graph.rowptr[node + 1]; ++edge) {
      const int64_t neighbour = graph.col[edge];
      if (neighbour < 0 || neighbour >= graph.nodes) return false;
      const double weight = graph.weight == nullptr ? 0 : graph.weight[edge];
      if (neighbour == node || cluster[neighbour] >= 0 || !(weight >= 0 && weight > heaviest)) continue;
      heaviest = weight;
      other = neighbour;
    }
    cluster[node] = cluster[other] = std::min(node, other);
  }
  return true;
}

}  // namespace onehop
