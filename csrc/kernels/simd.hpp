// Vectors of a fixed number of lanes, in the compiler's own vector types, for one instruction set.
//
// Every kernel source is compiled once per instruction set with ONEHOP_ISA naming it, and everything lies in
// a namespace of that name. Kernels use no templates of the standard library: the linker keeps one copy of
// each, and that copy could be the one built for a newer processor.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__F16C__) || defined(__AVX512F__)
#include <immintrin.h>
#endif

#define ONEHOP_INLINE inline __attribute__((always_inline))

namespace onehop {
inline namespace ONEHOP_ISA {

// Bytes of a full vector register.
#if defined(__AVX512F__)
inline constexpr int kVectorBytes = 64;
#elif defined(__AVX2__)
inline constexpr int kVectorBytes = 32;
#else
inline constexpr int kVectorBytes = 16;
#endif

struct bfloat16 {
  uint16_t bits;
};
struct float16 {
  uint16_t bits;
};

// The type of sums: 16-bit numbers are summed in float.
template <class T>
struct Accumulator {
  using type = float;
};
template <>
struct Accumulator<double> {
  using type = double;
};
template <class T>
using Acc = typename Accumulator<T>::type;

template <class T, int kLanes>
struct VectorOf {
  typedef T type __attribute__((vector_size(sizeof(T) * kLanes)));
  typedef T unaligned __attribute__((vector_size(sizeof(T) * kLanes), aligned(alignof(T)), may_alias));
};
template <class T>
struct VectorOf<T, 1> {
  using type = T;
  typedef T unaligned __attribute__((may_alias));
};
template <class T, int kLanes>
using Vector = typename VectorOf<T, kLanes>::type;

template <class T, int kLanes>
ONEHOP_INLINE Vector<T, kLanes> load_raw(const void* from) {
  return *static_cast<const typename VectorOf<T, kLanes>::unaligned*>(from);
}
template <class T, int kLanes>
ONEHOP_INLINE void store_raw(void* to, Vector<T, kLanes> value) {
  *static_cast<typename VectorOf<T, kLanes>::unaligned*>(to) = value;
}

template <class To, class From>
ONEHOP_INLINE To bit_cast(From value) {
  static_assert(sizeof(To) == sizeof(From));
  To result;
  std::memcpy(&result, &value, sizeof(To));
  return result;
}

template <class To, class From, int kLanes>
ONEHOP_INLINE Vector<To, kLanes> convert(Vector<From, kLanes> value) {
  if constexpr (kLanes == 1) {
    return static_cast<To>(value);
  } else {
    return __builtin_convertvector(value, Vector<To, kLanes>);
  }
}

template <class A, int kLanes>
ONEHOP_INLINE Vector<A, kLanes> splat(A value) {
  if constexpr (kLanes == 1) {
    return value;
  } else {
    return Vector<A, kLanes>{} + value;
  }
}

// With AVX-512, GCC takes __builtin_convertvector apart where many vectors are live; the instruction is asked for.
template <int kLanes>
ONEHOP_INLINE Vector<float, kLanes> from_bfloat16_bits(Vector<uint16_t, kLanes> bits) {
#if defined(__AVX512F__)
  if constexpr (kLanes == 16) {
    return (Vector<float, 16>)_mm512_slli_epi32(_mm512_cvtepu16_epi32((__m256i)bits), 16);
  }
#endif
  using U = Vector<uint32_t, kLanes>;
  return bit_cast<Vector<float, kLanes>>(U(convert<uint32_t, uint16_t, kLanes>(bits) << 16));
}

template <int kLanes>
ONEHOP_INLINE Vector<float, kLanes> from_half_bits(Vector<uint16_t, kLanes> bits) {
#if defined(__AVX512F__)
  if constexpr (kLanes == 16) return (Vector<float, 16>)_mm512_cvtph_ps((__m256i)bits);
#endif
#if defined(__F16C__)
  if constexpr (kLanes == 8) return (Vector<float, 8>)_mm256_cvtph_ps((__m128i)bits);
#endif
  // Exponent and mantissa move to their places in a float; the factor 2^112 corrects the bias and, being exact, also
  // handles subnormal halves. All-ones exponents (infinity, NaN) are set afterwards.
  using U = Vector<uint32_t, kLanes>;
  using F = Vector<float, kLanes>;
  const U wide = convert<uint32_t, uint16_t, kLanes>(bits);
  const U magnitude = (wide & 0x7fffu) << 13;
  const F scaled = bit_cast<F>(magnitude) * bit_cast<float>(0x77800000u);
  const U special = magnitude >= 0x0f800000u ? splat<uint32_t, kLanes>(0x7f800000u) : splat<uint32_t, kLanes>(0u);
  return bit_cast<F>(U(bit_cast<U>(scaled) | special | ((wide & 0x8000u) << 16)));
}

// kLanes numbers of type T from memory, as accumulators.
template <class T, int kLanes>
ONEHOP_INLINE Vector<Acc<T>, kLanes> load(const T* from) {
  if constexpr (sizeof(T) >= 4) {
    return load_raw<T, kLanes>(from);
  } else {
    const auto bits = load_raw<uint16_t, kLanes>(from);
    if constexpr (__is_same(T, bfloat16)) {
      return from_bfloat16_bits<kLanes>(bits);
    } else {
      return from_half_bits<kLanes>(bits);
    }
  }
}

// Round to nearest, ties to even; a NaN stays one.
template <int kLanes>
ONEHOP_INLINE Vector<uint16_t, kLanes> to_bfloat16_bits(Vector<float, kLanes> value) {
  using U = Vector<uint32_t, kLanes>;
  const U bits = bit_cast<U>(value);
  const U quiet = bits | 0x400000u;
  const U nearest = bits + 0x7fffu + ((bits >> 16) & 1u);
  const U chosen = value != value ? quiet : nearest;
  return convert<uint16_t, uint32_t, kLanes>(chosen >> 16);
}

ONEHOP_INLINE uint16_t to_half_bits(float value) {
  const auto bits = bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
  if (magnitude >= 0x47800000u) return static_cast<uint16_t>(sign | 0x7c00u);
  if (magnitude < 0x38800000u) {
    // Subnormal as a half: adding 0.5 lets the hardware round at the right bit.
    const float shifted = bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (bit_cast<uint32_t>(shifted) - 0x3f000000u));
  }
  magnitude += 0xc8000fffu + ((magnitude >> 13) & 1u);  // bias 127 to 15, then round
  return static_cast<uint16_t>(sign | (magnitude >> 13));
}

template <int kLanes>
ONEHOP_INLINE Vector<uint16_t, kLanes> to_half_bits(Vector<float, kLanes> value) {
  if constexpr (kLanes == 1) {
    return to_half_bits(value);
  } else {
#if defined(__AVX512F__)
    if constexpr (kLanes == 16) {
      return (Vector<uint16_t, 16>)_mm512_cvtps_ph((__m512)value, _MM_FROUND_TO_NEAREST_INT);
    }
#endif
#if defined(__F16C__)
    if constexpr (kLanes == 8) {
      return (Vector<uint16_t, 8>)_mm256_cvtps_ph((__m256)value, _MM_FROUND_TO_NEAREST_INT);
    }
#endif
    Vector<uint16_t, kLanes> bits;
    for (int i = 0; i < kLanes; ++i) bits[i] = to_half_bits(value[i]);
    return bits;
  }
}

template <class T, int kLanes>
ONEHOP_INLINE void store(T* to, Vector<Acc<T>, kLanes> value) {
  if constexpr (sizeof(T) >= 4) {
    store_raw<T, kLanes>(to, value);
  } else if constexpr (__is_same(T, bfloat16)) {
    store_raw<uint16_t, kLanes>(to, to_bfloat16_bits<kLanes>(value));
  } else {
    store_raw<uint16_t, kLanes>(to, to_half_bits<kLanes>(value));
  }
}

// A store of a full, aligned vector that does not bring its line into the caches first; others are plain stores.
template <class A, int kLanes>
ONEHOP_INLINE void store_past_caches(A* to, Vector<A, kLanes> value) {
  [[maybe_unused]] constexpr int kBytes = kLanes * static_cast<int>(sizeof(A));
#if defined(__AVX512F__)
  if constexpr (kBytes == 64) return _mm512_stream_si512((__m512i*)to, bit_cast<__m512i>(value));
#endif
#if defined(__AVX2__)
  if constexpr (kBytes == 32) return _mm256_stream_si256((__m256i*)to, bit_cast<__m256i>(value));
#endif
  store<A, kLanes>(to, value);
}

// Makes such stores visible before other threads are notified.
ONEHOP_INLINE void settle_stores() {
#if defined(__AVX2__)
  _mm_sfence();
#endif
}

// The value as it would be after being stored as T and read back.
template <class T, int kLanes>
ONEHOP_INLINE Vector<Acc<T>, kLanes> rounded(Vector<Acc<T>, kLanes> value) {
  if constexpr (sizeof(T) >= 4) {
    return value;
  } else {
    T narrow[kLanes];
    store<T, kLanes>(narrow, value);
    return load<T, kLanes>(narrow);
  }
}

template <class A, int kLanes>
ONEHOP_INLINE A sum_of_lanes(Vector<A, kLanes> value) {
  if constexpr (kLanes == 1) {
    return value;
  } else {
    using Half = Vector<A, kLanes / 2>;
    struct Halves {
      Half low, high;
    };
    const auto halves = bit_cast<Halves>(value);
    return sum_of_lanes<A, kLanes / 2>(halves.low + halves.high);
  }
}

// `value` with its first `count` lanes set to zero.
template <class A, int kLanes>
ONEHOP_INLINE Vector<A, kLanes> without_first(Vector<A, kLanes> value, int64_t count) {
  using I = decltype(value == value);
  I index{};
  for (int i = 0; i < kLanes; ++i) index[i] = i;
  const I first = index < (I{} + static_cast<decltype(index[0] + 0)>(count));
  return first ? splat<A, kLanes>(0) : value;
}

// a where it is larger (smaller), else b; b where either is NaN: one instruction where the processor has it.
template <class A, int kLanes>
ONEHOP_INLINE Vector<A, kLanes> larger_of(Vector<A, kLanes> a, Vector<A, kLanes> b) {
  constexpr int kBytes [[maybe_unused]] = kLanes == 1 ? 0 : kLanes * static_cast<int>(sizeof(A));
#if defined(__AVX512F__)
  if constexpr (kBytes == 64 && sizeof(A) == 4) return (Vector<A, kLanes>)_mm512_max_ps((__m512)a, (__m512)b);
  if constexpr (kBytes == 64 && sizeof(A) == 8) return (Vector<A, kLanes>)_mm512_max_pd((__m512d)a, (__m512d)b);
#endif
#if defined(__AVX2__)
  if constexpr (kBytes == 32 && sizeof(A) == 4) return (Vector<A, kLanes>)_mm256_max_ps((__m256)a, (__m256)b);
  if constexpr (kBytes == 32 && sizeof(A) == 8) return (Vector<A, kLanes>)_mm256_max_pd((__m256d)a, (__m256d)b);
#endif
  return a > b ? a : b;
}
template <class A, int kLanes>
ONEHOP_INLINE Vector<A, kLanes> smaller_of(Vector<A, kLanes> a, Vector<A, kLanes> b) {
  constexpr int kBytes [[maybe_unused]] = kLanes == 1 ? 0 : kLanes * static_cast<int>(sizeof(A));
#if defined(__AVX512F__)
  if constexpr (kBytes == 64 && sizeof(A) == 4) return (Vector<A, kLanes>)_mm512_min_ps((__m512)a, (__m512)b);
  if constexpr (kBytes == 64 && sizeof(A) == 8) return (Vector<A, kLanes>)_mm512_min_pd((__m512d)a, (__m512d)b);
#endif
#if defined(__AVX2__)
  if constexpr (kBytes == 32 && sizeof(A) == 4) return (Vector<A, kLanes>)_mm256_min_ps((__m256)a, (__m256)b);
  if constexpr (kBytes == 32 && sizeof(A) == 8) return (Vector<A, kLanes>)_mm256_min_pd((__m256d)a, (__m256d)b);
#endif
  return a < b ? a : b;
}

ONEHOP_INLINE constexpr int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
ONEHOP_INLINE constexpr int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

}  // namespace ONEHOP_ISA
}  // namespace onehop
