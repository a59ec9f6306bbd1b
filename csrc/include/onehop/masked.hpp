// Rows where a mask is true: taken out of a tensor, and put back among rows of zeros.
#pragma once

#include <cstdint>

namespace onehop {

// Blocks of rows, all under the same mask. Its owner may write to the mask at any time, while a function below runs
// too, so each of them takes no more rows than `taken`, and says whether these were all.
struct MaskedRows {
  const uint8_t* mask;  // [rows], 0 or not
  int64_t rows, blocks, row_bytes;
  int64_t taken;  // how many rows of a block the caller expects, and has made room for
  int threads;
};

// How many entries of the mask are true.
int64_t count_true(const MaskedRows& masked);

// Copies the rows where the mask is true from [blocks, rows] to [blocks, taken]. Returns false if the mask had another
// number of true entries; then the rows have no meaning.
bool take_masked(const MaskedRows& masked, const void* from, void* to);

// Copies rows from [blocks, taken] to where the mask is true in [blocks, rows], and writes zeros elsewhere. Returns as
// take_masked().
bool put_masked(const MaskedRows& masked, const void* from, void* to);

}  // namespace onehop
