// Nearest points by products: |x - y|^2 = |x|^2 + |y|^2 - 2 xy tells which points may be neighbours, and their
// distances which are.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <queue>
#include <vector>

#include "each.hpp"
#include "nearest.hpp"
#include "onehop/points.hpp"

namespace onehop {
namespace {

constexpr int64_t kRowsPerTask = 8;
constexpr int64_t kAtOnce = 16;

// Bounds of the squared distances between one point and all points of a cloud.
class Bounds {
 public:
  Bounds(const PointProducts& block, int64_t row, int64_t count)
      : products_(block.products + row * count), norms_(block.norms_x), norm_(block.norms_y[row]) {}

  // The squared distance is off by at most `share` of the sum of the squared norms.
  double at(int64_t i, double share) const { return (norms_[i] + norm_) * share - 2 * products_[i]; }

  // Calls body(i) for the points below a limit, which the body may lower.
  template <class Body>
  void below(int64_t count, double share, const double& limit, Body&& body) const {
    int64_t i = 0;
    for (; i + kAtOnce <= count; i += kAtOnce) {
      int some = 0;
      for (int64_t j = 0; j < kAtOnce; ++j) some |= at(i + j, share) <= limit;
      for (int64_t j = 0; some && j < kAtOnce; ++j) {
        if (at(i + j, share) <= limit) body(i + j);
      }
    }
    for (; i < count; ++i) {
      if (at(i, share) <= limit) body(i);
    }
  }

 private:
  const double* products_;
  const double* norms_;
  double norm_;
};

// A squared distance that so many points are not above, by their upper bounds.
double reach_of(const Bounds& bounds, int64_t count, int64_t most, double share) {
  double reach = std::numeric_limits<double>::infinity();
  if (most >= count) return reach;
  std::priority_queue<double> least;
  bounds.below(count, share, reach, [&](int64_t i) {
    least.push(bounds.at(i, share));
    if (static_cast<int64_t>(least.size()) > most) least.pop();
    if (static_cast<int64_t>(least.size()) == most) reach = least.top();
  });
  return reach;
}

}  // namespace

void search_products(const PointClouds& x, const PointClouds& y, const PointProducts& block, const WantedPoints& wanted,
                     FoundPoints* found, int threads) {
  const int64_t first = x.bounds[block.cloud], count = x.count(block.cloud);
  const int64_t tasks = (block.rows + kRowsPerTask - 1) / kRowsPerTask;
  FoundPoints::Part* parts = found->add(tasks);
  for_each(tasks, threads, [&](int64_t task) {
    NearestPoints nearest(wanted);
    const int64_t end = std::min((task + 1) * kRowsPerTask, block.rows);
    for (int64_t row = task * kRowsPerTask; row < end; ++row) {
      const int64_t number = block.first + row;
      const Bounds bounds(block, row, count);
      double limit = wanted.squared;
      if (wanted.most >= 0) {
        // The point itself may be among them.
        limit = std::min(limit, reach_of(bounds, count, wanted.most + wanted.omit_self, 1 + block.error));
      }
      nearest.begin(number);
      bounds.below(count, 1 - block.error, limit, [&](int64_t i) {
        nearest.offer(squared_distance(x.at(first + i), y.at(number), x.dims), first + i);
      });
      nearest.finish(number, parts + task);
    }
  });
}

}  // namespace onehop
