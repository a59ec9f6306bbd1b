// An index as a graph without a source column: entry e is an edge from row e of the values to row index[e].
#pragma once

#include <cstdint>
#include <memory>

#include "onehop/csr.hpp"

namespace onehop {

// An index, int32 or int64, with a stride in elements.
struct Index {
  const void* data;
  int64_t stride;
  int64_t count;
  bool is_wide;
};

// Copies an index to `out`, int32 [count], and checks it. Returns its first entry that is not in [0, rows), or -1.
int64_t narrow_index(const Index& index, int64_t rows, int32_t* out, int threads);

// The entries by row, in their order: edges come in the order of the rows, so there is no permutation. The entries are
// in range. An index that ascends is not sorted. Null when memory runs out.
std::shared_ptr<Csr> csr_from_index(const int32_t* index, int64_t count, int64_t rows, int threads);

}  // namespace onehop
