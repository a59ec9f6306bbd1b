// The numbers that nodes have in a batch, found by the nodes.
#pragma once

#include <bit>
#include <cstdint>
#include <memory>

namespace onehop {

// A hash table with linear probing, at most half full. Entries of earlier batches count as empty, so nothing is cleared
// between batches, and the memory is kept.
class NodeTable {
 public:
  // A node in a tree; without trees, of tree 0.
  static uint64_t key_of(int64_t tree, int64_t node) {
    return static_cast<uint64_t>(tree) << 32 | static_cast<uint64_t>(node);
  }

  void begin() {
    count_ = 0;
    if (++round_ == 0) {
      for (uint64_t i = 0; i < capacity_; ++i) slots_[i].round = 0;
      round_ = 1;
    }
    if (capacity_ == 0) allocate(1024);
  }

  void prefetch(uint64_t key) const { __builtin_prefetch(&slots_[place(key)], 1); }

  // The number of the node: `next`, and true, if it was not there yet.
  std::pair<int32_t, bool> insert(uint64_t key, int32_t next) {
    if (2 * (count_ + 1) > capacity_) grow();
    uint64_t at = place(key);
    while (slots_[at].round == round_) {
      if (slots_[at].key == key) return {slots_[at].number, false};
      at = (at + 1) & (capacity_ - 1);
    }
    slots_[at] = {key, next, round_};
    ++count_;
    return {next, true};
  }

  // The number of the node, or -1.
  int32_t find(uint64_t key) const {
    for (uint64_t at = place(key); slots_[at].round == round_; at = (at + 1) & (capacity_ - 1)) {
      if (slots_[at].key == key) return slots_[at].number;
    }
    return -1;
  }

 private:
  struct Slot {
    uint64_t key;
    int32_t number;
    uint32_t round;
  };

  // Multiplicative hashing: D. Knuth, The Art of Computer Programming, vol. 3, 6.4; the factor is 2^64 over the golden
  // ratio.
  uint64_t place(uint64_t key) const { return (key ^ key >> 32) * 0x9e3779b97f4a7c15ULL >> shift_; }

  void allocate(uint64_t capacity) {
    slots_ = std::make_unique<Slot[]>(capacity);
    capacity_ = capacity;
    shift_ = 64 - std::countr_zero(capacity);
  }

  void grow() {
    const auto old = std::move(slots_);
    const uint64_t old_capacity = capacity_;
    allocate(2 * old_capacity);
    for (uint64_t i = 0; i < old_capacity; ++i) {
      if (old[i].round != round_) continue;
      uint64_t at = place(old[i].key);
      while (slots_[at].round == round_) at = (at + 1) & (capacity_ - 1);
      slots_[at] = old[i];
    }
  }

  std::unique_ptr<Slot[]> slots_;
  uint64_t capacity_ = 0, count_ = 0;
  int shift_ = 0;
  uint32_t round_ = 0;
};

}  // namespace onehop
