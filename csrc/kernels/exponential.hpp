// e to the power of a vector, for softmax.
//
// x = n ln 2 + r with |r| <= ln 2 / 2, so e^x = 2^n e^r. ln 2 is taken in two parts, the first short enough that
// its product with n is exact, so that r keeps its digits (the method of W. J. Cody and W. Waite, "Software
// Manual for the Elementary Functions", 1980). e^r is its Taylor series, cut where the first term left out is
// below a tenth of the last digit: r^8/8! < 6e-9 for float, r^14/14! < 5e-18 for double. 2^n is applied as two
// factors, which lets n leave the range of exponents: results below the normal numbers are rounded once and
// those above the largest become infinity.
//
// The error is below 2 units in the last place (1.1 was the most measured; tests/native holds it to that), -inf
// gives exactly 0, and NaN stays NaN.
#pragma once

#include "simd.hpp"

namespace onehop {
inline namespace ONEHOP_ISA {

template <class A>
struct ExponentialOf;

template <>
struct ExponentialOf<float> {
  using Bits = uint32_t;
  static constexpr float kLargest = 89, kSmallest = -104;  // beyond these the result is infinity or 0
  static constexpr float kLn2High = 355.0f / 512;          // 9 bits
  static constexpr float kLn2Low = -0x1.bd0106p-13f;       // ln 2 less that
  static constexpr float kRound = 0x1.8p23f;               // adding it rounds to a whole number, in the last bits
  static constexpr Bits kBias = 127, kFraction = 23;
  static constexpr int kTerms = 7;
};

template <>
struct ExponentialOf<double> {
  using Bits = uint64_t;
  static constexpr double kLargest = 710, kSmallest = -746;
  static constexpr double kLn2High = 0x1.62e42fefa38p-1;  // 42 bits
  static constexpr double kLn2Low = 0x1.ef35793c7673p-45;
  static constexpr double kRound = 0x1.8p52;
  static constexpr Bits kBias = 1023, kFraction = 52;
  static constexpr int kTerms = 13;
};

// 1 / k!
template <class A>
constexpr A inverse_factorial(int k) {
  double product = 1;
  for (int i = 2; i <= k; ++i) product *= i;  // exact up to 18!
  return static_cast<A>(1 / product);
}

// 1/k! + r (1/(k+1)! + r (...)), up to the last term.
template <class A, int kLanes, int k>
ONEHOP_INLINE Vector<A, kLanes> exponential_series(Vector<A, kLanes> r) {
  constexpr A kCoefficient = inverse_factorial<A>(k);
  if constexpr (k == ExponentialOf<A>::kTerms) {
    return splat<A, kLanes>(kCoefficient);
  } else {
    return exponential_series<A, kLanes, k + 1>(r) * r + splat<A, kLanes>(kCoefficient);
  }
}

template <class A, int kLanes>
ONEHOP_INLINE Vector<A, kLanes> exponential(Vector<A, kLanes> x) {
  using Of = ExponentialOf<A>;
  using V = Vector<A, kLanes>;
  using Bits = Vector<typename Of::Bits, kLanes>;
  constexpr A kLog2E = A(0x1.71547652b82fep+0);
  const V shifted = x * splat<A, kLanes>(kLog2E) + splat<A, kLanes>(Of::kRound);
  const V n = shifted - splat<A, kLanes>(Of::kRound);
  const V r = (x - n * splat<A, kLanes>(Of::kLn2High)) - n * splat<A, kLanes>(Of::kLn2Low);
  const V power = splat<A, kLanes>(1) + (r + r * r * exponential_series<A, kLanes, 2>(r));
  // Unsigned integers: if x is out of range or NaN they wrap around, and the result is replaced or is NaN anyway. Half
  // of n is taken in a range where it is positive.
  const Bits whole = bit_cast<Bits>(shifted) - bit_cast<Bits>(splat<A, kLanes>(Of::kRound));
  constexpr auto kOffset = 2 * (Of::kBias + 1);
  const Bits half = ((whole + kOffset) >> 1) - kOffset / 2;
  const V first = bit_cast<V>(Bits((half + Of::kBias) << Of::kFraction));
  const V second = bit_cast<V>(Bits((whole - half + Of::kBias) << Of::kFraction));
  const V result = power * first * second;
  const V infinity = splat<A, kLanes>(A(__builtin_huge_val()));
  const V low = x < splat<A, kLanes>(Of::kSmallest) ? splat<A, kLanes>(0) : result;
  return x > splat<A, kLanes>(Of::kLargest) ? infinity : low;
}

}  // namespace ONEHOP_ISA
}  // namespace onehop
