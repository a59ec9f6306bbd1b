// The requests in the controller, in the order of their arrival, and the next command that each of them needs.
#pragma once

#include <cstdint>
#include <memory>

#include "dram_device.hpp"

namespace onehop::dram {

inline constexpr int64_t kNever = int64_t{1} << 43;  // a clock that no run reaches
inline constexpr int32_t kNone = -1;

struct Request {
  int64_t arrival, row, column;
  int32_t bank;
  int32_t before, after;  // positions in the list of its bank and kind, kNone at the ends
  uint8_t kind;
  bool counted;  // as hit, miss or conflict
};

// Twice the number of requests that fit: two queues, and a request a bank.
inline constexpr int64_t kMostQueue = 256;
inline constexpr int64_t kMostPlaces = 2 * (2 * kMostQueue + kMostRanks * kMostBanks);

// A set of places, one bit each, and the first of them. None of them is ready before `floor`. A known first remains
// valid, while `known`, until the clock passes `first_ready`; one that was added since must be compared.
struct Places {
  uint64_t words[kMostPlaces / 64] = {};
  int64_t count = 0, floor = 0;
  bool known = false;
  int32_t first = kNone, added = kNone;
  int64_t first_ready = 0;

  void add(int32_t place, int64_t ready) {
    uint64_t& word = words[place >> 6];
    const uint64_t bit = uint64_t{1} << (place & 63);
    floor = std::min(floor, ready);
    if (word & bit) return;
    word |= bit;
    ++count;
    known &= added == kNone;
    added = place;
  }
  void drop(int32_t place) {
    uint64_t& word = words[place >> 6];
    const uint64_t bit = uint64_t{1} << (place & 63);
    if (!(word & bit)) return;
    word &= ~bit;
    --count;
    known &= first != place;
    if (added == place) added = kNone;
  }
  void clear(int32_t end_word) {
    std::fill(words, words + end_word, 0);
    count = 0;
    known = false;
  }
};

// Requests are stored at places in the order of arrival; when the places are used up, the gaps are closed. Of the
// requests of a kind to a bank, at most two matter: the oldest to the open row, and the oldest to another row.
class Waiting {
 public:
  int64_t size[2] = {0, 0};              // requests in the queues
  Places hits[2];                        // need a row that is open
  Places closers[2];                     // need a row closed
  Places openers[2];                     // need a row opened
  Places opened[2];                      // had their row opened, and left the queue
  int32_t first_word = 0, end_word = 0;  // range of used places
  int begin_kind = 2, end_kind = 0;      // range of used kinds

  Waiting(const Device& device, int64_t queue)
      : device_(device),
        // Half of them are free after gaps were closed.
        places_((2 * (2 * queue + device.ranks * device.banks) + 63) / 64 * 64),
        requests_(std::make_unique<Request[]>(places_)),
        banks_(std::make_unique<Bank[]>(kMostRanks * kMostBanks)) {}

  bool empty() const { return size[0] + size[1] + opened[0].count + opened[1].count == 0; }
  Request& operator[](int32_t place) { return requests_[place]; }
  int64_t bank_of(int32_t place) const { return bank_of_[place]; }
  int32_t opened_for(int64_t bank) const { return banks_[bank].opened_for; }
  // Whether an older request needs the row that this one would close.
  bool has_older_hit(const Request& request) const {
    const Bank& bank = banks_[request.bank];
    const int32_t hit = bank.hit[request.kind];
    return hit != kNone && hit < bank.other[request.kind];
  }

  void push(int64_t arrival, int64_t bank, int64_t row, int64_t column, int kind) {
    if (end_ == places_) close_gaps();
    const int32_t place = end_++;
    requests_[place] = {arrival, row, column, static_cast<int32_t>(bank), kNone, kNone, static_cast<uint8_t>(kind),
                        false};
    bank_of_[place] = static_cast<int32_t>(bank);
    all_.add(place, 0);
    first_word = std::min(first_word, place / 64);
    end_word = place / 64 + 1;
    ++size[kind];
    begin_kind = std::min(begin_kind, kind);
    end_kind = std::max(end_kind, kind + 1);
    append(place);
  }

  // Whether a request of the kind to this burst waits.
  bool holds(int kind, int64_t bank, int64_t row, int64_t column) const {
    for (int32_t it = banks_[bank].head[kind]; it != kNone; it = requests_[it].after) {
      if (requests_[it].row == row && requests_[it].column == column) return true;
    }
    return false;
  }

  // A row was opened for a request, which leaves its queue.
  void row_opened(int32_t place) {
    const Request& request = requests_[place];
    Bank& bank = banks_[request.bank];
    unlink(place);
    bank.opened_for = place;
    opened[request.kind].add(place, device_.cas[request.kind][request.bank]);
    row_changed(request.bank);
  }

