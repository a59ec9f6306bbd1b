// What PyG's layers make of few edges before they aggregate, in one pass: self loops, and GCN's normalisation.
#pragma once

#include <cstdint>

#include "onehop/kernels.hpp"

namespace onehop {

// edge_index[row, edge] at row * row_stride + edge * edge_stride.
struct FewList {
  const int64_t* numbers;
  int64_t row_stride, edge_stride, edges;
};

// How many edges are no loops.
int64_t count_unlooped(const FewList& list);

// Copies the edges, without the loops among them where `removes`, and a loop at each of `nodes` behind them.
// `out` is [2, most], without gaps. False if there are more edges than that: another thread writes to them.
bool write_loops(const FewList& list, bool removes, int64_t nodes, int64_t most, int64_t* out);

// GCN's weights of edges, without gaps: weight * deg ** -1/2 of both ends, where deg is the sum of the weights of a
// node's edges. float32 or float64.
struct FewNorm {
  DType dtype;
  int64_t nodes, edges;
  int64_t* edge_index;  // [2, edges]
  int counted;          // the row of edge_index that degrees count
  // The first `given` weights are those of edges of `list` that are no loops; a loop weighs what the last loop of its
  // node in `list` does, or else `fill`. Without them every edge weighs 1, and loops `fill`.
  const FewList* list;
  const void* weight;  // null: 1
  int64_t loops;       // the last so many edges
  double fill;
  void* degrees;  // [nodes], scratch
  void* out;      // [edges]
};

// False if an end is out of range.
bool few_norm(const FewNorm& norm);

}  // namespace onehop
