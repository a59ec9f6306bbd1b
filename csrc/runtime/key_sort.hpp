// The sort of SortedKeys, for keys that are read from anything.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <new>
#include <utility>

#include "csr_arrays.hpp"
#include "onehop/sorted_keys.hpp"

namespace onehop {

using WideWord = unsigned __int128;

// Bits that numbers below `count` take.
inline int bits_below(int64_t count) { return count > 1 ? std::bit_width(static_cast<uint64_t>(count - 1)) : 0; }

constexpr uint64_t mask_of(int bits) { return bits < 64 ? (uint64_t{1} << bits) - 1 : ~uint64_t{0}; }

// A note that all keys have.
struct NoNote {
  uint64_t operator()(int64_t) const { return 0; }
};

// The place of each key.
struct Place {
  uint64_t operator()(int64_t i) const { return static_cast<uint64_t>(i); }
};

// Passes of 9 bits took 27 ms where passes of 8 took 33, of 5 million words in buckets.
inline constexpr int kMostDigitBits = 9;
inline constexpr int64_t kFewWords = 64;
// Keys are often told apart by so many bits more than it takes to count them.
inline constexpr int kBitsToSpare = 3;
// Words that are moved for each word, at most, before the lower bits are sorted by radix too.
inline constexpr int64_t kMostMoves = 8;

// Sorts words by the `bits` above the lowest `first_bit`; equal ones keep their order.
template <class Word>
void sort_digits(Word* words, Word* spare, int64_t count, int first_bit, int bits) {
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

// Sorts words that are nearly in order. Returns false once it has moved too many: then they are in another order, in
// which equal keys keep theirs.
template <class Word>
bool insert_words(Word* words, int64_t count) {
  int64_t moves = kMostMoves * count;
  for (int64_t i = 1; i < count; ++i) {
    const Word word = words[i];
    int64_t at = i;
    for (; at > 0 && words[at - 1] > word; --at) words[at] = words[at - 1];
    words[at] = word;
    moves -= i - at;
    if (moves < 0) return false;
  }
  return true;
}

// Sorts words by the `bits` above the lowest `first_bit`, which are notes that ascend from word to word.
template <class Word>
void sort_words(Word* words, Word* spare, int64_t count, int first_bit, int bits) {
  if (count <= kFewWords) {
    std::sort(words, words + count);
    return;
  }
  // Keys are often in order already, of which others are told by their first few.
  if (bits == 0 || std::is_sorted(words, words + count)) return;
  const int upper = bits_below(count) + kBitsToSpare;
  if (bits >= upper + kMostDigitBits) {
    sort_digits(words, spare, count, first_bit + bits - upper, upper);
    if (insert_words(words, count)) return;
  }
  sort_digits(words, spare, count, first_bit, bits);
}

template <class KeyOf, class NoteOf>
bool SortedKeys::sort(const KeyOf& key_of, const NoteOf& note_of, int threads) {
  if (word_bytes_ == 4) return sort_as<uint32_t>(key_of, note_of, threads);
  if (word_bytes_ == 8) return sort_as<uint64_t>(key_of, note_of, threads);
  return sort_as<WideWord>(key_of, note_of, threads);
}

template <class Word, class KeyOf, class NoteOf>
bool SortedKeys::sort_as(const KeyOf& key_of, const NoteOf& note_of, int threads) {
  threads = static_cast<int>(chunk_count(count(), threads));
  const Chunks chunks{count(), threads};
  const auto buckets = static_cast<int64_t>(first_.size()) - 1;
  words_ = Block(count() * static_cast<int64_t>(sizeof(Word)));
  if (!words_) throw std::bad_alloc();
  auto* words = words_.as<Word>();

  // Where each chunk writes its next word of each bucket.
  std::vector<int64_t> place(static_cast<size_t>(chunks.chunks * buckets), 0);
  // Another thread may write to what keys are read from: they are bounded here, and words below, so that all stays in
  // memory of ours.
  const uint64_t last_bucket = static_cast<uint64_t>(buckets) - 1;
  // All bits of a key may be low bits.
  const auto bucket_of = [low = low_bits_, last_bucket](uint64_t key) {
    return last_bucket == 0 ? 0 : std::min<uint64_t>(key >> low, last_bucket);
  };
  for_tasks(chunks.chunks, threads, [&](int64_t chunk, int) {
    int64_t* counter = place.data() + chunk * buckets;
    for_chunk(chunks, chunk, [=](int64_t i) { ++counter[bucket_of(key_of(i))]; });
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
    for_chunk(chunks, chunk, [=, mask = mask_of(low_bits_), note = note_bits_](int64_t i) {
      const uint64_t key = key_of(i);
      int64_t& slot = next[bucket_of(key)];
      words[std::min(slot++, last)] = static_cast<Word>(static_cast<Word>(key & mask) << note | note_of(i));
    });
  });
  // Each chunk has ended where the next one began unless numbers changed after they were counted.
  for (int64_t bucket = 0; bucket < buckets; ++bucket) {
    for (int64_t chunk = 0; chunk < chunks.chunks; ++chunk) {
      const bool is_last = chunk + 1 == chunks.chunks;
      const int64_t end = is_last ? first_[static_cast<size_t>(bucket) + 1]
                                  : first[static_cast<size_t>((chunk + 1) * buckets + bucket)];
      if (place[static_cast<size_t>(chunk * buckets + bucket)] != end) return false;
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
  return true;
}

template <class Body>
void SortedKeys::for_buckets(int threads, const Body& body) const {
  const auto helpers = static_cast<int>(chunk_count(count(), threads));
  for_tasks(static_cast<int64_t>(first_.size()) - 1, helpers, [&](int64_t number, int) {
    const Bucket one = bucket(number);
    if (word_bytes_ == 4) return body(words_.as<uint32_t>() + one.first, one);
    if (word_bytes_ == 8) return body(words_.as<uint64_t>() + one.first, one);
    body(words_.as<WideWord>() + one.first, one);
  });
}

}  // namespace onehop
