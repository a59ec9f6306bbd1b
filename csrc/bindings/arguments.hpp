// Common parts of the bindings: types of elements, and memory for the pieces of cut rows.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <new>

#include "addresses.hpp"
#include "onehop/kernels.hpp"

inline int64_t bytes_of(onehop::DType dtype) {
  switch (dtype) {
    case onehop::DType::float32:
      return 4;
    case onehop::DType::float64:
      return 8;
    default:
      return 2;
  }
}

// Bytes of the accumulator for a type.
inline int64_t acc_bytes(onehop::DType dtype) { return dtype == onehop::DType::float64 ? 8 : 4; }

// Slots for the pieces of cut rows; most graphs and plans have none.
inline onehop::Block slots_for(const onehop::WorkList& work, int64_t per_slot) {
  onehop::Block block(work.slots * per_slot);
  if (!block) throw std::bad_alloc();
  return block;
}

// One function an operator, each in the file of its name.
void bind_aggregate(nanobind::module_& m);
void bind_arg_extremum(nanobind::module_& m);
void bind_attention(nanobind::module_& m);
void bind_dropout(nanobind::module_& m);
void bind_edge_softmax(nanobind::module_& m);
void bind_edges(nanobind::module_& m);
void bind_few(nanobind::module_& m);
void bind_generated(nanobind::module_& m);
void bind_fusedmm(nanobind::module_& m);
void bind_holders(nanobind::module_& m);
void bind_integers(nanobind::module_& m);
void bind_message(nanobind::module_& m);
void bind_negatives(nanobind::module_& m);
void bind_points(nanobind::module_& m);
void bind_rows(nanobind::module_& m);
void bind_reorder(nanobind::module_& m);
void bind_sampling(nanobind::module_& m);
void bind_sddmm(nanobind::module_& m);
void bind_tensor_product(nanobind::module_& m);
void bind_torch_kernels(nanobind::module_& m);
void bind_torch_scatter_kernels(nanobind::module_& m);
void bind_torch_sparse_kernels(nanobind::module_& m);
void bind_torch_sparse_products(nanobind::module_& m);
