// How far the kernels' exponential is from the C library's in long double; compiled once per instruction set.
#include "exponential_check.hpp"

#include <cmath>

#include "exponential.hpp"

#define ONEHOP_JOIN_OF(a, b) a##b
#define ONEHOP_JOIN(a, b) ONEHOP_JOIN_OF(a, b)

namespace onehop {
inline namespace ONEHOP_ISA {
namespace {

template <class A>
A infinity() {
  return static_cast<A>(__builtin_huge_val());
}

// In units of the last place of the exact value; infinity where one is a number and the other is not.
template <class A>
double error_of(A x, A got) {
  const long double exact = std::exp(static_cast<long double>(x));
  const A want = static_cast<A>(exact);
  if (want != want || want == infinity<A>()) return got == want || (want != want && got != got) ? 0 : HUGE_VAL;
  const long double unit = static_cast<long double>(std::nextafter(want, infinity<A>())) - want;
  const double error = static_cast<double>(std::fabs(static_cast<long double>(got) - exact) / unit);
  return error == error ? error : HUGE_VAL;
}

template <class A, int kLanes>
double worst_of(double from, double to, double worst) {
  constexpr int kSteps = 20000;
  for (int i = 0; i < kSteps; ++i) {
    A x[kLanes], got[kLanes];
    for (int lane = 0; lane < kLanes; ++lane) {
      x[lane] = static_cast<A>(from + (to - from) * (i * kLanes + lane) / (kSteps * kLanes));
    }
    store<A, kLanes>(got, exponential<A, kLanes>(load<A, kLanes>(x)));
    for (int lane = 0; lane < kLanes; ++lane) worst = std::fmax(worst, error_of(x[lane], got[lane]));
  }
  return worst;
}

template <class A, int kLanes>
double worst_of_lanes(double lowest, double highest) {
  double worst = worst_of<A, kLanes>(lowest, highest, 0);
  worst = worst_of<A, kLanes>(-1, 1, worst);
  const A wide = infinity<A>();
  const A special[] = {-wide, wide, A(NAN), A(0), A(-0.0), A(-1e30), A(1e30), A(lowest), A(highest)};
  for (const A x : special) {
    A got[kLanes];
    store<A, kLanes>(got, exponential<A, kLanes>(splat<A, kLanes>(x)));
    for (const A result : got) worst = std::fmax(worst, error_of(x, result));
  }
  if constexpr (kLanes > 1) worst = std::fmax(worst, worst_of_lanes<A, kLanes / 2>(lowest, highest));
  return worst;
}

}  // namespace
}  // namespace ONEHOP_ISA
}  // namespace onehop

ExponentialErrors ONEHOP_JOIN(exponential_errors_of_, ONEHOP_ISA)() {
  using onehop::kVectorBytes;
  return {onehop::worst_of_lanes<float, kVectorBytes / 4>(-110, 95),
          onehop::worst_of_lanes<double, kVectorBytes / 8>(-760, 720)};
}
