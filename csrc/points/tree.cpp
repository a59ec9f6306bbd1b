// Nearest points by k-d trees: J. Friedman, J. Bentley, R. Finkel, "An algorithm for finding best matches in
// logarithmic expected time", ACM TOMS 3(3), 1977; with the bounding box of each node instead of its plane.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "each.hpp"
#include "nearest.hpp"
#include "onehop/kernels.hpp"
#include "onehop/points.hpp"

namespace onehop {
namespace {

// Most points of a leaf. In more than a few dimensions a box spares few of them, and costs as much as a block.
constexpr int64_t kFewDims = 4;
int64_t most_of(int64_t dims) { return (dims <= kFewDims ? 2 : 8) * kLeafPoints; }
constexpr int64_t kRowsPerTask = 128;
// Points of a tree that several threads build.
constexpr int64_t kShared = 1 << 14;

// The points of a cloud in leaves of a few blocks. All leaves have the same depth: a node's points are halved at the
// median of their widest dimension. Node 1 is the root, and nodes 2n and 2n + 1 are the children of node n.
class Tree {
 public:
  Tree(const PointClouds& clouds, int64_t cloud, int threads)
      : points_(clouds), first_(clouds.bounds[cloud]), count_(clouds.count(cloud)), dims_(clouds.dims) {
    while ((most_of(dims_) << depth_) < count_) ++depth_;
    const int64_t leaves = int64_t{1} << depth_, largest = (count_ + leaves - 1) / leaves;
    blocks_ = (largest + kLeafPoints - 1) / kLeafPoints;
    order_.resize(count_);
    std::iota(order_.begin(), order_.end(), first_);
    bounds_.resize(leaves + 1);
    bounds_[leaves] = count_;
    boxes_.resize(leaves * 4 * dims_);
    coordinates_.assign(leaves * blocks_ * dims_ * kLeafPoints, std::numeric_limits<double>::infinity());
    // The top of the tree, node after node, then what is below it on all threads.
    std::vector<Range> ranges{{1, 0, count_}};
    while (threads > 1 && count_ >= kShared && static_cast<int64_t>(ranges.size()) < 4 * threads &&
           ranges[0].node < leaves) {
      std::vector<Range> next;
      for (const Range& range : ranges) {
        const int64_t middle = halve(range);
        next.push_back({2 * range.node, range.begin, middle});
        next.push_back({2 * range.node + 1, middle, range.end});
      }
      ranges.swap(next);
    }
    for_each(static_cast<int64_t>(ranges.size()), threads, [&](int64_t task) { build(ranges[task]); });
  }

  // The cloud's points in the order of the leaves.
  const std::vector<int64_t>& order() const { return order_; }

  void search(const double* point, NearestPoints* nearest) const {
    if (count_ > 0) visit(1, 0, point, nearest);
  }

 private:
  struct Range {
    int64_t node, begin, end;
  };
  struct Key {
    double value;
    int64_t number;
    bool operator<(const Key& other) const { return value < other.value; }
  };

  // The box of some points: their least coordinates, then their largest, `step` apart.
  void measure(int64_t begin, int64_t end, double* box, int64_t step) const {
    for (int64_t d = 0; d < dims_; ++d) {
      double least = std::numeric_limits<double>::infinity(), largest = -least;
      for (int64_t i = begin; i < end; ++i) {
        const double value = points_.at(order_[i])[d];
        least = std::min(least, value);
        largest = std::max(largest, value);
      }
      box[2 * d * step] = least;
      box[(2 * d + 1) * step] = largest;
    }
  }

  // Sorts the points of a node into those of its two children, and measures the children. Returns where the second's
  // begin.
  int64_t halve(const Range& range) {
    std::vector<double> box(2 * dims_);
    measure(range.begin, range.end, box.data(), 1);
    int64_t widest = 0;
    for (int64_t d = 1; d < dims_; ++d) {
      if (box[2 * d + 1] - box[2 * d] > box[2 * widest + 1] - box[2 * widest]) widest = d;
    }
    std::vector<Key> keys;
    keys.reserve(range.end - range.begin);
    for (int64_t i = range.begin; i < range.end; ++i) keys.push_back({points_.at(order_[i])[widest], order_[i]});
    const int64_t half = (range.end - range.begin) / 2;
    std::nth_element(keys.begin(), keys.begin() + half, keys.end());
    for (int64_t i = range.begin; i < range.end; ++i) order_[i] = keys[i - range.begin].number;
    const int64_t middle = range.begin + half;
    measure(range.begin, middle, box_of(range.node), 2);
    measure(middle, range.end, box_of(range.node) + 1, 2);
    return middle;
  }

