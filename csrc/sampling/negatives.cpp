// Negative edges: PyG's sampling, with the numbers of CPython's random.sample.
#include "onehop/negatives.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <new>
#include <numeric>

#include "onehop/kernels.hpp"
#include "onehop/mersenne.hpp"

namespace onehop {
namespace {

constexpr int kSamples = 3;
// What is known of a pair: it has an edge or is a result already; it is in the sample.
constexpr unsigned kTaken = 1, kDrawn = 2;
constexpr int kMarkBits = 2;
// So many pairs before they are looked up, their slots are prefetched.
constexpr int64_t kAhead = 32;

template <class T>
Block allocate(int64_t count) {
  Block block(count * static_cast<int64_t>(sizeof(T)));
  if (!block) throw std::bad_alloc();
  return block;
}

// Bits of a number.
int width_of(int64_t number) { return static_cast<int>(std::bit_width(static_cast<uint64_t>(number))); }

// Number of pairs above the diagonal in the rows before this one.
int64_t upper_before(int64_t row, int64_t nodes) {
  return static_cast<int64_t>(static_cast<__int128>(row) * (2 * nodes - 1 - row) / 2);
}

// The number of a pair; -1 if it is not of the kind.
int64_t number_of(const EdgePairs& kind, int64_t row, int64_t col) {
  switch (kind.kind) {
    case PairKind::all:
      return row * kind.cols + col;
    case PairKind::no_loops:
      return row == col ? -1 : row * (kind.cols - 1) + col - (row < col);
    default:
      return row < col ? upper_before(row, kind.cols) + col - row - 1 : -1;
  }
}

// Whether a number, which may come from edges that another thread writes to, is that of a pair: it has a slot.
bool is_pair(const EdgePairs& kind, int64_t number) {
  return static_cast<uint64_t>(number) < static_cast<uint64_t>(kind.population);
}

// The row above the diagonal that has a pair: by a square root, whose error is mended.
int64_t upper_row(int64_t pair, int64_t nodes) {
  const double width = 2 * static_cast<double>(nodes) - 1;
  const double left = std::max(width * width - 8 * static_cast<double>(pair), 0.0);
  int64_t row = std::clamp(static_cast<int64_t>((width - std::sqrt(left)) / 2), int64_t{0}, nodes - 2);
  while (upper_before(row, nodes) > pair) --row;
  while (upper_before(row + 1, nodes) <= pair) ++row;
  return row;
}

// The words of a generator of Python.
class Stream {
 public:
  // `state` is that of random.getstate(): a block, and the place in it of the word that comes next.
  explicit Stream(const int64_t* state) : position_(state[kMersenneWords]) {
    for (int64_t i = 0; i < kMersenneWords; ++i) words_[i] = static_cast<uint32_t>(state[i]);
  }

  void write(int64_t* state) const {
    const int64_t block = current_block();
    for (int64_t i = 0; i < kMersenneWords; ++i) state[i] = words_[block + i];
    state[kMersenneWords] = position_ - block;
  }

  // Numbers as Random._randbelow draws them: each of as many bits as the bound, and again until it is below the bound.
  void draw_below(int64_t bound, int64_t* numbers, int64_t count) {
    const int bits = width_of(bound);
    for (int64_t i = 0; i < count;) {
      if (end_ - position_ < 2) refill();
      numbers[i] = number_at(position_, bits);
      position_ += bits > 32 ? 2 : 1;
      i += numbers[i] < bound;
    }
  }

 private:
  static constexpr int64_t kFresh = 8 * kMersenneWords;
  // Kernels write up to one vector past the end.
  static constexpr int64_t kSpare = 16;

  // As getrandbits: the lowest bits come first, and of the last word its highest bits count.
  int64_t number_at(int64_t position, int bits) const {
    const uint64_t first = tempered(words_[position]);
    if (bits <= 32) return static_cast<int64_t>(first >> (32 - bits));
    const uint64_t second = tempered(words_[position + 1]);
    return static_cast<int64_t>(second >> (64 - bits) << 32 | first);
  }

  static uint32_t tempered(uint32_t y) {
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680u;
    y ^= (y << 15) & 0xefc60000u;
    return y ^ (y >> 18);
  }

  // Where the block of the word before begins.
  int64_t current_block() const { return position_ == 0 ? 0 : (position_ - 1) / kMersenneWords * kMersenneWords; }

