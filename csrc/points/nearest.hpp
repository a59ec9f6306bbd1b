// The neighbours of one point while they are found.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "onehop/kernels.hpp"
#include "onehop/points.hpp"

namespace onehop {

// Bounds of distances round differently from distances, by far less than this share.
constexpr double kSlack = 1e-9;

class NearestPoints {
 public:
  explicit NearestPoints(const WantedPoints& wanted)
      : wanted_(wanted),
        most_(wanted.most < 0 ? kAll : wanted.most),
        squared_(kRankedPoints),
        numbers_(kRankedPoints) {}

  void begin(int64_t row) {
    self_ = wanted_.omit_self ? row : -1;
    reach_ = wanted_.squared;
    count_ = 0;
    settled_ = most_ == kAll ? kAll : most_ - 1;
  }

  // No point whose squared distance is above it is a neighbour.
  double reach() const { return reach_; }
  bool may_reach(double bound) const { return bound * (1 - kSlack) <= reach_; }

  void offer(double squared, int64_t number) {
    if (!(squared < wanted_.squared) || number == self_) return;
    if (count_ == static_cast<int64_t>(squared_.size())) make_room();
    squared_[count_] = squared;
    numbers_[count_++] = number;
  }

  // Lowers the reach if so many points were offered that it pays.
  void settle() {
    if (count_ <= settled_) return;
    keep_nearest();
    reach_ = squared_[most_ - 1];
    // Ranks of few points take as long as one more node.
    settled_ = most_ <= kRankedPoints / 2 ? most_ : most_ + most_ / 2;
  }

  // Adds the neighbours of the row to a part.
  void finish(int64_t row, FoundPoints::Part* part) {
    keep_nearest();
    part->rows.push_back(row);
    part->counts.push_back(count_);
    part->numbers.insert(part->numbers.end(), numbers_.begin(), numbers_.begin() + count_);
  }

 private:
  static constexpr int64_t kAll = std::numeric_limits<int64_t>::max();

  void make_room() {
    if (count_ / 2 >= most_) {
      keep_nearest();
    } else {
      squared_.resize(2 * count_);
      numbers_.resize(2 * count_);
    }
  }

  // Sorts the points and drops those that are not among the nearest.
  void keep_nearest() {
    if (count_ <= kRankedPoints) {
      kernels().rank_points(squared_.data(), numbers_.data(), count_, most_);
    } else {
      entries_.clear();
      for (int64_t i = 0; i < count_; ++i) entries_.emplace_back(squared_[i], numbers_[i]);
      const auto end = entries_.begin() + std::min(count_, most_);
      if (end != entries_.end()) std::nth_element(entries_.begin(), end, entries_.end());
      std::sort(entries_.begin(), end);
      for (auto entry = entries_.begin(); entry != end; ++entry) {
        squared_[entry - entries_.begin()] = entry->first;
        numbers_[entry - entries_.begin()] = entry->second;
      }
    }
    count_ = std::min(count_, most_);
  }

  WantedPoints wanted_;
  int64_t most_, self_ = -1;
  double reach_ = 0;
  int64_t count_ = 0, settled_ = 0;
  std::vector<double> squared_;
  std::vector<int64_t> numbers_;
  std::vector<std::pair<double, int64_t>> entries_;  // to sort many
};

// The squared distance of two points.
inline double squared_distance(const double* one, const double* other, int64_t dims) {
  double total = 0;
  for (int64_t d = 0; d < dims; ++d) {
    const double difference = one[d] - other[d];
    total += difference * difference;
  }
  return total;
}

}  // namespace onehop
