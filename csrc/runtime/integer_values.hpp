// What functions of integers share: their values in both widths, and tables of the numbers between.
#pragma once

#include <atomic>
#include <cstring>
#include <new>

#include "csr_arrays.hpp"
#include "onehop/integers.hpp"

namespace onehop {

// Pieces that threads which are done can take from others.
inline constexpr int64_t kPerPiece = int64_t{1} << 16;

inline Chunks pieces_of(int64_t count) { return {count, count / kPerPiece + 1}; }

// Runs body(values) with the integers in their type.
template <class Body>
auto with_values(const Integers& integers, const Body& body) {
  if (integers.is_wide) return body(static_cast<const int64_t*>(integers.values));
  return body(static_cast<const int32_t*>(integers.values));
}

inline uint64_t distance(int64_t from, int64_t to) { return static_cast<uint64_t>(to) - static_cast<uint64_t>(from); }

// Marks the places of integers in a table of those from `least` on.
inline void mark_all(const Integers& integers, IntegerLimits limits, uint8_t* table, int threads) {
  const Chunks chunks = pieces_of(integers.count);
  const bool shared = threads > 1 && chunks.chunks > 1;
  with_values(integers, [&](const auto* values) {
    for_tasks(chunks.chunks, threads, [&](int64_t chunk, int) {
      for_chunk(chunks, chunk, [=, span = limits.span()](int64_t i) {
        const uint64_t place = distance(limits.least, values[i]);
        if (place > span) return;
        std::atomic_ref mark(table[place]);
        // Other threads would lose what is written again from their caches; alone, to write takes less than to decide.
        if (!shared || mark.load(std::memory_order_relaxed) == 0) mark.store(1, std::memory_order_relaxed);
      });
    });
  });
}

inline Block zeros(int64_t bytes, int threads) {
  Block block(bytes);
  if (!block) throw std::bad_alloc();
  const Chunks chunks{bytes, bytes / (kPerPiece * 16) + 1};
  for_tasks(chunks.chunks, threads, [&](int64_t chunk, int) {
    std::memset(block.as<char>() + chunks.begin(chunk), 0, chunks.begin(chunk + 1) - chunks.begin(chunk));
  });
  return block;
}

}  // namespace onehop
