// The Mersenne Twister MT19937 (Matsumoto and Nishimura, 1998) in vectors.
//
// As one endless sequence, a word depends on those 624, 623 and 227 before it, so a vector of them can be made at
// once, and blocks of 624 have no borders.
#include "onehop/mersenne.hpp"

#include <utility>

#include "simd.hpp"
#include "tables.hpp"

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace onehop {
inline namespace ONEHOP_ISA {
namespace {

constexpr int64_t kMiddle = 397;
constexpr int kLanes = kVectorBytes / 4;
using Words = Vector<uint32_t, kLanes>;
using Signed = Vector<int32_t, kLanes>;

template <class W>
ONEHOP_INLINE W tempered(W y) {
  y ^= y >> 11;
  y ^= (y << 7) & 0x9d2c5680u;
  y ^= (y << 15) & 0xefc60000u;
  return y ^ (y >> 18);
}

// A sequence of the standard library is a type without code, of which no copy is shared with other instruction sets.
template <int... kLane>
ONEHOP_INLINE Words evens(Words low, Words high, std::integer_sequence<int, kLane...>) {
  return __builtin_shufflevector(low, high, (2 * kLane)...);
}

// The first word of each of kLanes pairs.
ONEHOP_INLINE Words first_of_pairs(const uint32_t* pairs) {
  const Words low = load_raw<uint32_t, kLanes>(pairs), high = load_raw<uint32_t, kLanes>(pairs + kLanes);
  return evens(low, high, std::make_integer_sequence<int, kLanes>{});
}

// Bit i is the sign of lane i.
ONEHOP_INLINE uint64_t signs(Signed lanes) {
#if defined(__AVX512F__)
  return _mm512_movepi32_mask((__m512i)lanes);
#elif defined(__AVX2__)
  return static_cast<uint32_t>(_mm256_movemask_ps((__m256)lanes));
#elif defined(__SSE2__)
  return static_cast<uint32_t>(_mm_movemask_ps((__m128)lanes));
#else
  uint64_t bits = 0;
  for (int i = 0; i < kLanes; ++i) bits |= static_cast<uint64_t>(lanes[i] < 0) << i;
  return bits;
#endif
}

// The mask of up to 64 elements, one by one.
uint64_t below_one_by_one(const uint32_t* pairs, int64_t count, uint64_t bound) {
  constexpr uint64_t kMantissa = (uint64_t{1} << 53) - 1;
  uint64_t bits = 0;
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t upper = tempered(pairs[2 * i]), lower = tempered(pairs[2 * i + 1]);
    bits |= static_cast<uint64_t>(((upper << 32 | lower) & kMantissa) < bound) << i;
  }
  return bits;
}

}  // namespace

void mersenne_words(uint32_t* words, int64_t count) {
  for (int64_t k = 0; k < count; k += kLanes) {
    const Words u = load_raw<uint32_t, kLanes>(words + k), v = load_raw<uint32_t, kLanes>(words + k + 1);
    const Words mixed = (u & 0x80000000u) | (v & 0x7fffffffu);
    const Words twist = (mixed >> 1) ^ (-(v & 1u) & 0x9908b0dfu);
    store_raw<uint32_t, kLanes>(words + k + kMersenneWords, load_raw<uint32_t, kLanes>(words + k + kMiddle) ^ twist);
  }
}

void mersenne_below(const uint32_t* pairs, int64_t count, uint64_t bound, uint64_t* bits) {
  // The first word of a pair decides, save where its 21 bits are those of the bound: one in two million.
  const Signed limit = splat<int32_t, kLanes>(static_cast<int32_t>(bound >> 32));
  for (; count >= 64; count -= 64, pairs += 128, ++bits) {
    uint64_t below = 0;
    Signed ties{};
#pragma GCC unroll 16
    for (int i = 0; i < 64; i += kLanes) {
      const auto upper = (Signed)(tempered(first_of_pairs(pairs + 2 * i)) & 0x1fffffu);
      below |= signs(upper < limit) << i;
      ties |= upper == limit;
    }
    *bits = signs(ties) == 0 ? below : below_one_by_one(pairs, 64, bound);
  }
  if (count > 0) *bits = below_one_by_one(pairs, count, bound);
}

void mersenne_fold(const uint32_t* words, const int32_t* terms, int64_t count, uint32_t* block) {
  constexpr int kVectors = 3;  // of which a whole number makes a block, whatever the lanes
  static_assert(kMersenneWords % (kVectors * kLanes) == 0);
  for (int64_t k = 0; k < kMersenneWords; k += kVectors * kLanes) {
    Words sums[kVectors] = {};
    for (int64_t term = 0; term < count; ++term) {
      for (int v = 0; v < kVectors; ++v) sums[v] ^= load_raw<uint32_t, kLanes>(words + terms[term] + k + v * kLanes);
    }
    for (int v = 0; v < kVectors; ++v) store_raw<uint32_t, kLanes>(block + k + v * kLanes, sums[v]);
  }
}

}  // namespace ONEHOP_ISA
}  // namespace onehop
