// Integers: sorted, told apart, and looked up in others.
#pragma once

#include <cstdint>

#include "onehop/sorted_keys.hpp"

namespace onehop {

// `count` numbers, int32 or int64, without gaps. Another thread may write to them at any time: what is written below
// has no meaning then, and where it matters functions say so.
struct Integers {
  const void* values;
  int64_t count;
  bool is_wide;
};

// The smallest and the largest of one number or more, and whether none is smaller than the one before.
struct IntegerLimits {
  int64_t least, most;
  bool ascends;

  // How many numbers lie between, less one.
  uint64_t span() const { return static_cast<uint64_t>(most) - static_cast<uint64_t>(least); }
};
IntegerLimits limits_of(const Integers& integers, int threads);

// Integers in ascending or descending order; equal ones keep theirs.
class SortedIntegers {
 public:
  // `numbered`: whether the keys' notes are the integers' places in the given order.
  SortedIntegers(const Integers& integers, IntegerLimits limits, bool descending, bool numbered);

  // Returns false where another thread changed the integers. Throws std::bad_alloc.
  [[nodiscard]] bool sort(int threads);
  const SortedKeys& keys() const { return keys_; }

  // Writes the integers, of the width that they had; with `once`, of equal ones only the first.
  void write_values(void* values, bool once, int threads) const;

 private:
  Integers integers_;
  IntegerLimits limits_;
  bool descending_, numbered_;
  SortedKeys keys_;
};

// The distinct ones of integers that lie near each other, by a table of all numbers between: a byte for each and, with
// `numbered`, 4 more.
class DistinctIntegers {
 public:
  // Less than 2^31 integers. Throws std::bad_alloc.
  DistinctIntegers(const Integers& integers, IntegerLimits limits, bool numbered, int threads);

  int64_t distinct() const { return before_.back(); }
  // Writes each distinct one, in ascending order, of the width that the integers had.
  void write_values(void* values, int threads) const;
  // Writes which of the distinct ones each integer is, if `numbered`. Returns false where another thread changed them.
  [[nodiscard]] bool write_inverse(const Integers& integers, int64_t* inverse, int threads) const;

 private:
  IntegerLimits limits_;
  bool is_wide_;
  Block marks_;                  // of each number between, whether it is there: 0 or 1
  Block numbers_;                // which of the distinct ones each is, or -1; int32
  std::vector<int64_t> before_;  // how many distinct ones come before each piece of the table, and of all at the end
};

// Writes how many of the numbers, which lie in [0, groups), are each one. Throws std::bad_alloc.
void count_numbers(const int64_t* numbers, int64_t count, int64_t groups, int64_t* counts, int threads);

// Writes whether each of the integers is among others, one or more, which lie between limits; with `inverted`, whether
// it is not. Returns false, and writes nothing, of others among which both the least and the largest int64 are. Throws
// std::bad_alloc.
[[nodiscard]] bool find_among(const Integers& integers, const Integers& others, IntegerLimits limits, bool inverted,
                              bool* found, int threads);

}  // namespace onehop
