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

// One piece of rows, with a copy of its mask: the mask may be written to at any time, and what is counted is what is
// used.
struct Piece {
  uint8_t mask[kRowsPerPiece];  // 0 or 1
  int64_t rows, taken, row_bytes;

  Piece(const uint8_t* from, int64_t count, int64_t bytes) : rows(count), row_bytes(bytes) {
    int32_t found = 0;
    for (int64_t i = 0; i < rows; ++i) {
      mask[i] = from[i] != 0;
      found += mask[i];
    }
    taken = found;
  }
};

// A branch at each entry would be predicted wrongly at every second one of a mask without order. So each row is copied,
// and only the next place depends on the mask, until all rows are copied.
template <class Number>
void take_numbers(const Piece& piece, const char* from, char* to) {
  const auto* source = reinterpret_cast<const Number*>(from);
  auto* out = reinterpret_cast<Number*>(to);
  for (int64_t i = 0, next = 0; next < piece.taken; ++i) {
    out[next] = source[i];
    next += piece.mask[i];
  }
}

template <class Number>
void put_numbers(const Piece& piece, const char* from, char* to) {
  const auto* source = reinterpret_cast<const Number*>(from);
  auto* out = reinterpret_cast<Number*>(to);
  int64_t i = 0;
  for (int64_t next = 0; next < piece.taken; ++i) {
    const Number is_taken = piece.mask[i];
    out[i] = static_cast<Number>(source[next] & (Number{0} - is_taken));  // a choice would become a branch
    next += is_taken;
  }
  std::fill(out + i, out + piece.rows, Number{0});
}

void take_rows(const Piece& piece, const char* from, char* to) {
  const int64_t bytes = piece.row_bytes;
  if (bytes == 1) return take_numbers<uint8_t>(piece, from, to);
  if (bytes == 2) return take_numbers<uint16_t>(piece, from, to);
  if (bytes == 4) return take_numbers<uint32_t>(piece, from, to);
  if (bytes == 8) return take_numbers<uint64_t>(piece, from, to);
  for (int64_t i = 0; i < piece.rows; ++i) {
    if (piece.mask[i] == 0) continue;
    std::memcpy(to, from + i * bytes, bytes);
    to += bytes;
  }
}

void put_rows(const Piece& piece, const char* from, char* to) {
  const int64_t bytes = piece.row_bytes;
  if (bytes == 1) return put_numbers<uint8_t>(piece, from, to);
  if (bytes == 2) return put_numbers<uint16_t>(piece, from, to);
  if (bytes == 4) return put_numbers<uint32_t>(piece, from, to);
  if (bytes == 8) return put_numbers<uint64_t>(piece, from, to);
  for (int64_t i = 0; i < piece.rows; ++i, to += bytes) {
    if (piece.mask[i] == 0) {
      std::memset(to, 0, bytes);
    } else {
      std::memcpy(to, from, bytes);
      from += bytes;
    }
  }
}

// Runs body(piece, its first row of all rows, its first row of those that are taken), in bytes, for each piece. Returns
// whether the mask has as many true entries as the caller expects, and still had them when each piece was copied.
template <class Body>
bool for_pieces(const MaskedRows& masked, const Body& body) {
  const std::vector<int64_t> taken = taken_before(masked);
  if (taken.back() != masked.taken) return false;
  std::atomic<bool> unchanged{true};
  const int64_t pieces = pieces_of(masked);
  for_tasks(masked.blocks * pieces, masked.threads, [&](int64_t task, int) {
    const int64_t block = task / pieces, piece = task % pieces, begin = piece * kRowsPerPiece;
    const Piece one(masked.mask + begin, std::min(kRowsPerPiece, masked.rows - begin), masked.row_bytes);
    if (one.taken != taken[piece + 1] - taken[piece]) return unchanged.store(false, std::memory_order_relaxed);
    body(one, (block * masked.rows + begin) * masked.row_bytes,
         (block * masked.taken + taken[piece]) * masked.row_bytes);
  });
  return unchanged.load();
}

}  // namespace

int64_t count_true(const MaskedRows& masked) { return taken_before(masked).back(); }

bool take_masked(const MaskedRows& masked, const void* from, void* to) {
  return for_pieces(masked, [&](const Piece& piece, int64_t of_all, int64_t of_taken) {
    take_rows(piece, static_cast<const char*>(from) + of_all, static_cast<char*>(to) + of_taken);
  });
}

bool put_masked(const MaskedRows& masked, const void* from, void* to) {
  return for_pieces(masked, [&](const Piece& piece, int64_t of_all, int64_t of_taken) {
    put_rows(piece, static_cast<const char*>(from) + of_taken, static_cast<char*>(to) + of_all);
  });
}

}  // namespace onehop
