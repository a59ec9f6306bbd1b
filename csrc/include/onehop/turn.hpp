// Rows turned into columns.
#pragma once

#include <cstdint>

namespace onehop {

// Copies [rows, columns] to `out`, [columns, rows]; both contiguous, of entries of 2, 4 or 8 bytes. By the calling
// thread alone, beside others that have more to do.
void turn_rows(const void* from, int64_t rows, int64_t columns, int64_t entry_bytes, void* out);

}  // namespace onehop
