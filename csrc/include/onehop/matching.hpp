// Pairs of neighbours.
#pragma once

#include <cstdint>

namespace onehop {

// The out-edges of each node.
struct MatchedGraph {
  const int64_t* rowptr;  // [nodes + 1]
  const int64_t* col;     // [rowptr[nodes]]
  const double* weight;   // of each edge; null: all are alike
  int64_t nodes;
};

// Pairs each node of `order` that is still alone with the neighbour that is still alone whose edge has the largest
// weight, of several the first; edges of negative weight are ignored. Writes to cluster[nodes] the lesser node of
// each pair, or the node itself. Returns false if a neighbour is out of range.
bool match_neighbours(const MatchedGraph& graph, const int64_t* order, int64_t* cluster);

}  // namespace onehop
