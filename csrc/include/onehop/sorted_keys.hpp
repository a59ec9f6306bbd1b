// Keys sorted by a radix sort: one partition of all keys by their upper bits, into buckets that fit in a cache, and a
// sort of each bucket there by the lower bits.
#pragma once

#include <cstdint>
#include <vector>

#include "onehop/block.hpp"

namespace onehop {

// Keys are numbers without a sign. Each has a note; equal keys keep their order, if notes ascend in it or are all
// equal. Memory: 4, 8 or 16 bytes a key, as the lower bits of the key and the note need; while sorting, at most as much
// again.
class SortedKeys {
 public:
  // Nothing is sorted until sort() is called, once.
  SortedKeys(int64_t count, int key_bits, int note_bits);

  // Sorts the keys key_of(i), of key_bits, with the notes note_of(i), of note_bits. Returns false where another thread
  // changed what they are read from: then nothing else may be called. Throws std::bad_alloc. (runtime/key_sort.hpp)
  template <class KeyOf, class NoteOf>
  [[nodiscard]] bool sort(const KeyOf& key_of, const NoteOf& note_of, int threads);

  int64_t count() const { return first_.back(); }
  int64_t distinct() const { return first_distinct_.back(); }

  // Writes the notes, in the order of the keys.
  void write_notes(int64_t* note, int threads) const;
  // Writes how many distinct keys come before each key.
  void write_groups(int64_t* group, int threads) const;
  // Writes the same of each key in the given order, whose places are the notes.
  void write_inverse(int64_t* group, int threads) const;
  // Writes how many keys are equal to each distinct key.
  void write_counts(int64_t* count, int threads) const;

  // Consecutive keys that have their upper bits in common.
  struct Bucket {
    int64_t count, first, first_distinct;
    uint64_t upper;  // the upper bits, in their place
    int note_bits;

    // The key of one of its words, which have the lower bits, then the note.
    template <class Word>
    uint64_t key(Word word) const {
      return upper | static_cast<uint64_t>(word >> note_bits);
    }
    template <class Word>
    int64_t note(Word word) const {
      return static_cast<int64_t>(static_cast<uint64_t>(word) & ((uint64_t{1} << note_bits) - 1));
    }
    // Whether word i has another key than the one before.
    template <class Word>
    bool begins(const Word* words, int64_t i) const {
      return i == 0 || words[i] >> note_bits != words[i - 1] >> note_bits;
    }
  };

  // Runs body(words, bucket) for each bucket. (runtime/key_sort.hpp)
  template <class Body>
  void for_buckets(int threads, const Body& body) const;

 private:
  template <class Word, class KeyOf, class NoteOf>
  bool sort_as(const KeyOf& key_of, const NoteOf& note_of, int threads);
  Bucket bucket(int64_t number) const;

  int low_bits_, note_bits_, word_bytes_;
  std::vector<int64_t> first_, first_distinct_;  // of each bucket, and the total
  Block words_;
};

}  // namespace onehop
