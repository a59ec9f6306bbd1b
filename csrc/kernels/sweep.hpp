// Common parts of all kernels: weights staged for a work item, and the iteration over the rows of an item, cut rows
// included.
#pragma once

#include "blocks.hpp"
#include "onehop/kernels.hpp"
#include "onehop/parallel.hpp"

namespace onehop {
inline namespace ONEHOP_ISA {

// Calls visit(T{}) for the type that `dtype` names.
template <class Visit>
ONEHOP_INLINE void with_type(DType dtype, const Visit& visit) {
  switch (dtype) {
    case DType::float32:
      return visit(float{});
    case DType::float64:
      return visit(double{});
    case DType::bfloat16:
      return visit(bfloat16{});
    case DType::float16:
      return visit(float16{});
  }
}

// The caller's number of the edge at position e.
ONEHOP_INLINE int64_t edge_number(const Csr& csr, int64_t e) {
  if (!csr.perm) return e;
  return csr.perm_is_wide ? csr.perm.as<int64_t>()[e] : csr.perm.as<int32_t>()[e];
}

// The weight of every edge of a piece, in the graph's order: the given weight (in the caller's order, if
// `permuted`) times the column's scale.
template <class A, class Perm>
void stage_weights(const Csr& csr, const WorkItem& item, const A* weight, int64_t stride, bool permuted,
                   const A* col_scale, A* out) {
  const Perm* perm = permuted && csr.perm ? csr.perm.as<Perm>() : nullptr;
  const int32_t* col = csr.col_data() + item.edge_begin;
  const int64_t edges = item.edge_end - item.edge_begin;
  if (perm != nullptr) {
    for (int64_t e = 0; e < edges; ++e) out[e] = weight[static_cast<int64_t>(perm[item.edge_begin + e]) * stride];
  } else {
    for (int64_t e = 0; e < edges; ++e) out[e] = weight[(item.edge_begin + e) * stride];
  }
  if (col_scale != nullptr) {
    for (int64_t e = 0; e < edges; ++e) out[e] *= col_scale[col[e]];
  }
}

template <class A>
void stage_weights(const Csr& csr, const WorkItem& item, const void* weight, int64_t stride, bool permuted,
                   const void* col_scale, A* out) {
  const auto* w = static_cast<const A*>(weight);
  const auto* scale = static_cast<const A*>(col_scale);
  if (csr.perm_is_wide) {
    stage_weights<A, int64_t>(csr, item, w, stride, permuted, scale, out);
  } else {
    stage_weights<A, int32_t>(csr, item, w, stride, permuted, scale, out);
  }
}

// Visits the whole rows of a piece by whole(row_begin, row_end), in one call, and its cut rows by
// part(row, edge_begin, edge_end, slot).
template <class Whole, class Part>
ONEHOP_INLINE void visit_rows(const WorkItem& item, const int64_t* rowptr, const Whole& whole, const Part& part) {
  int64_t begin = item.row_begin, end = item.row_end;
  if (item.head_slot >= 0) {
    part(begin, item.edge_begin, smaller(rowptr[begin + 1], item.edge_end), item.head_slot);
    ++begin;
  }
  const bool cuts_last = item.tail_slot >= 0 && item.tail_slot != item.head_slot;
  if (cuts_last) --end;
  if (begin < end) whole(begin, end);
  if (cuts_last) part(end, rowptr[end], item.edge_end, item.tail_slot);
}

// Runs body(item, thread) for every piece.
template <class Body>
void for_items(const WorkList& work, int threads, const Body& body) {
  struct Context {
    const WorkList& work;
    const Body& body;
  } context{work, body};
  parallel_for(
      static_cast<int64_t>(work.items.size()), threads,
      [](void* opaque, int64_t task, int thread) {
        const auto& c = *static_cast<const Context*>(opaque);
        c.body(c.work.items.data()[task], thread);
      },
      &context);
}

// Runs body(cut_row) for every row that was cut.
template <class Body>
void for_cut_rows(const WorkList& work, int threads, const Body& body) {
  struct Context {
    const WorkList& work;
    const Body& body;
  } context{work, body};
  parallel_for(
      static_cast<int64_t>(work.cut_rows.size()), threads,
      [](void* opaque, int64_t task, int) {
        const auto& c = *static_cast<const Context*>(opaque);
        c.body(c.work.cut_rows.data()[task]);
      },
      &context);
}

}  // namespace ONEHOP_ISA
}  // namespace onehop
