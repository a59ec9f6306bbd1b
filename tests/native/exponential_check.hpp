// The largest errors of the kernels' exponential, in units in the last place, over all counts of lanes.
#pragma once

struct ExponentialErrors {
  double of_float, of_double;
};

ExponentialErrors exponential_errors_of_portable();
#if defined(ONEHOP_HAS_AVX2)
ExponentialErrors exponential_errors_of_avx2();
#endif
#if defined(ONEHOP_HAS_AVX512)
ExponentialErrors exponential_errors_of_avx512();
#endif
#if defined(ONEHOP_HAS_NEON)
ExponentialErrors exponential_errors_of_neon();
#endif
