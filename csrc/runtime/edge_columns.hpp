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

// Pieces that threads which are done can take from others.
inline Chunks pieces_of(const EdgeColumns& edges) {
  constexpr int64_t kEdgesPerPiece = int64_t{1} << 16;
  return {edges.count, edges.count / kEdgesPerPiece + 1};
}

}  // namespace onehop
