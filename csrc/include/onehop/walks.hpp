// Random walks along edges, of first and of second order.
#pragma once

#include <cstdint>

namespace onehop {

// The out-edges of each node. `rowptr`, `col` and `sorted` are int64, or int32 if `narrow`.
struct WalkedGraph {
  const void* rowptr = nullptr;     // [nodes + 1]
  const void* col = nullptr;        // [edges]
  const void* sorted = nullptr;     // [edges]: `col` with each row in ascending order; used in the second order alone
  const double* running = nullptr;  // [edges], sums of weights from the first edge of each row on; null: all are alike
  int64_t nodes = 0, edges = 0;
  bool narrow = false;
};

struct WalkOptions {
  uint64_t key = 0;       // what all random numbers depend on
  int64_t length = 0;     // steps
  double back = 1;        // 1 / p: the weight of the way back
  double out = 1;         // 1 / q: the weight of a way to a node that is no neighbour of the node before
  bool second = false;    // whether these two are used
  int64_t proposals = 0;  // of a step of second order, before all neighbours are looked at
};

// Extends walks[count, length + 1], whose first column has nodes of the graph, in the type of `col`. A walk stays at a
// node without an edge that has weight. Returns false if a walk met a damaged row or a node out of range.
//
// A. Grover, J. Leskovec, "node2vec: Scalable feature learning for networks", KDD 2016, section 3.2. A step of second
// order proposes steps of first order until one is accepted: K. Yang et al., "KnightKing: A fast distributed graph
// random walk engine", SOSP 2019.
bool walk(const WalkedGraph& graph, const WalkOptions& options, int64_t count, void* walks, int threads);

}  // namespace onehop
