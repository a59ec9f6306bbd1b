// Negative edges: PyG's sampling, with the numbers of CPython's random.sample.
#include "onehop/negatives.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <memory>
#include <new>

#include "onehop/kernels.hpp"
#include "onehop/mersenne.hpp"

namespace onehop {
namespace {

constexpr int kSamples = 3;
// What is known of a pair: it has an edge or is a result already; it is in the sample.
constexpr unsigned kTaken = 1, kDrawn = 2;
constexpr int kMarkBits = 2;
// Pairs are looked up in chunks, and their slots are prefetched so many pairs before.
constexpr int64_t kChunk = 256;
constexpr int64_t kAhead = 16;

// Number of pairs above the diagonal in the rows before this one.
int64_t upper_before(int64_t row, int64_t nodes) {
  return static_cast<int64_t>(static_cast<__int128>(row) * (2 * nodes - 1 - row) / 2);
}

int64_t population_of(const EdgePairs& kind) {
  switch (kind.kind) {
    case PairKind::all:
      return kind.rows * kind.cols;
    case PairKind::no_loops:
      return kind.rows * (kind.cols - 1);
    default:
      return upper_before(kind.rows, kind.cols);
  }
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

  // A number as Random._randbelow draws it: of as many bits as the bound, and again until it is below the bound.
  int64_t below(int64_t bound) {
    const int bits = std::bit_width(static_cast<uint64_t>(bound));
    for (;;) {
      if (end_ - position_ < 2) refill();
      const int64_t number = number_at(position_, bits);
      position_ += words_of(bits);
      if (number < bound) return number;
    }
  }

  // Several such numbers, up to kChunk and at least one, and the position behind each: for move_to().
  int64_t chunk_below(int64_t bound, int64_t* numbers, int64_t* behind) {
    const int bits = std::bit_width(static_cast<uint64_t>(bound));
    int64_t count = 0;
    while (count == 0) {
      if (end_ - position_ < 2) refill();
      while (count < kChunk && end_ - position_ >= 2) {
        numbers[count] = number_at(position_, bits);
        position_ += words_of(bits);
        behind[count] = position_;
        count += numbers[count] < bound;
      }
    }
    return count;
  }

  void move_to(int64_t position) { position_ = position; }

 private:
  static constexpr int64_t kFresh = 8 * kMersenneWords;
  // Kernels write up to one vector further than they are asked to.
  static constexpr int64_t kSpare = 16;

  static int64_t words_of(int bits) { return bits > 32 ? 2 : 1; }

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
  uint64_t last;
  int shift;

  // Multiplicative hashing, as in NodeTable.
  uint64_t place(int64_t pair) const { return static_cast<uint64_t>(pair ^ pair >> 32) * 0x9e3779b97f4a7c15ULL >> shift; }

  void prefetch(int64_t pair) const { __builtin_prefetch(slots + place(pair), 1); }

  // The slot of a pair, or the empty one where it belongs.
  uint64_t& find(int64_t pair) const {
    const auto key = static_cast<uint64_t>(pair + 1);
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

// A sample, and the pairs in it that are not taken.
template <class Slots>
class Sampling {
 public:
  Sampling(const Slots& slots, const SampleArgs& args, int64_t found) : slots_(slots), args_(args), found_(found) {}

  int64_t run(Stream& stream) {
    for (int64_t i = 0; i < found_; ++i) slots_[args_.pairs[i]] |= kTaken;
    if (args_.population <= args_.size) {
      for (int64_t pair = 0; pair < args_.population && found_ < args_.wanted; ++pair) take(pair);
    } else if (args_.pool) {
      from_pool(stream);
    } else {
      by_repetition(stream);
    }
    return std::min(found_, args_.wanted);
  }

 private:
  // Adds a pair to the sample; false if it is there already.
  bool take(int64_t pair) {
    auto& slot = slots_[pair];
    if ((slot & kDrawn) != 0) return false;
    if ((slot & kTaken) == 0) {
      if (found_ < args_.wanted) args_.pairs[found_] = pair;
      ++found_;
    }
    slot |= kDrawn;
    return true;
  }

  void from_pool(Stream& stream) {
    const auto pool = std::make_unique_for_overwrite<int64_t[]>(static_cast<size_t>(args_.population));
    for (int64_t pair = 0; pair < args_.population; ++pair) pool[static_cast<size_t>(pair)] = pair;
    for (int64_t left = args_.population; left > args_.population - args_.size; --left) {
      auto& drawn = pool[static_cast<size_t>(stream.below(left))];
      take(drawn);
      drawn = pool[static_cast<size_t>(left - 1)];
    }
  }

  void by_repetition(Stream& stream) {
    int64_t pairs[kChunk], behind[kChunk];
    for (int64_t left = args_.size; left > 0;) {
      const int64_t count = stream.chunk_below(args_.population, pairs, behind);
      for (int64_t i = 0; i < std::min(kAhead, count); ++i) slots_.prefetch(pairs[i]);
      for (int64_t i = 0; i < count && left > 0; ++i) {
        if (i + kAhead < count) slots_.prefetch(pairs[i + kAhead]);
        left -= take(pairs[i]);
        if (left == 0) stream.move_to(behind[i]);
      }
    }
  }

  Slots slots_;
  const SampleArgs& args_;
  int64_t found_;
};

// Marks the edges.
template <class Slots>
void mark(const EdgePairs& edges, const Slots& slots) {
  int64_t pairs[kChunk];
  for (int64_t begin = 0; begin < edges.edges; begin += kChunk) {
    int64_t count = 0;
    for (int64_t e = begin; e < std::min(begin + kChunk, edges.edges); ++e) {
      const int64_t pair = number_of(edges, edges.row[e * edges.row_stride], edges.col[e * edges.col_stride]);
      if (pair < 0) continue;
      slots.prefetch(pair);
      pairs[count++] = pair;
    }
    for (int64_t i = 0; i < count; ++i) slots[pairs[i]] |= kTaken;
  }
  for (int64_t node = 0; edges.loops && node < edges.rows; ++node) slots[node * (edges.cols + 1)] |= kTaken;
}

}  // namespace

template <class Body>
auto PairTable::with_slots(const Body& body) const {
  if (capacity_ == 0) return body(ByteSlots{memory_.as<uint8_t>()});
  const auto capacity = static_cast<uint64_t>(capacity_);
  return body(HashSlots{memory_.as<uint64_t>(), capacity - 1, 64 - std::countr_zero(capacity)});
}

PairTable::PairTable(const EdgePairs& edges, int64_t room) {
  const int64_t population = population_of(edges);
  const int64_t held = std::min(edges.edges + (edges.loops ? edges.rows : 0) + room, population);
  // At most three quarters full.
  const auto slots = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(held + held / 3 + 2)));
  int64_t bytes = population;
  if (slots < population / static_cast<int64_t>(sizeof(uint64_t))) {
    capacity_ = slots;
    bytes = slots * static_cast<int64_t>(sizeof(uint64_t));
  }
  memory_ = Block(bytes);
  if (!memory_) throw std::bad_alloc();
  std::memset(memory_.data(), 0, static_cast<size_t>(bytes));
  with_slots([&](const auto& table) { mark(edges, table); });
}

int64_t PairTable::find(const EdgePairs& edges, const int64_t* which, const int64_t* col, int64_t count,
                        int64_t* found) const {
  return with_slots([&](const auto& slots) {
    const auto edge = [&](int64_t i) { return which == nullptr ? i : which[i]; };
    int64_t pairs[kChunk], hits = 0;
    for (int64_t begin = 0; begin < count; begin += kChunk) {
      const int64_t size = std::min(kChunk, count - begin);
      for (int64_t i = 0; i < size; ++i) {
        pairs[i] = number_of(edges, edges.row[edge(begin + i) * edges.row_stride], col[begin + i]);
        slots.prefetch(pairs[i]);
      }
      for (int64_t i = 0; i < size; ++i) {
        if (slots.is_taken(pairs[i])) found[hits++] = edge(begin + i);
      }
    }
    return hits;
  });
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
    const PairTable table(edges, found + std::min(sample.size, sample.population));
    found = table.with_slots([&](const auto& slots) { return Sampling(slots, sample, found).run(stream); });
    // Another sample would be the same.
    if (sample.population <= sample.size) break;
  }
  stream.write(sample.state);
  return found;
}

void write_pairs(const EdgePairs& kind, const int64_t* pairs, int64_t count, int64_t* row, int64_t* col) {
  for (int64_t i = 0; i < count; ++i) {
    const int64_t pair = pairs[i];
    switch (kind.kind) {
      case PairKind::all:
        row[i] = pair / kind.cols;
        col[i] = pair % kind.cols;
        break;
      case PairKind::no_loops:
        row[i] = pair / (kind.cols - 1);
        col[i] = pair % (kind.cols - 1);
        col[i] += row[i] <= col[i];
        break;
      case PairKind::upper:
        row[i] = upper_row(pair, kind.cols);
        col[i] = pair - upper_before(row[i], kind.cols) + row[i] + 1;
        row[count + i] = col[i];
        col[count + i] = row[i];
        break;
    }
  }
}

}  // namespace onehop
