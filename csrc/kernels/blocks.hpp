// A row's columns, cut into blocks that registers hold.
//
// This header, simd.hpp, generated.hpp and aggregate_rows.hpp are also the source text of kernels that are generated at
// run time: they include only each other.
#pragma once

#include "simd.hpp"

namespace onehop {
inline namespace ONEHOP_ISA {

// Accumulators that fit besides operands in the register file (16 registers, 32 with AVX-512 and on Arm).
#if defined(__AVX512F__) || defined(__aarch64__)
inline constexpr int kMostVectors = 16;
#else
inline constexpr int kMostVectors = 8;
#endif

inline constexpr int kLineBytes = 64;

// A block of columns, held in `vectors` registers of `lanes` lanes. If the columns are not a multiple of the lanes, the
// last vector begins earlier and overlaps the one before it: it computes some columns twice, with the same result, and
// needs neither masks nor a scalar tail.
struct ColumnBlock {
  int64_t begin, columns;
  int lanes, vectors;
};

template <class A>
inline constexpr int kFullLanes = kVectorBytes / static_cast<int>(sizeof(A));

template <class A>
ONEHOP_INLINE constexpr ColumnBlock column_block(int64_t begin, int64_t columns) {
  int lanes = kFullLanes<A>;
  while (lanes > columns) lanes /= 2;
  return {begin, columns, lanes, static_cast<int>((columns + lanes - 1) / lanes)};
}

// The block number `index` of `columns` columns cut into blocks of equal size, of at most kVectors full vectors, or of
// `vectors`, if that is less.
template <class A, int kVectors>
struct BlockCut {
  int64_t columns, blocks, step;
  explicit constexpr BlockCut(int64_t all, int64_t vectors = kVectors) : columns(all) {
    const int64_t most = smaller(vectors, kVectors) * kFullLanes<A>;
    blocks = (all + most - 1) / most;
    const int64_t even = (all + blocks - 1) / blocks;
    step = (even + kFullLanes<A> - 1) / kFullLanes<A> * kFullLanes<A>;
  }
  constexpr ColumnBlock operator[](int64_t index) const {
    return column_block<A>(index * step, smaller(step, columns - index * step));
  }
};

// Calls visit.template operator()<lanes, vectors>() with the block's numbers as constants.
template <class A, int kVectors, int kLanes = kFullLanes<A>, int kCount = 1, class Visit>
ONEHOP_INLINE auto with_block(const ColumnBlock& block, const Visit& visit) {
  if constexpr (kLanes == kFullLanes<A> && kCount < kVectors) {
    if (block.lanes == kLanes && block.vectors == kCount) return visit.template operator()<kLanes, kCount>();
    if (block.lanes == kLanes) return with_block<A, kVectors, kLanes, kCount + 1>(block, visit);
    return with_block<A, kVectors, kLanes / 2, 1>(block, visit);
  } else if constexpr (kLanes == kFullLanes<A>) {
    return visit.template operator()<kLanes, kCount>();
  } else if constexpr (kLanes > 1) {
    if (block.lanes == kLanes && block.vectors == 1) return visit.template operator()<kLanes, 1>();
    if (block.lanes == kLanes) return visit.template operator()<kLanes, 2>();
    return with_block<A, kVectors, kLanes / 2, 1>(block, visit);
  } else {
    return visit.template operator()<1, 1>();
  }
}

// The begin of vector v of a block, in columns from the block's begin.
template <int kLanes, int kVectors>
ONEHOP_INLINE int64_t vector_begin(int v, int64_t columns) {
  return v < kVectors - 1 ? int64_t{v} * kLanes : columns - kLanes;
}

// Locality of prefetched rows, from 3 (in all caches) to 0 (used once). Rows are prefetched into L2: many more of its
// lines can be in flight than of L1's. Sums over 2.4 M edges of a graph with 169,343 nodes take 27 ms instead of 47 at
// width 128, and 14 instead of 18 at 64.
inline constexpr int kKeepRows = 2;
inline constexpr int kKeepNear = 3;

// Prefetches the cache lines of `bytes` bytes from `address` on.
template <int64_t kBytes, int kKeep = kKeepRows>
ONEHOP_INLINE void prefetch_lines(const char* address) {
#pragma GCC unroll 32
  for (int64_t offset = 0; offset < kBytes; offset += kLineBytes) __builtin_prefetch(address + offset, 0, kKeep);
}

}  // namespace ONEHOP_ISA
}  // namespace onehop
