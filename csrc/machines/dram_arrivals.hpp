// Requests to come, and the place of each: rank, bank group, bank, row and column.
#pragma once

#include <algorithm>
#include <cstdint>

#include "dram_device.hpp"

namespace onehop::dram {

struct Arrival {
  int64_t bank, row, column;
  int kind;
  bool may_merge;  // whether a write to the same burst waited when it became the next to come
};

// Bursts in the order of their arrival.
class Arrivals {
 public:
  Arrivals(const Layout& layout, const Controller& controller, const int64_t* bursts, const uint8_t* writes,
           int64_t count)
      : layout_(layout), controller_(controller), bursts_(bursts), writes_(writes), count_(count) {}

  bool any_left() const { return taken_ < count_; }

  // The next one; whether it may merge is for the caller to say.
  Arrival take() {
    const int64_t at = taken_ % kBlock;
    if (at == 0) decode(bursts_ + taken_, std::min(kBlock, count_ - taken_));
    const int64_t bank = fields_[0][at] * kMostBanks + fields_[1][at] * controller_.banks_per_group + fields_[2][at];
    return {bank, fields_[3][at], fields_[4][at], writes_[taken_++] ? kWrites : kReads, false};
  }

 private:
  // The place of a block of bursts, field by field, which is several times as fast as burst by burst.
  void decode(const int64_t* __restrict bursts, int64_t count) {
    for (int64_t f = 0; f < 5; ++f) std::fill(fields_[f], fields_[f] + count, 0);
    for (int64_t i = 0; i < layout_.count; ++i) {
      const Slice s = layout_.slices[i];
      int64_t* __restrict field = fields_[s.field];
      const int64_t mask = (int64_t{1} << s.bits) - 1;
      for (int64_t at = 0; at < count; ++at) field[at] |= ((bursts[at] >> s.shift) & mask) << s.place;
    }
    if (!layout_.xor_column) return;
    for (int64_t f = 0, used = 0; f < 4; used += layout_.widths[f++]) {
      const int64_t mask = (int64_t{1} << layout_.widths[f]) - 1;
      for (int64_t at = 0; at < count; ++at) fields_[f][at] ^= (fields_[4][at] >> used) & mask;
    }
  }

  const Layout& layout_;
  const Controller& controller_;
  const int64_t* bursts_;
  const uint8_t* writes_;
  const int64_t count_;
  int64_t taken_ = 0;
  static constexpr int64_t kBlock = 256;
  int64_t fields_[5][kBlock];  // of a block, as Slice::field
};

}  // namespace onehop::dram