  void refill() {
    const int64_t block = current_block();
    std::memmove(words_, words_ + block, kMersenneWords * sizeof(*words_));
    position_ -= block;
    kernels().mersenne_words(words_, kFresh);
    end_ = kMersenneWords + kFresh;
  }

  uint32_t words_[kMersenneWords + kFresh + kSpare];
  int64_t position_, end_ = kMersenneWords;
};

// A byte for each pair.
struct ByteSlots {
  uint8_t* slots;

  void prefetch(int64_t pair) const { __builtin_prefetch(slots + pair, 1); }
  uint8_t& operator[](int64_t pair) const { return slots[pair]; }
  bool is_taken(int64_t pair) const { return (slots[pair] & kTaken) != 0; }
};

// A hash table with linear probing. A slot has the number of a pair, plus one, above its marks; 0 is an empty slot.
struct HashSlots {
  uint64_t* slots;
  int bits;  // of the number of a slot

  // Multiplicative hashing, as in NodeTable.
  uint64_t place(int64_t pair) const {
    return static_cast<uint64_t>(pair ^ pair >> 32) * 0x9e3779b97f4a7c15ULL >> (64 - bits);
  }

  void prefetch(int64_t pair) const { __builtin_prefetch(slots + place(pair), 1); }

  // The slot of a pair, or the empty one where it belongs.
  uint64_t& find(int64_t pair) const {
    const auto key = static_cast<uint64_t>(pair + 1);
    const uint64_t last = (uint64_t{1} << bits) - 1;
    uint64_t at = place(pair);
    while (slots[at] != 0 && slots[at] >> kMarkBits != key) at = (at + 1) & last;
    return slots[at];
  }

  uint64_t& operator[](int64_t pair) const {
    uint64_t& slot = find(pair);
    if (slot == 0) slot = static_cast<uint64_t>(pair + 1) << kMarkBits;
    return slot;
  }

  bool is_taken(int64_t pair) const { return (find(pair) & kTaken) != 0; }
};

// Calls body(pair, its place in the list) for each of the pairs.
template <class Slots, class Body>
void visit(const Slots& slots, const int64_t* pairs, int64_t count, const Body& body) {
  for (int64_t i = 0; i < std::min(kAhead, count); ++i) slots.prefetch(pairs[i]);
  for (int64_t i = 0; i < count; ++i) {
    if (i + kAhead < count) slots.prefetch(pairs[i + kAhead]);
    body(pairs[i], i);
  }
}

// A sample, and the pairs in it that are not taken.
template <class Slots>
class Sampling {
 public:
  Sampling(const Slots& slots, int64_t population, const SampleArgs& args, int64_t found)
      : slots_(slots), population_(population), args_(args), found_(found) {}

  int64_t run(Stream& stream) {
    for (int64_t i = 0; i < found_; ++i) slots_[args_.pairs[i]] |= kTaken;
    if (population_ <= args_.size) {
      for (int64_t pair = 0; pair < population_ && found_ < args_.wanted; ++pair) take(pair);
    } else if (args_.pool) {
      from_pool(stream);
    } else {
      by_repetition(stream);
    }
    return found_;
  }

 private:
  // Adds a pair to the result unless it is taken, or the result is complete.
  void take(int64_t pair) {
    if (found_ < args_.wanted && !slots_.is_taken(pair)) args_.pairs[found_++] = pair;
  }

  void from_pool(Stream& stream) {
    const Block block = allocate<int64_t>(population_);
    int64_t* pool = block.as<int64_t>();
    std::iota(pool, pool + population_, 0);
    for (int64_t left = population_; left > population_ - args_.size; --left) {
      int64_t at;
      stream.draw_below(left, &at, 1);
      take(pool[at]);
      pool[at] = pool[left - 1];
    }
  }

  // Draws as many pairs as the sample lacks, until none was drawn before.
  void by_repetition(Stream& stream) {
    const Block block = allocate<int64_t>(args_.size);
    int64_t* pairs = block.as<int64_t>();
    for (int64_t left = args_.size; left > 0;) {
      const int64_t count = left;
      stream.draw_below(population_, pairs, count);
      // What is no result gets the number -1.
      visit(slots_, pairs, count, [&](int64_t pair, int64_t place) {
        auto& slot = slots_[pair];
        left -= (slot & kDrawn) == 0;
        if (slot & (kDrawn | kTaken)) pairs[place] = -1;
        slot |= kDrawn;
      });
      for (int64_t i = 0; i < count && found_ < args_.wanted; ++i) {
        args_.pairs[found_] = pairs[i];
        found_ += pairs[i] >= 0;
      }
    }
  }

