// Sums of weights along rows, for draws with replacement.
#include "state.hpp"

namespace onehop {

void running_sums(const int64_t* rowptr, int64_t rows, const double* weight, double* running, int threads) {
  over_rows(rows, threads, [&](int64_t begin, int64_t end, int) {
    for (int64_t row = begin; row < end; ++row) {
      double sum = 0;
      for (int64_t e = rowptr[row]; e < rowptr[row + 1]; ++e) running[e] = sum += weight[e];
    }
  });
}

}  // namespace onehop
