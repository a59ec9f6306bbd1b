// Rows where a mask is true: taken out of a tensor, and put back among rows of zeros.
#pragma once

#include <cstdint>

namespace onehop {

// Blocks of rows, all under the same mask.
struct MaskedRows {
  const uint8_t* mask;  // [rows], 0 or not
  int64_t rows, blocks, row_bytes;
  int threads;
};

// How many entries of the mask are true.
int64_t count_true(const MaskedRows& masked);

// Copies the rows where the mask is true from [blocks, rows] to [blocks, count_true].
void take_masked(const MaskedRows& masked, const void* from, void* to);

// Copies rows from [blocks, count_true] to where the mask is true in [blocks, rows], and writes zeros elsewhere.
void put_masked(const MaskedRows& masked, const void* from, void* to);

}  // namespace onehop