  Slots slots_;
  int64_t population_;
  const SampleArgs& args_;
  int64_t found_;
};

// Marks the edges.
template <class Slots>
void mark(const EdgePairs& edges, const Slots& slots) {
  const Block block = allocate<int64_t>(edges.edges);
  int64_t* pairs = block.as<int64_t>();
  int64_t count = 0;
  for (int64_t e = 0; e < edges.edges; ++e) {
    pairs[count] = number_of(edges, edges.row[e * edges.row_stride], edges.col[e * edges.col_stride]);
    count += is_pair(edges, pairs[count]);
  }
  visit(slots, pairs, count, [&](int64_t pair, int64_t) { slots[pair] |= kTaken; });
  for (int64_t node = 0; edges.loops && node < edges.rows; ++node) slots[node * (edges.cols + 1)] |= kTaken;
}

}  // namespace

template <class Body>
auto PairTable::with_slots(const Body& body) const {
  if (hash_bits_ > 0) return body(HashSlots{memory_.as<uint64_t>(), hash_bits_});
  return body(ByteSlots{memory_.as<uint8_t>()});
}

PairTable::PairTable(const EdgePairs& edges, int64_t room) {
  const int64_t held = std::min(edges.edges + (edges.loops ? edges.rows : 0) + room, edges.population);
  // At most three quarters full.
  const int bits = width_of(held + held / 3 + 1);
  int64_t bytes = edges.population;
  if (bytes > static_cast<int64_t>(sizeof(uint64_t)) << bits) {
    hash_bits_ = bits;
    bytes = static_cast<int64_t>(sizeof(uint64_t)) << bits;
  }
  memory_ = allocate<char>(bytes);
  std::memset(memory_.data(), 0, static_cast<size_t>(bytes));
  with_slots([&](const auto& slots) { mark(edges, slots); });
}

int64_t PairTable::find(const EdgePairs& edges, const int64_t* which, const int64_t* col, int64_t count,
                        int64_t* found) const {
  const auto edge = [&](int64_t i) { return which == nullptr ? i : which[i]; };
  const Block block = allocate<int64_t>(count);
  int64_t* pairs = block.as<int64_t>();
  for (int64_t i = 0; i < count; ++i) pairs[i] = number_of(edges, edges.row[edge(i) * edges.row_stride], col[i]);
  with_slots([&](const auto& slots) {
    visit(slots, pairs, count,
          [&](int64_t pair, int64_t place) { pairs[place] = is_pair(edges, pair) && slots.is_taken(pair); });
  });
  int64_t hits = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (pairs[i]) found[hits++] = edge(i);
  }
  return hits;
}

int64_t count_pairs(const EdgePairs& edges) {
  int64_t count = 0;
  bool in_range = true;
  for (int64_t e = 0; e < edges.edges; ++e) {
    const int64_t row = edges.row[e * edges.row_stride], col = edges.col[e * edges.col_stride];
    in_range &= static_cast<uint64_t>(row) < static_cast<uint64_t>(edges.rows) &&
                static_cast<uint64_t>(col) < static_cast<uint64_t>(edges.cols);
    count += edges.kind == PairKind::all || (edges.kind == PairKind::no_loops ? row != col : row < col);
  }
  return in_range ? count : -1;
}

int64_t draw_pairs(const EdgePairs& edges, const SampleArgs& sample) {
  Stream stream(sample.state);
  int64_t found = 0;
  for (int samples = 0; samples < kSamples && found < sample.wanted; ++samples) {
    const PairTable table(edges, found + sample.size);
    found = table.with_slots(
        [&](const auto& slots) { return Sampling(slots, edges.population, sample, found).run(stream); });
    if (edges.population <= sample.size) break;  // the next sample is the same
  }
  stream.write(sample.state);
  return found;
}

void write_pairs(const EdgePairs& kind, const int64_t* pairs, int64_t count, int64_t* row, int64_t* col) {
  const int64_t width = kind.kind == PairKind::all ? kind.cols : kind.cols - 1;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t pair = pairs[i];
    if (kind.kind == PairKind::upper) {
      const int64_t at = upper_row(pair, kind.cols);
      row[i] = col[count + i] = at;
      col[i] = row[count + i] = pair - upper_before(at, kind.cols) + at + 1;
    } else {
      const int64_t at = pair / width, rest = pair - at * width;
      row[i] = at;
      col[i] = rest + (kind.kind == PairKind::no_loops && at <= rest);
    }
  }
}

}  // namespace onehop
