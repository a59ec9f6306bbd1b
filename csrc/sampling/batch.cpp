// A drawn batch, written to where its user wants it.
#include <algorithm>

#include "state.hpp"

namespace onehop {

int64_t Drawing::nodes(int type) const { return state_->types[static_cast<size_t>(type)].node.size(); }

int64_t Drawing::edges(int relation) const { return state_->edges[static_cast<size_t>(relation)].edge.size(); }

const std::vector<int64_t>& Drawing::nodes_per_hop(int type) const {
  return state_->types[static_cast<size_t>(type)].per_hop;
}

const std::vector<int64_t>& Drawing::edges_per_hop(int relation) const {
  return state_->edges[static_cast<size_t>(relation)].per_hop;
}

void Drawing::write_nodes(int type, int64_t* node, int64_t* tree) const {
  const NodesOfType& nodes = state_->types[static_cast<size_t>(type)];
  std::copy_n(nodes.node.data(), nodes.node.size(), node);
  if (tree != nullptr) std::copy_n(nodes.tree.data(), nodes.tree.size(), tree);
}

void Drawing::write_edges(int relation, int64_t* src, int64_t* dst, int64_t* edge, int threads) const {
  const EdgesOfRelation& edges = state_->edges[static_cast<size_t>(relation)];
  over_rows(edges.rowptr.size() - 1, threads, [&](int64_t begin, int64_t end, int) {
    const int64_t first = edges.rowptr[begin], last = edges.rowptr[end];
    for (int64_t i = begin; i < end; ++i) std::fill(dst + edges.rowptr[i], dst + edges.rowptr[i + 1], i);
    std::copy(edges.col.data() + first, edges.col.data() + last, src + first);
    std::copy(edges.edge.data() + first, edges.edge.data() + last, edge + first);
  });
}

std::shared_ptr<Csr> Drawing::csr(int relation) const {
  const EdgesOfRelation& edges = state_->edges[static_cast<size_t>(relation)];
  const SampledRelation& whole = state_->relations[static_cast<size_t>(relation)];
  auto csr = std::make_shared<Csr>();
  csr->rows = nodes(whole.dst_type);
  csr->cols = nodes(whole.src_type);
  csr->edges = edges.edge.size();
  if (!allocate_rows(*csr)) return nullptr;
  std::copy_n(edges.rowptr.data(), csr->rows + 1, csr->rowptr.as<int64_t>());
  std::copy_n(edges.col.data(), csr->edges, csr->col.as<int32_t>());
  return csr;
}

}  // namespace onehop
