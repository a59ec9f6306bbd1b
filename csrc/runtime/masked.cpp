#include "onehop/masked.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

#include "csr_arrays.hpp"

namespace onehop {
namespace {

constexpr int64_t kRowsPerPiece = 1024;

int64_t pieces_of(const MaskedRows& masked) { return (masked.rows + kRowsPerPiece - 1) / kRowsPerPiece; }

// How many rows are taken before each piece, and of all at the end.
std::vector<int64_t> taken_before(const MaskedRows& masked) {
  std::vector<int64_t> taken(pieces_of(masked) + 1);
  for_tasks(pieces_of(masked), masked.threads, [&](int64_t piece, int) {
    const uint8_t* mask = masked.mask + piece * kRowsPerPiece;
    const int64_t rows = std::min(kRowsPerPiece, masked.rows - piece * kRowsPerPiece);
    int32_t count = 0;
    for (int64_t i = 0; i < rows; ++i) count += mask[i] != 0;
    taken[piece + 1] = count;
  });
  for (size_t piece = 1; piece < taken.size(); ++piece) taken[piece] += taken[piece - 1];
  return taken;
}

// One piece of rows. The mask may have changed since its true entries were counted: `taken` bounds what is read and
// written whatever the mask says.
struct Piece {
  const uint8_t* mask;
  int64_t rows, taken, row_bytes;

  // Whether `next` rows, found in the first `seen`, are all that were counted.
  bool is_whole(int64_t next, int64_t seen) const {
    return next == taken && std::all_of(mask + seen, mask + rows, [](uint8_t entry) { return entry == 0; });
  }
};

// A branch at each entry would be predicted wrongly at every second one of a mask without order. So each row is copied,
// and only the next place depends on the mask, until all rows are copied.
template <class Number>
bool take_numbers(const Piece& piece, const char* from, char* to) {
  const auto* source = reinterpret_cast<const Number*>(from);
  auto* out = reinterpret_cast<Number*>(to);
  int64_t i = 0, next = 0;
  for (; next < piece.taken && i < piece.rows; ++i) {
    out[next] = source[i];
    next += piece.mask[i] != 0;
  }
  return piece.is_whole(next, i);
}

template <class Number>
bool put_numbers(const Piece& piece, const char* from, char* to) {
  const auto* source = reinterpret_cast<const Number*>(from);
  auto* out = reinterpret_cast<Number*>(to);
  int64_t i = 0, next = 0;
  for (; next < piece.taken && i < piece.rows; ++i) {
    const Number is_taken = piece.mask[i] != 0;
    out[i] = static_cast<Number>(source[next] & (Number{0} - is_taken));  // a choice would become a branch
    next += is_taken;
  }
  std::fill(out + i, out + piece.rows, Number{0});
  return piece.is_whole(next, i);
}

bool take_rows(const Piece& piece, const char* from, char* to) {
  const int64_t bytes = piece.row_bytes;
  if (bytes == 1) return take_numbers<uint8_t>(piece, from, to);
  if (bytes == 2) return take_numbers<uint16_t>(piece, from, to);
  if (bytes == 4) return take_numbers<uint32_t>(piece, from, to);
  if (bytes == 8) return take_numbers<uint64_t>(piece, from, to);
  int64_t i = 0, next = 0;
  for (; next < piece.taken && i < piece.rows; ++i) {
    if (piece.mask[i] != 0) std::memcpy(to + next++ * bytes, from + i * bytes, bytes);
  }
  return piece.is_whole(next, i);
}

bool put_rows(const Piece& piece, const char* from, char* to) {
  const int64_t bytes = piece.row_bytes;
  if (bytes == 1) return put_numbers<uint8_t>(piece, from, to);
  if (bytes == 2) return put_numbers<uint16_t>(piece, from, to);
  if (bytes == 4) return put_numbers<uint32_t>(piece, from, to);
  if (bytes == 8) return put_numbers<uint64_t>(piece, from, to);
  int64_t i = 0, next = 0;
  for (; next < piece.taken && i < piece.rows; ++i) {
    if (piece.mask[i] == 0) {
      std::memset(to + i * bytes, 0, bytes);
    } else {
      std::memcpy(to + i * bytes, from + next++ * bytes, bytes);
    }
  }
  std::memset(to + i * bytes, 0, (piece.rows - i) * bytes);
  return piece.is_whole(next, i);
}

// Runs body(piece, its first row of all rows, its first row of those that are taken), in bytes, for each piece. Returns
// whether the mask has as many true entries as the caller expects, and each body met as many as were counted.
template <class Body>
bool for_pieces(const MaskedRows& masked, const Body& body) {
  const std::vector<int64_t> taken = taken_before(masked);
  if (taken.back() != masked.taken) return false;
  std::atomic<bool> whole{true};
  const int64_t pieces = pieces_of(masked);
  for_tasks(masked.blocks * pieces, masked.threads, [&](int64_t task, int) {
    const int64_t block = task / pieces, piece = task % pieces, begin = piece * kRowsPerPiece;
    const Piece one{masked.mask + begin, std::min(kRowsPerPiece, masked.rows - begin), taken[piece + 1] - taken[piece],
                    masked.row_bytes};
    if (!body(one, (block * masked.rows + begin) * masked.row_bytes,
              (block * masked.taken + taken[piece]) * masked.row_bytes)) {
      whole.store(false, std::memory_order_relaxed);
    }
  });
  return whole.load();
}

}  // namespace

int64_t count_true(const MaskedRows& masked) { return taken_before(masked).back(); }

bool take_masked(const MaskedRows& masked, const void* from, void* to) {
  return for_pieces(masked, [&](const Piece& piece, int64_t of_all, int64_t of_taken) {
    return take_rows(piece, static_cast<const char*>(from) + of_all, static_cast<char*>(to) + of_taken);
  });
}

bool put_masked(const MaskedRows& masked, const void* from, void* to) {
  return for_pieces(masked, [&](const Piece& piece, int64_t of_all, int64_t of_taken) {
    return put_rows(piece, static_cast<const char*>(from) + of_taken, static_cast<char*>(to) + of_all);
  });
}

}  // namespace onehop
