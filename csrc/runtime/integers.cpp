#include "integer_values.hpp"
#include "key_sort.hpp"

namespace onehop {

IntegerLimits limits_of(const Integers& integers, int threads) {
  const Chunks chunks = pieces_of(integers.count);
  std::vector<IntegerLimits> limits(static_cast<size_t>(chunks.chunks));
  with_values(integers, [&](const auto* values) {
    for_tasks(chunks.chunks, threads, [&](int64_t chunk, int) {
      const int64_t begin = chunks.begin(chunk), end = chunks.begin(chunk + 1);
      const auto* descent = std::is_sorted_until(values + std::max<int64_t>(begin - 1, 0), values + end);
      // Four of each, which do not wait for each other.
      auto first = values[begin];
      decltype(first) least[4] = {first, first, first, first}, most[4] = {first, first, first, first};
      int64_t i = begin;
      for (; i + 4 <= end; i += 4) {
        for (int k = 0; k < 4; ++k) {
          least[k] = std::min(least[k], values[i + k]);
          most[k] = std::max(most[k], values[i + k]);
        }
      }
      for (; i < end; ++i) {
        least[0] = std::min(least[0], values[i]);
        most[0] = std::max(most[0], values[i]);
      }
      limits[static_cast<size_t>(chunk)] = {*std::min_element(least, least + 4), *std::max_element(most, most + 4),
                                            descent == values + end};
    });
  });
  IntegerLimits all = limits.front();
  for (const IntegerLimits& each : limits) {
    all = {std::min(all.least, each.least), std::max(all.most, each.most), all.ascends && each.ascends};
  }
  return all;
}

SortedIntegers::SortedIntegers(const Integers& integers, IntegerLimits limits, bool descending, bool numbered)
    : integers_(integers),
      limits_(limits),
      descending_(descending),
      numbered_(numbered),
      keys_(integers.count, std::bit_width(limits.span()), numbered ? bits_below(integers.count) : 0) {}

bool SortedIntegers::sort(int threads) {
  const auto sorted = [&](const auto& key_of) {
    return numbered_ ? keys_.sort(key_of, Place(), threads) : keys_.sort(key_of, NoNote(), threads);
  };
  return with_values(integers_, [&](const auto* values) {
    if (descending_) return sorted([=, most = limits_.most](int64_t i) { return distance(values[i], most); });
    return sorted([=, least = limits_.least](int64_t i) { return distance(least, values[i]); });
  });
}

void SortedIntegers::write_values(void* values, bool once, int threads) const {
  const auto write = [&](auto* to, auto value_of) {
    keys_.for_buckets(threads, [=](const auto* words, const SortedKeys::Bucket& bucket) {
      if (!once) {
        for (int64_t i = 0; i < bucket.count; ++i) to[bucket.first + i] = value_of(bucket.key(words[i]));
        return;
      }
      // Each is written as often as it is there: a branch would be predicted wrongly.
      auto* next = to + bucket.first_distinct - 1;
      for (int64_t i = 0; i < bucket.count; ++i) {
        next += bucket.begins(words, i);
        *next = value_of(bucket.key(words[i]));
      }
    });
  };
  const auto write_as = [&](auto* to) {
    using Value = std::remove_pointer_t<decltype(to)>;
    const auto least = static_cast<uint64_t>(limits_.least), most = static_cast<uint64_t>(limits_.most);
    descending_ ? write(to, [=](uint64_t key) { return static_cast<Value>(most - key); })
                : write(to, [=](uint64_t key) { return static_cast<Value>(least + key); });
  };
  integers_.is_wide ? write_as(static_cast<int64_t*>(values)) : write_as(static_cast<int32_t*>(values));
}

DistinctIntegers::DistinctIntegers(const Integers& integers, IntegerLimits limits, bool numbered, int threads)
    : limits_(limits), is_wide_(integers.is_wide) {
  const auto places = static_cast<int64_t>(limits_.span()) + 1;
  marks_ = zeros(places, threads);
  auto* marks = marks_.as<uint8_t>();
  mark_all(integers, limits_, marks, threads);
  const Chunks pieces = pieces_of(places);
  before_.assign(static_cast<size_t>(pieces.chunks) + 1, 0);
  for_tasks(pieces.chunks, threads, [&](int64_t piece, int) {
    before_[static_cast<size_t>(piece) + 1] =
        std::count(marks + pieces.begin(piece), marks + pieces.begin(piece + 1), uint8_t{1});
  });
  for (size_t piece = 1; piece < before_.size(); ++piece) before_[piece] += before_[piece - 1];
  if (!numbered) return;
  numbers_ = Block(places * static_cast<int64_t>(sizeof(int32_t)));
  if (!numbers_) throw std::bad_alloc();
  for_tasks(pieces.chunks, threads, [&, numbers = numbers_.as<int32_t>()](int64_t piece, int) {
    auto next = static_cast<int32_t>(before_[static_cast<size_t>(piece)]);
    for_chunk(pieces, piece, [=, &next](int64_t place) {
      const int32_t mark = marks[place];
      numbers[place] = next - (mark ^ 1) * (next + 1);
      next += mark;
    });
  });
}

void DistinctIntegers::write_values(void* values, int threads) const {
  const Chunks pieces = pieces_of(static_cast<int64_t>(limits_.span()) + 1);
  const auto write = [&](auto* to) {
    using Value = std::remove_pointer_t<decltype(to)>;
    for_tasks(pieces.chunks, threads, [=, this, marks = marks_.as<uint8_t>()](int64_t piece, int) {
      // Only the next place depends on the marks, until all are written: a branch would be predicted wrongly.
      int64_t next = before_[static_cast<size_t>(piece)], end = before_[static_cast<size_t>(piece) + 1];
      for (int64_t place = pieces.begin(piece); next < end; ++place) {
        to[next] = static_cast<Value>(static_cast<uint64_t>(limits_.least) + static_cast<uint64_t>(place));
        next += marks[place];
      }
    });
  };
  is_wide_ ? write(static_cast<int64_t*>(values)) : write(static_cast<int32_t*>(values));
}

bool DistinctIntegers::write_inverse(const Integers& integers, int64_t* inverse, int threads) const {
  std::atomic<bool> unchanged{true};
  const Chunks chunks = pieces_of(integers.count);
  with_values(integers, [&](const auto* values) {
    for_tasks(chunks.chunks, threads, [&](int64_t chunk, int) {
      int64_t least = 0;
      for_chunk(chunks, chunk, [&, numbers = numbers_.as<int32_t>(), span = limits_.span()](int64_t i) {
        const uint64_t place = std::min(distance(limits_.least, values[i]), span);
        inverse[i] = numbers[place];
        least = std::min(least, inverse[i]);
      });
      if (least < 0) unchanged.store(false, std::memory_order_relaxed);
    });
  });
  return unchanged.load();
}

void count_numbers(const int64_t* numbers, int64_t count, int64_t groups, int64_t* counts, int threads) {
  // Each chunk counts into a table of its own, which it has to be longer than.
  const Chunks chunks{count, std::clamp<int64_t>(count / std::max(groups, kEdgesPerThread), 1, threads)};
  Block others(groups * (chunks.chunks - 1) * static_cast<int64_t>(sizeof(int64_t)));
  if (chunks.chunks > 1 && !others) throw std::bad_alloc();
  for_tasks(chunks.chunks, threads, [&](int64_t chunk, int) {
    int64_t* own = chunk == 0 ? counts : others.as<int64_t>() + (chunk - 1) * groups;
    std::fill_n(own, groups, 0);
    for_chunk(chunks, chunk, [=](int64_t i) { ++own[numbers[i]]; });
  });
  const Chunks pieces = pieces_of(groups);
  for_tasks(chunks.chunks > 1 ? pieces.chunks : 0, threads, [&](int64_t piece, int) {
    for (int64_t other = 1; other < chunks.chunks; ++other) {
      const int64_t* from = others.as<int64_t>() + (other - 1) * groups;
      for_chunk(pieces, piece, [=](int64_t group) { counts[group] += from[group]; });
    }
  });
}

}  // namespace onehop