  void build(const Range& range) {
    const int64_t leaves = int64_t{1} << depth_;
    if (range.node >= leaves) {
      const int64_t leaf = range.node - leaves;
      bounds_[leaf] = range.begin;
      for (int64_t i = range.begin; i < range.end; ++i) {
        const int64_t block = leaf * blocks_ + (i - range.begin) / kLeafPoints, place = (i - range.begin) % kLeafPoints;
        for (int64_t d = 0; d < dims_; ++d) {
          coordinates_[(block * dims_ + d) * kLeafPoints + place] = points_.at(order_[i])[d];
        }
      }
      return;
    }
    const int64_t middle = halve(range);
    build({2 * range.node, range.begin, middle});
    build({2 * range.node + 1, middle, range.end});
  }

  // For each dimension the least coordinate of each child of the node, then the largest.
  double* box_of(int64_t node) { return boxes_.data() + node * 4 * dims_; }
  const double* box_of(int64_t node) const { return boxes_.data() + node * 4 * dims_; }

  void visit(int64_t node, int level, const double* point, NearestPoints* nearest) const {
    if (level == depth_) {
      scan(node - (int64_t{1} << depth_), point, nearest);
      return;
    }
    const double* box = box_of(node);
    double squared[2] = {0, 0};
    for (int64_t d = 0; d < dims_; ++d, box += 4) {
      for (int child = 0; child < 2; ++child) {
        const double outside = std::max(std::max(box[child] - point[d], point[d] - box[2 + child]), 0.0);
        squared[child] += outside * outside;
      }
    }
    const int near = squared[1] < squared[0];
    if (nearest->may_reach(squared[near])) visit(2 * node + near, level + 1, point, nearest);
    if (nearest->may_reach(squared[1 - near])) visit(2 * node + 1 - near, level + 1, point, nearest);
  }

  void scan(int64_t leaf, const double* point, NearestPoints* nearest) const {
    double squared[kLeafPoints];
    for (int64_t begin = bounds_[leaf], block = leaf * blocks_; begin < bounds_[leaf + 1];
         begin += kLeafPoints, ++block) {
      uint32_t near =
          distances_(coordinates_.data() + block * dims_ * kLeafPoints, point, dims_, nearest->reach(), squared);
      // Places behind the leaf's last point are infinitely far, and the reach may be as well.
      const int64_t count = bounds_[leaf + 1] - begin;
      if (count < kLeafPoints) near &= (1U << count) - 1;
      for (; near != 0; near &= near - 1) {
        const int i = std::countr_zero(near);
        nearest->offer(squared[i], order_[begin + i]);
      }
      nearest->settle();
    }
  }

  const PointClouds& points_;
  int64_t first_, count_, dims_, blocks_ = 0;
  decltype(KernelTable::leaf_distances) distances_ = kernels().leaf_distances;
  int depth_ = 0;
  std::vector<int64_t> order_;
  std::vector<int64_t> bounds_;      // [leaves + 1], of the leaves in order_
  std::vector<double> boxes_;        // [leaves, dims, 4], of the children of each inner node
  std::vector<double> coordinates_;  // [leaves, blocks, dims, kLeafPoints]
};

std::vector<Tree> trees_of(const PointClouds& clouds, int threads) {
  std::vector<Tree> trees;
  trees.reserve(clouds.clouds);
  for (int64_t cloud = 0; cloud < clouds.clouds; ++cloud) trees.emplace_back(clouds, cloud, threads);
  return trees;
}

}  // namespace

void search_trees(const PointClouds& x, const PointClouds& y, const WantedPoints& wanted, FoundPoints* found,
                  int threads) {
  const std::vector<Tree> trees = trees_of(x, threads);
  // Points that are near each other are looked up one after the other: they visit the same nodes.
  std::vector<int64_t> order;
  order.reserve(y.count());
  const bool same = x.points == y.points && std::equal(x.bounds, x.bounds + x.clouds + 1, y.bounds);
  const std::vector<Tree> others = same ? std::vector<Tree>() : trees_of(y, threads);
  for (const Tree& tree : same ? trees : others) order.insert(order.end(), tree.order().begin(), tree.order().end());
  const int64_t tasks = (y.count() + kRowsPerTask - 1) / kRowsPerTask;
  FoundPoints::Part* parts = found->add(tasks);
  for_each(tasks, threads, [&](int64_t task) {
    NearestPoints nearest(wanted);
    int64_t place = task * kRowsPerTask;
    const int64_t end = std::min(place + kRowsPerTask, y.count());
    int64_t cloud = std::upper_bound(y.bounds, y.bounds + y.clouds + 1, place) - y.bounds - 1;
    for (; place < end; ++place) {
      while (place >= y.bounds[cloud + 1]) ++cloud;
      const int64_t row = order[place];
      nearest.begin(row);
      trees[cloud].search(y.at(row), &nearest);
      nearest.finish(row, parts + task);
    }
  });
}

}  // namespace onehop
