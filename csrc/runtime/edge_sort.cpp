// Edges sorted by a radix sort: one partition of all edges by the upper bits of their keys, into buckets that fit in a
// cache, and a sort of each bucket there by the lower bits.

#include <algorithm>
#include <atomic>
#include <bit>
#include <new>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include "edge_columns.hpp"

namespace onehop {
namespace {

using WideWord = unsigned __int128;

constexpr int kMostBucketBits = 12;
constexpr int64_t kEdgesPerBucket = int64_t{1} << 11;
constexpr int64_t kFewWords = 64;
// Passes of 9 bits took 27 ms where passes of 8 took 33, of 5 million words in buckets.
constexpr int kMostDigitBits = 9;

int bits_below(int64_t count) { return count > 1 ? std::bit_width(static_cast<uint64_t>(count - 1)) : 0; }

constexpr uint64_t mask_of(int bits) { return (uint64_t{1} << bits) - 1; }

// Sorts words by the `bits` above the lowest `first_bit`, which ascend from word to word.
template <class Word>
void sort_words(Word* words, Word* spare, int64_t count, int first_bit, int bits) {
  if (count <= kFewWords) {
    std::sort(words, words + count);
    return;
  }
  // Edges are often in order already, of which others are told by their first few.
  if (bits == 0 || std::is_sorted(words, words + count)) return;
  const int passes = (bits + kMostDigitBits - 1) / kMostDigitBits, width = (bits + passes - 1) / passes;
  const uint64_t mask = mask_of(width);
  Word *from = words, *to = spare;
  for (int pass = 0; pass < passes; ++pass) {
    const int shift = first_bit + pass * width;
    const auto digit = [shift, mask](Word word) { return static_cast<uint64_t>(word >> shift) & mask; };
    int64_t place[1 << kMostDigitBits] = {};
    for (int64_t i = 0; i < count; ++i) ++place[digit(from[i])];
    int64_t running = 0;
    for (uint64_t d = 0; d <= mask; ++d) running += std::exchange(place[d], running);
    for (int64_t i = 0; i < count; ++i) to[place[digit(from[i])]++] = from[i];
    std::swap(from, to);
  }
  if (from != words) std::copy_n(from, count, words);
}

}  // namespace

EdgeEnds edge_ends(const EdgeColumns& edges, int threads) {
  const Chunks chunks = pieces_of(edges);
  struct Limits {
    int64_t row = -1, col = -1, all = 0;
  };
  std::vector<Limits> limits(static_cast<size_t>(chunks.chunks));
  with_columns(edges, [&](const auto* row, const auto* col) {
    for_tasks(chunks.chunks, threads, [&](int64_t chunk, int) {
      auto most_row = static_cast<std::remove_cvref_t<decltype(*row)>>(-1), most_col = most_row;
      decltype(most_row) all = 0;  // negative once a number was
      for_chunk(chunks, chunk, [&](int64_t e) {
        most_row = std::max(most_row, row[e]);
        most_col = std::max(most_col, col[e]);
        all |= row[e] | col[e];
      });
      limits[static_cast<size_t>(chunk)] = {most_row, most_col, all};
    });
  });
  Limits total;
  for (const Limits& each : limits) {
    total = {std::max(total.row, each.row), std::max(total.col, each.col), total.all | each.all};
  }
  return total.all < 0 ? EdgeEnds{-1, -1} : EdgeEnds{total.row + 1, total.col + 1};
}

SortedEdges::SortedEdges(EdgeEnds ends, int64_t count, int note_bits)
    : col_bits_(bits_below(ends.cols)), note_bits_(note_bits) {
  const int key_bits = bits_below(ends.rows) + col_bits_;
  const int bucket_bits = std::min({key_bits, kMostBucketBits, bits_below(count / kEdgesPerBucket)});
  low_bits_ = key_bits - bucket_bits;
  const size_t buckets = size_t{1} << bucket_bits;
  first_.assign(buckets + 1, 0);
  first_distinct_.assign(buckets + 1, 0);
  first_.back() = count;
  const int word_bits = low_bits_ + note_bits_;
  word_bytes_ = word_bits <= 32 ? 4 : word_bits <= 64 ? 8 : 16;
}

SortedEdges::SortedEdges(const EdgeColumns& edges, EdgeEnds ends, bool mirrored, bool numbered, int threads)
    : SortedEdges(mirrored ? EdgeEnds{std::max(ends.rows, ends.cols), std::max(ends.rows, ends.cols)} : ends,
                  mirrored ? 2 * edges.count : edges.count,
                  numbered ? bits_below(mirrored ? 2 * edges.count : edges.count) : 0) {
  are_wide_ = edges.is_wide;
  with_columns(edges, [&](const auto* row, const auto* col) {
    const auto sorted = [&](const auto& key_of) {
      if (numbered) {
        sort(key_of, [](int64_t e) { return static_cast<uint64_t>(e); }, threads);
      } else {
        sort(key_of, [](int64_t) { return uint64_t{0}; }, threads);
      }
    };
    const auto key = [shift = col_bits_](auto r, auto c) {
      return static_cast<uint64_t>(r) << shift | static_cast<uint64_t>(c);
    };
    if (mirrored) {
      sorted([=, given = edges.count](int64_t e) {
        return e < given ? key(row[e], col[e]) : key(col[e - given], row[e - given]);
      });
    } else {
      sorted([=](int64_t e) { return key(row[e], col[e]); });
    }
  });
}

bool SortedEdges::are_paired(const EdgeColumns& edges, EdgeEnds ends, int threads) {
  const int64_t nodes = std::max(ends.rows, ends.cols);
  // Keyed by the smaller end, then the larger; the note is the direction.
  SortedEdges sorted({nodes, nodes}, edges.count, 1);
  with_columns(edges, [&](const auto* row, const auto* col) {
    const auto key_of = [=, shift = sorted.col_bits_](int64_t e) {
      return static_cast<uint64_t>(std::min(row[e], col[e])) << shift | static_cast<uint64_t>(std::max(row[e], col[e]));
    };
    sorted.sort(key_of, [=](int64_t e) { return static_cast<uint64_t>(row[e] < col[e]); }, threads);
  });
  std::atomic<bool> paired{true};
  sorted.for_buckets(threads, [&](const auto* words, int64_t bucket) {
    const int64_t count = sorted.first_[static_cast<size_t>(bucket) + 1] - sorted.first_[static_cast<size_t>(bucket)];
    for (int64_t i = 0, end; i < count; i = end) {
      int64_t more = 0;  // edges of one direction than of the other
      for (end = i; end < count && words[end] >> 1 == words[i] >> 1; ++end) more += (words[end] & 1) != 0 ? 1 : -1;
      const uint64_t key = static_cast<uint64_t>(bucket) << sorted.low_bits_ | static_cast<uint64_t>(words[i] >> 1);
      if (more != 0 && key >> sorted.col_bits_ != (key & mask_of(sorted.col_bits_))) {
        paired.store(false, std::memory_order_relaxed);
        return;
      }
    }
  });
  return paired.load();
}

template <class KeyOf, class NoteOf>
void SortedEdges::sort(const KeyOf& key_of, const NoteOf& note_of, int threads) {
  if (word_bytes_ == 4) return sort_as<uint32_t>(key_of, note_of, threads);
  if (word_bytes_ == 8) return sort_as<uint64_t>(key_of, note_of, threads);
  sort_as<WideWord>(key_of, note_of, threads);
}

template <class Word, class KeyOf, class NoteOf>
void SortedEdges::sort_as(const KeyOf& key_of, const NoteOf& note_of, int threads) {
  const Chunks chunks{count(), chunk_count(count(), threads)};
  const auto buckets = static_cast<int64_t>(first_.size()) - 1;
  words_ = Block(count() * static_cast<int64_t>(sizeof(Word)));
  if (!words_) throw std::bad_alloc();
  auto* words = words_.as<Word>();

  // Where each chunk writes its next word of each bucket.
  std::vector<int64_t> place(static_cast<size_t>(chunks.chunks * buckets), 0);
  // Another thread may write to the edges: keys are bounded here, and words below, so that all stays in memory of ours.
  const uint64_t last_bucket = static_cast<uint64_t>(buckets) - 1;
  for_tasks(chunks.chunks, threads, [&](int64_t chunk, int) {
    int64_t* counter = place.data() + chunk * buckets;
    for_chunk(chunks, chunk,
              [=, low = low_bits_](int64_t e) { ++counter[std::min<uint64_t>(key_of(e) >> low, last_bucket)]; });
  });
  int64_t running = 0;
  for (int64_t bucket = 0; bucket < buckets; ++bucket) {
    first_[static_cast<size_t>(bucket)] = running;
    for (int64_t chunk = 0; chunk < chunks.chunks; ++chunk) {
      running += std::exchange(place[static_cast<size_t>(chunk * buckets + bucket)], running);
    }
  }
  const std::vector<int64_t> first = place;
  for_tasks(chunks.chunks, threads, [&](int64_t chunk, int) {
    int64_t* next = place.data() + chunk * buckets;
    const int64_t last = count() - 1;
    for_chunk(chunks, chunk, [=, low = low_bits_, mask = mask_of(low_bits_), note = note_bits_](int64_t e) {
      const uint64_t key = key_of(e);
      int64_t& slot = next[std::min<uint64_t>(key >> low, last_bucket)];
      words[std::min(slot++, last)] = static_cast<Word>(static_cast<Word>(key & mask) << note | note_of(e));
    });
  });
  // Each chunk has ended where the next one began unless numbers changed after they were counted.
  for (int64_t bucket = 0; bucket < buckets; ++bucket) {
    for (int64_t chunk = 0; chunk < chunks.chunks; ++chunk) {
      const bool is_last = chunk + 1 == chunks.chunks;
      const int64_t end = is_last ? first_[static_cast<size_t>(bucket) + 1]
                                  : first[static_cast<size_t>((chunk + 1) * buckets + bucket)];
      if (place[static_cast<size_t>(chunk * buckets + bucket)] != end) {
        throw std::runtime_error(
            "edge_index: another thread wrote to it while it was sorted; write to it before or after.");
      }
    }
  }

  std::vector<Block> spare(static_cast<size_t>(std::max(threads, 1)));
  std::atomic<bool> has_memory{true};
  for_tasks(buckets, threads, [&](int64_t bucket, int thread) {
    const int64_t begin = first_[static_cast<size_t>(bucket)];
    const int64_t count = first_[static_cast<size_t>(bucket) + 1] - begin;
    Block& other = spare[static_cast<size_t>(thread)];
    const int64_t bytes = count * static_cast<int64_t>(sizeof(Word));
    if (other.bytes() < bytes) other = Block(bytes);
    if (bytes > 0 && !other) {
      has_memory.store(false, std::memory_order_relaxed);
      return;
    }
    Word* own = words + begin;
    sort_words(own, other.as<Word>(), count, note_bits_, low_bits_);
    int64_t distinct = count > 0;
    for (int64_t i = 1; i < count; ++i) distinct += own[i] >> note_bits_ != own[i - 1] >> note_bits_;
    first_distinct_[static_cast<size_t>(bucket) + 1] = distinct;
  });
  if (!has_memory.load()) throw std::bad_alloc();
  for (size_t bucket = 1; bucket < first_distinct_.size(); ++bucket) {
    first_distinct_[bucket] += first_distinct_[bucket - 1];
  }
}

template <class Body>
void SortedEdges::for_buckets(int threads, const Body& body) const {
  for_tasks(static_cast<int64_t>(first_.size()) - 1, threads, [&](int64_t bucket, int) {
    const int64_t begin = first_[static_cast<size_t>(bucket)];
    if (word_bytes_ == 4) return body(words_.as<uint32_t>() + begin, bucket);
    if (word_bytes_ == 8) return body(words_.as<uint64_t>() + begin, bucket);
    body(words_.as<WideWord>() + begin, bucket);
  });
}

template <class Index>
void SortedEdges::write_ends_as(Index* row, Index* col, bool once, int threads) const {
  for_buckets(threads, [&](const auto* words, int64_t bucket) {
    const auto b = static_cast<size_t>(bucket);
    const int64_t count = first_[b + 1] - first_[b];
    const uint64_t upper = static_cast<uint64_t>(bucket) << low_bits_, mask = mask_of(col_bits_);
    int64_t next = once ? first_distinct_[b] : first_[b];
    for (int64_t i = 0; i < count; ++i) {
      if (once && i > 0 && words[i] >> note_bits_ == words[i - 1] >> note_bits_) continue;
      const uint64_t key = upper | static_cast<uint64_t>(words[i] >> note_bits_);
      row[next] = static_cast<Index>(key >> col_bits_);
      col[next++] = static_cast<Index>(key & mask);
    }
  });
}

void SortedEdges::write_ends(void* row, void* col, bool once, int threads) const {
  are_wide_ ? write_ends_as(static_cast<int64_t*>(row), static_cast<int64_t*>(col), once, threads)
            : write_ends_as(static_cast<int32_t*>(row), static_cast<int32_t*>(col), once, threads);
}

void SortedEdges::write_numbers(int64_t* number, int threads) const {
  const uint64_t mask = mask_of(note_bits_);
  for_buckets(threads, [&](const auto* words, int64_t bucket) {
    const int64_t begin = first_[static_cast<size_t>(bucket)], end = first_[static_cast<size_t>(bucket) + 1];
    for (int64_t i = begin; i < end; ++i) number[i] = static_cast<int64_t>(words[i - begin] & mask);
  });
}

void SortedEdges::write_groups(int64_t* group, int threads) const {
  for_buckets(threads, [&](const auto* words, int64_t bucket) {
    const int64_t begin = first_[static_cast<size_t>(bucket)], end = first_[static_cast<size_t>(bucket) + 1];
    int64_t before = first_distinct_[static_cast<size_t>(bucket)];
    for (int64_t i = begin; i < end; ++i) {
      before += i > begin && words[i - begin] >> note_bits_ != words[i - begin - 1] >> note_bits_;
      group[i] = before;
    }
  });
}

}  // namespace onehop
