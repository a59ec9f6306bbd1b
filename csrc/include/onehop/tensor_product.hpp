// Calls of the tensor-product kernels, with raw pointers only.
#pragma once

#include <cstdint>

#include "onehop/kernels.hpp"

namespace onehop {

// The coefficients of a product of features and harmonics, as lists: a path has a group for each component of its
// result, a group has a pair for each component of the features that contributes to it, and a pair has terms, each a
// column of the harmonics and a coefficient. Ends are exclusive.
struct TensorPath {
  int64_t in_begin, out_begin, weight_begin;  // first columns of the path's irreps, and its first weight
  int64_t channels;                           // at least 1
  int64_t components;                         // of the features, at most 9
  int64_t group_begin, group_end;
};
struct TensorGroup {
  int32_t component, pair_begin, pair_end;
};
struct TensorPair {
  int32_t component, term_begin, term_end;
};

// out[r, k, u] = the sum over the edges e of r, and the paths, of value[e, i, k] * x[c(e), i, u] * weights[e, u], where
// value[e, i, k] = the sum over terms of factor * harmonics[e, column]. The channels u of a component are contiguous.
//
// Or the gradients to harmonics and weights, given the gradient to out. float32 and float64 alone. Operands of edges
// are in the caller's edge order.
struct TensorProductArgs {
  const Csr* csr;
  const WorkList* work;
  DType dtype;
  int threads;
  const TensorPath* paths;
  int64_t path_count;
  const TensorGroup* groups;
  const TensorPair* pairs;
  int64_t pair_count;
  const int32_t* term_columns;
  const void* term_factors;  // of dtype
  int64_t x_width, out_width, harmonics_width, weights_width;
  const void* x;  // [cols, x_width], rows x_stride apart
  int64_t x_stride;
  const void* harmonics;  // [edges, harmonics_width]
  int64_t harmonics_stride;
  const void* weights;  // [edges, weights_width]; a stride of 0: the same weights for all edges
  int64_t weights_stride;
  void* out;         // [rows, out_width], no gaps
  const void* grad;  // [rows, out_width]
  int64_t grad_stride;
  void* to_harmonics;  // [edges, harmonics_width], no gaps; null: not needed
  void* to_weights;    // [edges, weights_width], or with sums_weights [weights_width]; null: not needed
  bool sums_weights;
  void* slots;  // [work->slots, out_width]: pieces of cut rows; with sums_weights [work->items, weights_width]
};

}  // namespace onehop
