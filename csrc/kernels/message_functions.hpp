// The functions of a message's steps, for vectors: what torch's give for NaN and infinities, and within a few units in
// the last place of theirs.
#pragma once

#include "exponential.hpp"

namespace onehop {
inline namespace ONEHOP_ISA {

// Series of the logarithm: the last terms kept, of which the first left out is below a tenth of the last digit.
template <class A>
struct LogarithmOf;
template <>
struct LogarithmOf<float> {
  using Whole = int32_t;
  static constexpr int kSumTerms = 7, kTerms = 4;
  static constexpr float kSmallest = 0x1p-126f, kLift = 0x1p25f, kLifted = 25;
  static constexpr uint32_t kRootHalf = 0x3f3504f3u;
};
template <>
struct LogarithmOf<double> {
  using Whole = int64_t;
  static constexpr int kSumTerms = 16, kTerms = 10;
  static constexpr double kSmallest = 0x1p-1022, kLift = 0x1p54, kLifted = 54;
  static constexpr uint64_t kRootHalf = 0x3fe6a09e667f3bcdu;
};

// 1/(2k+1) + z (1/(2k+3) + z (...)), up to the last term.
template <class A, int kLanes, int kLast, int k = 1>
ONEHOP_INLINE Vector<A, kLanes> artanh_series(Vector<A, kLanes> z) {
  constexpr A kCoefficient = A(1.0 / (2 * k + 1));
  if constexpr (k == kLast) {
    return splat<A, kLanes>(kCoefficient);
  } else {
    return artanh_series<A, kLanes, kLast, k + 1>(z) * z + splat<A, kLanes>(kCoefficient);
  }
}

// 2 artanh s
template <class A, int kLanes, int kLast>
ONEHOP_INLINE Vector<A, kLanes> twice_artanh(Vector<A, kLanes> s) {
  const Vector<A, kLanes> z = s * s, twice = s + s;
  return twice + twice * (z * artanh_series<A, kLanes, kLast>(z));
}

// log(1 + u) for 0 <= u <= 1, without the rounding of 1 + u: 2 artanh(u / (2 + u)).
template <class A, int kLanes>
ONEHOP_INLINE Vector<A, kLanes> log_of_one_and(Vector<A, kLanes> u) {
  return twice_artanh<A, kLanes, LogarithmOf<A>::kSumTerms>(u / (splat<A, kLanes>(2) + u));
}

// x = 2^n m with sqrt(1/2) <= m < sqrt(2), and log m = 2 artanh((m - 1) / (m + 1)).
template <class A, int kLanes>
ONEHOP_INLINE Vector<A, kLanes> logarithm(Vector<A, kLanes> x) {
  using Of = LogarithmOf<A>;
  using Exp = ExponentialOf<A>;
  using V = Vector<A, kLanes>;
  using Bits = Vector<typename Exp::Bits, kLanes>;
  using Whole = Vector<typename Of::Whole, kLanes>;
  const V zero = splat<A, kLanes>(0), one = splat<A, kLanes>(1);
  const V infinity = splat<A, kLanes>(A(__builtin_huge_val()));
  const V lifted = x < splat<A, kLanes>(Of::kSmallest) ? V(x * splat<A, kLanes>(Of::kLift)) : x;
  const Bits bits = bit_cast<Bits>(lifted);
  const Whole n = bit_cast<Whole>(Bits(bits - Of::kRootHalf)) >> Exp::kFraction;
  const V m = bit_cast<V>(Bits(bits - (bit_cast<Bits>(n) << Exp::kFraction)));
  V power = convert<A, typename Of::Whole, kLanes>(n);
  power = x < splat<A, kLanes>(Of::kSmallest) ? V(power - splat<A, kLanes>(Of::kLifted)) : power;
  const V of_m = twice_artanh<A, kLanes, Of::kTerms>((m - one) / (m + one));
  const V result = power * splat<A, kLanes>(Exp::kLn2High) + (of_m + power * splat<A, kLanes>(Exp::kLn2Low));
  const V or_infinite = x == infinity ? infinity : x == zero ? V(-infinity) : result;
  // Of negative numbers and NaN: NaN.
  return x >= zero ? or_infinite : V(infinity - infinity);
}

// exp(x) - 1 for x <= 0, with the digits of small x: 2^n (e^r - 1) + (2^n - 1), as in exponential.hpp.
template <class A, int kLanes>
ONEHOP_INLINE Vector<A, kLanes> exponential_less_one(Vector<A, kLanes> x) {
  using Of = ExponentialOf<A>;
  using V = Vector<A, kLanes>;
  using Bits = Vector<typename Of::Bits, kLanes>;
  constexpr A kLog2E = A(0x1.71547652b82fep+0);
  // Below this the result is -1 to the last digit. NaN stays.
  const V kept = x < splat<A, kLanes>(-40) ? splat<A, kLanes>(-40) : x;
  const V shifted = kept * splat<A, kLanes>(kLog2E) + splat<A, kLanes>(Of::kRound);
  const V n = shifted - splat<A, kLanes>(Of::kRound);
  const V r = (kept - n * splat<A, kLanes>(Of::kLn2High)) - n * splat<A, kLanes>(Of::kLn2Low);
  const V less_one = r + r * r * exponential_series<A, kLanes, 2>(r);
  const Bits whole = bit_cast<Bits>(shifted) - bit_cast<Bits>(splat<A, kLanes>(Of::kRound));
  const V power = bit_cast<V>(Bits((whole + Of::kBias) << Of::kFraction));
  return power * less_one + (power - splat<A, kLanes>(1));
}

// |x|, also of -0.
template <class A, int kLanes>
ONEHOP_INLINE Vector<A, kLanes> magnitude(Vector<A, kLanes> x) {
  return x <= splat<A, kLanes>(0) ? Vector<A, kLanes>(splat<A, kLanes>(0) - x) : x;
}

template <class A, int kLanes>
ONEHOP_INLINE Vector<A, kLanes> square_root(Vector<A, kLanes> x) {
  if constexpr (kLanes == 1) {
    return __builtin_sqrt(x);
  } else {
    for (int i = 0; i < kLanes; ++i) x[i] = sizeof(A) == 4 ? __builtin_sqrtf(x[i]) : __builtin_sqrt(x[i]);
    return x;
  }
}

template <class A, int kLanes>
ONEHOP_INLINE Vector<A, kLanes> sigmoid(Vector<A, kLanes> x) {
  const Vector<A, kLanes> one = splat<A, kLanes>(1);
  return one / (one + exponential<A, kLanes>(-x));
}

// With t = exp(-2|x|) - 1: -t / (2 + t), and the sign of x.
template <class A, int kLanes>
ONEHOP_INLINE Vector<A, kLanes> hyperbolic_tangent(Vector<A, kLanes> x) {
  using V = Vector<A, kLanes>;
  const V two = splat<A, kLanes>(2);
  const V t = exponential_less_one<A, kLanes>(-two * magnitude<A, kLanes>(x));
  const V result = -t / (two + t);
  return x < splat<A, kLanes>(0) ? V(-result) : result;
}

// c[0] x^n + ... + c[n]
template <class A, int kLanes, int kTerms>
ONEHOP_INLINE Vector<A, kLanes> polynomial(const double (&c)[kTerms], Vector<A, kLanes> x) {
  Vector<A, kLanes> sum = splat<A, kLanes>(A(c[0]));
  for (int i = 1; i < kTerms; ++i) sum = sum * x + splat<A, kLanes>(A(c[i]));
  return sum;
}

// The rational functions of S. L. Moshier's Cephes library (ndtr.c): x T(x^2) / U(x^2) up to 1, and above, with the
// sign of x, 1 - exp(-x^2) P(x) / Q(x), which is 1 to the last digit from 6 on.
template <class A, int kLanes>
ONEHOP_INLINE Vector<A, kLanes> error_function(Vector<A, kLanes> x) {
  using V = Vector<A, kLanes>;
  constexpr double kP[] = {2.46196981473530512524e-10, 5.64189564831068821977e-1, 7.46321056442269912687e0,
                           4.86371970985681366614e1,   1.96520832956077098242e2,  5.26445194995477358631e2,
                           9.34528527171957607540e2,   1.02755188689515710272e3,  5.57535335369399327526e2};
  constexpr double kQ[] = {1.00000000000000000000e0, 1.32281951154744992508e1, 8.67072140885989742329e1,
                           3.54937778887819891062e2, 9.75708501743205489753e2, 1.82390916687909736289e3,
                           2.24633760818710981792e3, 1.65666309194161350182e3, 5.57535340817727675546e2};
  constexpr double kT[] = {9.60497373987051638749e0, 9.00260197203842689217e1, 2.23200534594684319226e3,
                           7.00332514112805075473e3, 5.55923013010394962768e4};
  constexpr double kU[] = {1.00000000000000000000e0, 3.35617141647503099647e1, 5.21357949780152679795e2,
                           4.59432382970980127987e3, 2.26290000613890934246e4, 4.92673942608635921086e4};
  const V zero = splat<A, kLanes>(0), one = splat<A, kLanes>(1), eight = splat<A, kLanes>(8);
  const V size = magnitude<A, kLanes>(x), kept = size > eight ? eight : size, square = kept * kept;
  const V inner = x * polynomial<A, kLanes>(kT, square), outer = exponential<A, kLanes>(-square);
  const V above = size <= one ? inner : V(outer * polynomial<A, kLanes>(kP, kept));
  const V below = size <= one ? polynomial<A, kLanes>(kU, square) : polynomial<A, kLanes>(kQ, kept);
  const V quotient = above / below, rest = one - quotient;
  return size <= one ? quotient : x < zero ? V(-rest) : rest;
}

// log(1 + exp(p x)) / p = (max(p x, 0) + log(1 + exp(-|p x|))) / p; x where p x > q.
template <class A, int kLanes>
ONEHOP_INLINE Vector<A, kLanes> softplus(Vector<A, kLanes> x, A p, A q) {
  using V = Vector<A, kLanes>;
  const V z = x * splat<A, kLanes>(p), zero = splat<A, kLanes>(0);
  const V rest = log_of_one_and<A, kLanes>(exponential<A, kLanes>(-magnitude<A, kLanes>(z)));
  // A NaN is kept by `rest`.
  const V sum = (z > zero ? z : zero) + rest;
  return z > splat<A, kLanes>(q) ? x : V(sum / splat<A, kLanes>(p));
}

}  // namespace ONEHOP_ISA
}  // namespace onehop
