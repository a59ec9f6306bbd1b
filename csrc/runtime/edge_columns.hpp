// What functions of edges share: their columns in both widths, and memory for their results.
#pragma once

#include "csr_arrays.hpp"
#include "onehop/edges.hpp"
#include "pages.hpp"

namespace onehop {

// Runs body(row, col) with the columns in their type.
template <class Body>
auto with_columns(const EdgeColumns& edges, const Body& body) {
  if (edges.is_wide) return body(static_cast<const int64_t*>(edges.row), static_cast<const int64_t*>(edges.col));
  return body(static_cast<const int32_t*>(edges.row), static_cast<const int32_t*>(edges.col));
}

// Runs body(edge) for the edges of a chunk, which is found once: what the body writes could be numbers of chunks.
template <class Body>
void for_chunk(Chunks chunks, int64_t chunk, const Body& body) {
  const int64_t end = chunks.begin(chunk + 1);
  for (int64_t e = chunks.begin(chunk); e < end; ++e) body(e);
}

// Asks for huge pages in new memory that is about to be written whole: most of the time would pass in faults of small
// ones.
template <class T>
void want_huge_pages(T* data, int64_t count) {
  const auto begin = reinterpret_cast<int64_t>(data), end = begin + count * static_cast<int64_t>(sizeof(T));
  want_huge_pages(data, round_up(begin, kHugePage) - begin, round_down(end, kHugePage) - begin);
}

}  // namespace onehop
