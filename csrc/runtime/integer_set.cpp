// Integers looked up in others: in a table of all numbers between, or by a hash.

#include <bit>
#include <limits>

#include "integer_values.hpp"

namespace onehop {
namespace {

// A table of all numbers between is no larger than the other one.
constexpr uint64_t kMostSpread = 32;
// So many integers are looked up while the memory of later ones is fetched.
constexpr int64_t kAhead = 16;

// A hash table with linear probing, at most half full.
class IntegerSet {
 public:
  // Of so many integers; `absent` is never one of them.
  IntegerSet(int64_t count, int64_t absent, int threads)
      : absent_(absent), capacity_(std::bit_ceil(static_cast<uint64_t>(2 * count + 2))) {
    slots_ = Block(static_cast<int64_t>(capacity_ * sizeof(int64_t)));
    if (!slots_) throw std::bad_alloc();
    const auto pieces = pieces_of(static_cast<int64_t>(capacity_));
    for_tasks(pieces.chunks, threads, [&](int64_t piece, int) {
      std::fill(slots() + pieces.begin(piece), slots() + pieces.begin(piece + 1), absent);
    });
  }

  void prefetch(int64_t value) const { __builtin_prefetch(slots() + place(value)); }

  void insert(int64_t value) {
    uint64_t at = place(value);
    while (slots()[at] != absent_ && slots()[at] != value) at = (at + 1) & (capacity_ - 1);
    slots()[at] = value;
  }

  bool has(int64_t value) const {
    uint64_t at = place(value);
    while (slots()[at] != absent_ && slots()[at] != value) at = (at + 1) & (capacity_ - 1);
    return slots()[at] == value;
  }

 private:
  int64_t* slots() const { return slots_.as<int64_t>(); }
  // Multiplicative hashing, as in NodeTable.
  uint64_t place(int64_t value) const {
    const auto key = static_cast<uint64_t>(value);
    return (key ^ key >> 32) * 0x9e3779b97f4a7c15ULL >> (64 - std::countr_zero(capacity_));
  }

  int64_t absent_;
  uint64_t capacity_;
  Block slots_;
};

void find_in_marks(const Integers& integers, const Integers& others, IntegerLimits limits, bool inverted, bool* found,
                   int threads) {
  const Block block = zeros(static_cast<int64_t>(limits.span()) + 1, threads);
  auto* marks = block.as<uint8_t>();
  mark_all(others, limits, marks, threads);
  const Chunks chunks = pieces_of(integers.count);
  with_values(integers, [&](const auto* values) {
    for_tasks(chunks.chunks, threads, [&](int64_t chunk, int) {
      for_chunk(chunks, chunk, [=, span = limits.span()](int64_t i) {
        const uint64_t place = distance(limits.least, values[i]);
        found[i] = (place <= span && marks[place] != 0) != inverted;
      });
    });
  });
}

void find_in_set(const Integers& integers, const Integers& others, int64_t absent, bool inverted, bool* found,
                 int threads) {
  IntegerSet set(others.count, absent, threads);
  with_values(others, [&](const auto* values) {
    for (int64_t i = 0; i < others.count; ++i) {
      set.prefetch(values[std::min(i + kAhead, others.count - 1)]);
      set.insert(values[i]);
    }
  });
  const Chunks chunks = pieces_of(integers.count);
  with_values(integers, [&](const auto* values) {
    for_tasks(chunks.chunks, threads, [&](int64_t chunk, int) {
      const int64_t last = chunks.begin(chunk + 1) - 1;
      for_chunk(chunks, chunk, [=, &set](int64_t i) {
        set.prefetch(values[std::min(i + kAhead, last)]);
        const int64_t value = values[i];
        found[i] = (value != absent && set.has(value)) != inverted;
      });
    });
  });
}

}  // namespace

bool find_among(const Integers& integers, const Integers& others, IntegerLimits limits, bool inverted, bool* found,
                int threads) {
  if (limits.span() / kMostSpread <= static_cast<uint64_t>(others.count + integers.count / 8)) {
    find_in_marks(integers, others, limits, inverted, found, threads);
    return true;
  }
  const bool has_least = limits.least == std::numeric_limits<int64_t>::min();
  if (has_least && limits.most == std::numeric_limits<int64_t>::max()) return false;
  find_in_set(integers, others, has_least ? limits.most + 1 : limits.least - 1, inverted, found, threads);
  return true;
}

}  // namespace onehop
