// The four number types, to and from double, by arithmetic that shares nothing with the kernels.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "onehop/kernels.hpp"

// Numbers of 16 bits: a sign, an exponent, and kFraction bits of fraction. Encodes what it holds exactly.
template <int kFraction>
struct Small {
  uint16_t bits;

  static constexpr int kExponent = 15 - kFraction;
  static constexpr int kBias = (1 << (kExponent - 1)) - 1;

  static Small of(double value) {
    if (std::isnan(value)) return {static_cast<uint16_t>(0x7fff)};
    const int sign = std::signbit(value) ? 0x8000 : 0;
    if (value == 0) return {static_cast<uint16_t>(sign)};
    int exponent = 0;
    const double fraction = std::frexp(std::fabs(value), &exponent) * 2 - 1;  // value = (1 + fraction) 2^(exponent - 1)
    const int biased = exponent - 1 + kBias;
    return {static_cast<uint16_t>(sign | biased << kFraction | static_cast<int>(std::ldexp(fraction, kFraction)))};
  }

  double value() const {
    const int fraction = bits & ((1 << kFraction) - 1);
    const int biased = (bits >> kFraction) & ((1 << kExponent) - 1);
    const double sign = bits & 0x8000 ? -1 : 1;
    if (biased == (1 << kExponent) - 1) return fraction != 0 ? NAN : sign * INFINITY;
    if (biased == 0) return sign * std::ldexp(fraction, 1 - kBias - kFraction);
    return sign * std::ldexp((1 << kFraction) + fraction, biased - kBias - kFraction);
  }
};

using Bfloat16 = Small<7>;
using Float16 = Small<10>;

template <class T>
struct Number {
  using Acc = float;
  static T of(double value) { return T::of(value); }
  static double value(T stored) { return stored.value(); }
};
template <>
struct Number<float> {
  using Acc = float;
  static float of(double value) { return static_cast<float>(value); }
  static double value(float stored) { return stored; }
};
template <>
struct Number<double> {
  using Acc = double;
  static double of(double value) { return value; }
  static double value(double stored) { return stored; }
};

// The number's name, its code, and the error that one rounding makes (relative, doubled for safety).
template <class T>
struct Kind;
template <>
struct Kind<float> {
  static constexpr const char* kName = "float32";
  static constexpr auto kCode = onehop::DType::float32;
  static constexpr double kRounding = 0x1p-23;
};
template <>
struct Kind<double> {
  static constexpr const char* kName = "float64";
  static constexpr auto kCode = onehop::DType::float64;
  static constexpr double kRounding = 0x1p-52;
};
template <>
struct Kind<Bfloat16> {
  static constexpr const char* kName = "bfloat16";
  static constexpr auto kCode = onehop::DType::bfloat16;
  static constexpr double kRounding = 0x1p-8;
};
template <>
struct Kind<Float16> {
  static constexpr const char* kName = "float16";
  static constexpr auto kCode = onehop::DType::float16;
  static constexpr double kRounding = 0x1p-11;
};
