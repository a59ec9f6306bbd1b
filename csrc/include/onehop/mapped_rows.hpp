// Rows of a mapped file, requested from the system before they are read.
#pragma once

#include <cstdint>

#include "onehop/kernels.hpp"

namespace onehop {

// Has the pages of rows index[begin] to index[begin + count - 1] of call.matrix read ahead, unless a sample of them is
// in memory already. Reading them page by page would wait for the disk once a page; so many wait together.
void request_rows(const RowsArgs& call, int64_t begin, int64_t count);

}  // namespace onehop
