#include "key_sort.hpp"

namespace onehop {
namespace {

constexpr int kMostBucketBits = 12;
constexpr int64_t kKeysPerBucket = int64_t{1} << 11;
// Buckets are smaller by so many bits, at most, where that spares a pass over all of them.
constexpr int kMoreBucketBits = 3;

// The upper bits by which keys are partitioned.
int bucket_bits_of(int64_t count, int key_bits) {
  const int bits = std::min({key_bits, kMostBucketBits, bits_below(count / kKeysPerBucket)});
  const int more = (key_bits - bits) % kMostDigitBits;
  return more <= kMoreBucketBits && bits + more <= kMostBucketBits ? bits + more : bits;
}

}  // namespace

SortedKeys::SortedKeys(int64_t count, int key_bits, int note_bits) : note_bits_(note_bits) {
  const int bucket_bits = bucket_bits_of(count, key_bits);
  low_bits_ = key_bits - bucket_bits;
  const size_t buckets = size_t{1} << bucket_bits;
  first_.assign(buckets + 1, 0);
  first_distinct_.assign(buckets + 1, 0);
  first_.back() = count;
  const int word_bits = low_bits_ + note_bits_;
  word_bytes_ = word_bits <= 32 ? 4 : word_bits <= 64 ? 8 : 16;
}

SortedKeys::Bucket SortedKeys::bucket(int64_t number) const {
  const auto b = static_cast<size_t>(number);
  const uint64_t upper = number == 0 ? 0 : static_cast<uint64_t>(number) << low_bits_;
  return {first_[b + 1] - first_[b], first_[b], first_distinct_[b], upper, note_bits_};
}

void SortedKeys::write_notes(int64_t* note, int threads) const {
  for_buckets(threads, [&](const auto* words, const Bucket& bucket) {
    for (int64_t i = 0; i < bucket.count; ++i) note[bucket.first + i] = bucket.note(words[i]);
  });
}

void SortedKeys::write_groups(int64_t* group, int threads) const {
  for_buckets(threads, [&](const auto* words, const Bucket& bucket) {
    int64_t before = bucket.first_distinct - 1;
    for (int64_t i = 0; i < bucket.count; ++i) {
      before += bucket.begins(words, i);
      group[bucket.first + i] = before;
    }
  });
}

void SortedKeys::write_inverse(int64_t* group, int threads) const {
  for_buckets(threads, [&](const auto* words, const Bucket& bucket) {
    int64_t before = bucket.first_distinct - 1;
    for (int64_t i = 0; i < bucket.count; ++i) {
      before += bucket.begins(words, i);
      group[bucket.note(words[i])] = before;
    }
  });
}

void SortedKeys::write_counts(int64_t* count, int threads) const {
  for_buckets(threads, [&](const auto* words, const Bucket& bucket) {
    // Where each key ends, written for each word: a branch would be predicted wrongly.
    int64_t* end = count + bucket.first_distinct - 1;
    for (int64_t i = 0; i < bucket.count; ++i) {
      end += bucket.begins(words, i);
      *end = i + 1;
    }
    for (; end > count + bucket.first_distinct; --end) *end -= end[-1];
  });
}

}  // namespace onehop
