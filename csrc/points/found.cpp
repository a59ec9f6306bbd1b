// Pairs that a search found, in the order of their rows.
#include <algorithm>
#include <cstdint>
#include <numeric>

#include "each.hpp"
#include "onehop/points.hpp"

namespace onehop {
namespace {

// Pairs that several threads write.
constexpr int64_t kShared = 1 << 16;

}  // namespace

FoundPoints::Part* FoundPoints::add(int64_t parts) {
  const size_t before = parts_.size();
  parts_.resize(before + parts);
  return parts_.data() + before;
}

int64_t FoundPoints::pairs() const {
  int64_t total = 0;
  for (const Part& part : parts_) total += static_cast<int64_t>(part.numbers.size());
  return total;
}

void FoundPoints::write(int64_t rows, int64_t* bounds, int64_t* numbers, int64_t* of, int threads) const {
  std::fill(bounds, bounds + rows + 1, 0);
  for (const Part& part : parts_) {
    for (size_t i = 0; i < part.rows.size(); ++i) bounds[part.rows[i] + 1] = part.counts[i];
  }
  std::partial_sum(bounds, bounds + rows + 1, bounds);
  for_each(static_cast<int64_t>(parts_.size()), bounds[rows] < kShared ? 1 : threads, [&](int64_t task) {
    const Part& part = parts_[task];
    auto next = part.numbers.begin();
    for (size_t i = 0; i < part.rows.size(); ++i) {
      const int64_t row = part.rows[i], at = bounds[row];
      std::copy_n(next, part.counts[i], numbers + at);
      next += part.counts[i];
      if (of != nullptr) std::fill_n(of + at, part.counts[i], row);
    }
  });
}

}  // namespace onehop
