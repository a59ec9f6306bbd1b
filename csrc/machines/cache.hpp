// A set-associative cache that replaces the least recently used entry of a set.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace onehop {

class Cache {
 public:
  Cache(int64_t sets, int32_t ways) : ways_(ways), entries_(static_cast<size_t>(sets * ways), -1) {}

  // Return whether `entry`, at least 0, is missing from its set. Afterwards it is the set's most recent one.
  bool misses(int64_t set, int32_t entry) {
    int32_t* recent = entries_.data() + set * ways_;  // most recent first
    int32_t moved = entry;
    for (int32_t way = 0; way < ways_; ++way) {
      std::swap(moved, recent[way]);
      if (moved == entry) return false;
    }
    return true;
  }

 private:
  int32_t ways_;
  std::vector<int32_t> entries_;
};

}  // namespace onehop
