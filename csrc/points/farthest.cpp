// Farthest points: C. Qi et al., PointNet++ (arXiv 1706.02413), section 3.2.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "each.hpp"
#include "onehop/kernels.hpp"
#include "onehop/points.hpp"

namespace onehop {
namespace {

// The points of a cloud, dimension by dimension, and how far each is from those that are picked.
class Farthest {
 public:
  Farthest(const PointClouds& x, int64_t cloud)
      : count_(x.count(cloud)),
        room_((count_ + kFarthestPoints - 1) / kFarthestPoints * kFarthestPoints),
        dims_(x.dims),
        coordinates_(room_ * dims_, 0.0),
        // Places behind the last point are never the farthest.
        squared_(room_, -1.0) {
    const double* points = x.at(x.bounds[cloud]);
    for (int64_t i = 0; i < count_; ++i) {
      for (int64_t d = 0; d < dims_; ++d) coordinates_[d * room_ + i] = points[i * dims_ + d];
    }
    std::fill_n(squared_.begin(), count_, std::numeric_limits<double>::infinity());
  }

  // The point that is the farthest once this one is picked, too; of several the first. None is picked again, even
  // where all others are at the same place.
  int64_t after(int64_t picked) {
    squared_[picked] = -1.0;
    return kernels().farthest_after(coordinates_.data(), room_, dims_, picked, squared_.data());
  }

 private:
  int64_t count_, room_, dims_;
  std::vector<double> coordinates_, squared_;
};

}  // namespace

void farthest_points(const PointClouds& x, const int64_t* starts, const int64_t* counts, int64_t* picked, int threads) {
  std::vector<int64_t> begins(x.clouds, 0);
  for (int64_t cloud = 1; cloud < x.clouds; ++cloud) begins[cloud] = begins[cloud - 1] + counts[cloud - 1];
  for_each(x.clouds, threads, [&](int64_t cloud) {
    if (counts[cloud] == 0) return;
    Farthest farthest(x, cloud);
    int64_t* next = picked + begins[cloud];
    next[0] = starts[cloud];
    for (int64_t i = 1; i < counts[cloud]; ++i) next[i] = farthest.after(next[i - 1]);
    for (int64_t i = 0; i < counts[cloud]; ++i) next[i] += x.bounds[cloud];
  });
}

}  // namespace onehop