  // The bank was closed.
  void row_closed(int64_t bank) { row_changed(bank); }

  // A request was served.
  void served(int32_t place) {
    const Request& request = requests_[place];
    Bank& bank = banks_[request.bank];
    if (bank.opened_for == place) {
      bank.opened_for = kNone;
      opened[request.kind].drop(place);
    } else {
      const int32_t after = request.after;
      const int kind = request.kind;
      unlink(place);
      hits[kind].drop(place);
      bank.hit[kind] = next(after, device_.row[request.bank], true);
    }
    all_.drop(place);
    while (first_word < end_word && all_.words[first_word] == 0) ++first_word;
    file(request.bank);
  }

 private:
  struct Bank {
    int32_t head[2] = {kNone, kNone}, tail[2] = {kNone, kNone};  // its requests in the queues
    int32_t hit[2] = {kNone, kNone}, other[2] = {kNone, kNone};  // the oldest to the open row, and to another
    int32_t opened_for = kNone;
  };

  void append(int32_t place) {
    Request& request = requests_[place];
    Bank& bank = banks_[request.bank];
    const int kind = request.kind;
    request.before = bank.tail[kind];
    request.after = kNone;
    (bank.tail[kind] == kNone ? bank.head[kind] : requests_[bank.tail[kind]].after) = place;
    bank.tail[kind] = place;
    int32_t& oldest = request.row == device_.row[request.bank] ? bank.hit[kind] : bank.other[kind];
    if (oldest != kNone) return;
    oldest = place;
    file(request.bank);
  }

  void unlink(int32_t place) {
    const Request& request = requests_[place];
    Bank& bank = banks_[request.bank];
    const int kind = request.kind;
    (request.before == kNone ? bank.head[kind] : requests_[request.before].after) = request.after;
    (request.after == kNone ? bank.tail[kind] : requests_[request.after].before) = request.before;
    --size[kind];
  }

  // The first from here on to the row, or to another row.
  int32_t next(int32_t it, int64_t row, bool to_it) const {
    while (it != kNone && (requests_[it].row == row) != to_it) it = requests_[it].after;
    return it;
  }

  void row_changed(int64_t at) {
    Bank& bank = banks_[at];
    for (int kind = begin_kind; kind < end_kind; ++kind) {
      if (bank.hit[kind] != kNone) hits[kind].drop(bank.hit[kind]);
      if (bank.other[kind] != kNone) {
        closers[kind].drop(bank.other[kind]);
        openers[kind].drop(bank.other[kind]);
      }
      bank.hit[kind] = next(bank.head[kind], device_.row[at], true);
      bank.other[kind] = next(bank.head[kind], device_.row[at], false);
    }
    file(at);
  }

  // Updates the sets of a bank's two requests. A row that was opened for a request is not closed before it is served.
  void file(int64_t at) {
    const Bank& bank = banks_[at];
    const bool open = device_.row[at] >= 0;
    for (int kind = begin_kind; kind < end_kind; ++kind) {
      if (bank.hit[kind] != kNone) hits[kind].add(bank.hit[kind], device_.cas[kind][at]);
      const int32_t other = bank.other[kind];
      if (other == kNone) continue;
      if (!open) {
        openers[kind].add(other, device_.act[at]);
      } else if (bank.opened_for == kNone) {
        closers[kind].add(other, device_.pre[at]);
      }
    }
  }

  // Moves requests to the first places, in order, and rebuilds the sets.
  void close_gaps() {
    const int32_t end = end_;
    end_ = 0;
    for (int32_t it = 0; it < end; ++it) {
      if (!(all_.words[it / 64] >> (it % 64) & 1)) continue;
      Bank& bank = banks_[requests_[it].bank];
      const bool has_row = bank.opened_for == it;
      const int32_t opened_for = has_row ? end_ : bank.opened_for;
      bank = {};
      bank.opened_for = opened_for;
      bank_of_[end_] = requests_[it].bank;
      requests_[end_++] = requests_[it];
    }
    for (Places* places :
         {&hits[0], &hits[1], &closers[0], &closers[1], &openers[0], &openers[1], &opened[0], &opened[1], &all_}) {
      places->clear(end_word);
    }
    for (int32_t it = 0; it < end_; ++it) {
      all_.add(it, 0);
      if (banks_[requests_[it].bank].opened_for == it) {
        opened[requests_[it].kind].add(it, 0);
      } else {
        append(it);
      }
    }
    first_word = 0;
  }

  const Device& device_;
  int64_t places_;
  int32_t end_ = 0;
  Places all_;
  int32_t bank_of_[kMostPlaces];  // the same as in the requests, closer together
  std::unique_ptr<Request[]> requests_;
  std::unique_ptr<Bank[]> banks_;
};

}  // namespace onehop::dram
