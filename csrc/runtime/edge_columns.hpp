// What functions of edges share: their columns in both widths.
#pragma once

#include "csr_arrays.hpp"
#include "onehop/edges.hpp"

namespace onehop {

// Runs body(row, col) with the columns in their type.
template <class Body>
auto with_columns(const EdgeColumns& edges, const Body& body) {
  if (edges.is_wide) return body(static_cast<const int64_t*>(edges.row), static_cast<const int64_t*>(edges.col));
  return body(static_cast<const int32_t*>(edges.row), static_cast<const int32_t*>(edges.col));
}

}  // namespace onehop
