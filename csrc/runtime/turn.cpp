#include "onehop/turn.hpp"

#include <algorithm>
#include <stdexcept>

namespace onehop {
namespace {

// Entries of a block of rows are in the nearest cache while its columns are written one after the other, each to
// some whole lines.
constexpr int64_t kRows = 64, kColumns = 32;

template <class Entry>
void turn(const Entry* from, int64_t rows, int64_t columns, Entry* out) {
  for (int64_t row = 0; row < rows; row += kRows) {
    const int64_t row_end = std::min(rows, row + kRows);
    for (int64_t column = 0; column < columns; column += kColumns) {
      const int64_t column_end = std::min(columns, column + kColumns);
      for (int64_t c = column; c < column_end; ++c) {
        Entry* to = out + c * rows;
        for (int64_t r = row; r < row_end; ++r) to[r] = from[r * columns + c];
      }
    }
  }
}

}  // namespace

void turn_rows(const void* from, int64_t rows, int64_t columns, int64_t entry_bytes, void* out) {
  switch (entry_bytes) {
    case 2:
      return turn(static_cast<const uint16_t*>(from), rows, columns, static_cast<uint16_t*>(out));
    case 4:
      return turn(static_cast<const uint32_t*>(from), rows, columns, static_cast<uint32_t*>(out));
    case 8:
      return turn(static_cast<const uint64_t*>(from), rows, columns, static_cast<uint64_t*>(out));
    default:
      throw std::invalid_argument("entry_bytes: expected 2, 4 or 8");
  }
}

}  // namespace onehop
