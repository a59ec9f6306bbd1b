// The requests that wait, by bank: which of a bank's is the oldest to its open row, and which the oldest to another.
#pragma once

#include <cstdint>
#include <memory>

#include "dram_device.hpp"

namespace onehop::dram {

struct Request {
  int64_t arrival;  // no two arrive in one clock, so this is an order as well
  int64_t bank, row, column;
  int32_t before, after;  // in the list of its bank and kind, -1 at the ends
  int kind;
  bool counted;  // as hit, miss or conflict
};

inline constexpr int32_t kNone = -1;

// The waiting requests of one kind.
struct Queue {
  int64_t size = 0;
  int32_t head[kMostRanks * kMostBanks], tail[kMostRanks * kMostBanks];
  // The oldest to the open row, and the oldest other; in a closed bank all are others. kNone where there is none.
  int32_t hit[kMostRanks * kMostBanks], other[kMostRanks * kMostBanks];
  int64_t hit_age[kMostRanks * kMostBanks], other_age[kMostRanks * kMostBanks];  // their arrivals
  uint64_t hits[kMostRanks] = {}, others[kMostRanks] = {};                       // banks that have one, a bit each

  Queue() {
    for (int64_t i = 0; i < kMostRanks * kMostBanks; ++i) head[i] = tail[i] = hit[i] = other[i] = kNone;
  }

  void push(Request* all, int32_t it, int64_t open_row) {
    Request& request = all[it];
    const int64_t bank = request.bank;
    request.before = tail[bank];
    request.after = kNone;
    (tail[bank] == kNone ? head[bank] : all[tail[bank]].after) = it;
    tail[bank] = it;
    ++size;
    if (request.row == open_row) {
      if (hit[bank] == kNone) set_hit(all, bank, it);
    } else if (other[bank] == kNone) {
      set_other(all, bank, it);
    }
  }

  void remove(Request* all, int32_t it, int64_t open_row) {
    const Request& request = all[it];
    const int64_t bank = request.bank;
    (request.before == kNone ? head[bank] : all[request.before].after) = request.after;
    (request.after == kNone ? tail[bank] : all[request.after].before) = request.before;
    --size;
    if (hit[bank] == it) {
      int32_t next = request.after;
      while (next != kNone && all[next].row != open_row) next = all[next].after;
      set_hit(all, bank, next);
    }
    if (other[bank] == it) {
      int32_t next = request.after;
      while (next != kNone && all[next].row == open_row) next = all[next].after;
      set_other(all, bank, next);
    }
  }

  // The bank's row was opened or closed.
  void row_changed(Request* all, int64_t bank, int64_t open_row) {
    int32_t to_row = kNone, to_other = kNone;
    for (int32_t it = head[bank]; it != kNone && (to_row == kNone || to_other == kNone); it = all[it].after) {
      int32_t& found = all[it].row == open_row ? to_row : to_other;
      if (found == kNone) found = it;
    }
    set_hit(all, bank, to_row);
    set_other(all, bank, to_other);
  }

  // Whether a request to this very burst waits.
  bool holds(const Request* all, int64_t bank, int64_t row, int64_t column) const {
    for (int32_t it = head[bank]; it != kNone; it = all[it].after) {
      if (all[it].row == row && all[it].column == column) return true;
    }
    return false;
  }

 private:
  static void set(uint64_t& banks, int64_t bank, bool there) {
    banks = there ? banks | Device::bit(bank) : banks & ~Device::bit(bank);
  }
  void set_hit(const Request* all, int64_t bank, int32_t it) {
    hit[bank] = it;
    if (it != kNone) hit_age[bank] = all[it].arrival;
    set(hits[Device::rank_of(bank)], bank, it != kNone);
  }
  void set_other(const Request* all, int64_t bank, int32_t it) {
    other[bank] = it;
    if (it != kNone) other_age[bank] = all[it].arrival;
    set(others[Device::rank_of(bank)], bank, it != kNone);
  }
};

}  // namespace onehop::dram
