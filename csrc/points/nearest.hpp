// The neighbours of one point while they are found.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "onehop/points.hpp"

namespace onehop {

// Bounds of distances round differently from distances, by far less than this share.
constexpr double kSlack = 1e-9;

class NearestPoints {
 public:
  explicit NearestPoints(const WantedPoints& wanted)
      : wanted_(wanted), most_(wanted.most < 0 ? std::numeric_limits<size_t>::max() : wanted.most) {}

  void begin(int64_t row) {
    self_ = wanted_.omit_self ? row : -1;
    reach_ = wanted_.squared;
    found_.clear();
  }

  // No point whose squared distance is above it is a neighbour.
  double reach() const { return reach_; }
  bool may_reach(double bound) const { return bound * (1 - kSlack) <= reach_; }

  void offer(double squared, int64_t number) {
    if (!(squared < wanted_.squared) || number == self_) return;
    const Entry entry{squared, number};
    if (found_.size() < most_) {
      found_.push_back(entry);
      if (found_.size() < most_) return;
      std::make_heap(found_.begin(), found_.end());
    } else if (entry < found_.front()) {
      replace_farthest(entry);
    } else {
      return;
    }
    reach_ = found_.front().first;
  }

  // Adds the neighbours of the row to a part.
  void finish(int64_t row, FoundPoints::Part* part) {
    std::sort(found_.begin(), found_.end());
    part->rows.push_back(row);
    part->counts.push_back(static_cast<int64_t>(found_.size()));
    for (const Entry& entry : found_) part->numbers.push_back(entry.second);
  }

 private:
  using Entry = std::pair<double, int64_t>;  // squared distance, number

  void replace_farthest(const Entry& entry) {
    const size_t size = found_.size();
    size_t at = 0;
    for (size_t child = 1; child < size; child = 2 * at + 1) {
      if (child + 1 < size && found_[child] < found_[child + 1]) ++child;
      if (!(entry < found_[child])) break;
      found_[at] = found_[child];
      at = child;
    }
    found_[at] = entry;
  }

  WantedPoints wanted_;
  size_t most_;
  int64_t self_ = -1;
  double reach_ = 0;
  std::vector<Entry> found_;  // a heap with the farthest first once it is full
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
