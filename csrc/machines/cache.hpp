// A set-associative cache that replaces the least recently used entry of a set. No prefetching, no writes.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <new>

namespace onehop {

class Cache {
 public:
  Cache(int64_t sets, int32_t ways) : sets_(sets), ways_(ways), entries_(new (std::nothrow) int32_t[sets * ways]) {
    if (entries_ != nullptr) memset(entries_.get(), 0xff, static_cast<size_t>(sets * ways) * sizeof(int32_t));
  }

  bool has_memory() const { return entries_ != nullptr; }
  int64_t sets() const { return sets_; }

  // Return whether `entry`, at least 0, is missing from its set. Afterwards it is the set's most recent one.
  bool misses(int64_t set, int32_t entry) {
    int32_t* recent = entries_.get() + set * ways_;  // most recent first
    int32_t way = 0;
    while (way < ways_ - 1 && recent[way] != entry) ++way;
    const bool missing = recent[way] != entry;
    for (; way > 0; --way) recent[way] = recent[way - 1];
    recent[0] = entry;
    return missing;
  }

 private:
  int64_t sets_;
  int32_t ways_;
  std::unique_ptr<int32_t[]> entries_;
};

}  // namespace onehop
