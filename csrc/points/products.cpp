// Nearest points by products: |x - y|^2 = |x|^2 + |y|^2 - 2 xy tells which points may be neighbours, and their
// distances which are.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <queue>
#include <vector>

#include "each.hpp"
#include "nearest.hpp"
#include "onehop/kernels.hpp"
#include "onehop/points.hpp"

namespace onehop {
namespace {

constexpr int64_t kRowsPerTask = 8;

// Bounds of the squared distances between one point and all points of a cloud, off by at most `share` of the sum of the
// squared norms.
class Bounds {
 public:
  Bounds(const PointProducts& block, int64_t row, int64_t count)
      : bounds_{block.products + row * count, block.norms_x, block.norms_y[row]}, count_(count) {}

  double at(int64_t i, double share) const {
    return (bounds_.norms[i] + bounds_.norm) * share - 2 * bounds_.products[i];
  }

  // Calls body(i) for the points that are not above a limit, which the body may lower.
  template <class Body>
  void within(double share, const double& limit, Body&& body) const {
    const auto next = kernels().next_within;
    for (int64_t i = next(bounds_, share, limit, 0, count_); i < count_;
         i = next(bounds_, share, limit, i + 1, count_)) {
      body(i);
    }
  }

 private:
  ProductBounds bounds_;
  int64_t count_;
};

// A squared distance that so many points are not above, by their upper bounds.
double reach_of(const Bounds& bounds, int64_t most, double share) {
  double reach = std::numeric_limits<double>::infinity();
  std::priority_queue<double> least;
  bounds.within(share, reach, [&](int64_t i) {
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
      // The point itself may be among them.
      const int64_t most = wanted.most + wanted.omit_self;
      if (wanted.most >= 0 && most < count) limit = std::min(limit, reach_of(bounds, most, 1 + block.error));
      nearest.begin(number);
      bounds.within(1 - block.error, limit, [&](int64_t i) {
        nearest.offer(squared_distance(x.at(first + i), y.at(number), x.dims), first + i);
      });
      nearest.finish(number, parts + task);
    }
  });
}

}  // namespace onehop
