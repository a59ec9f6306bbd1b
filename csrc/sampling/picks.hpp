// Which of a row's edges are drawn.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "buffer.hpp"
#include "node_table.hpp"
#include "onehop/random_stream.hpp"

namespace onehop {

// Edges [begin, begin + population) of a row, of which `count` are drawn.
struct Picks {
  int64_t begin, population, count;
};

// Draws from one row after another. Each thread has its own, for the memory that some ways need; `reserve` makes it
// beforehand, so that drawing allocates nothing.
class Picker {
 public:
  // Up to so many picks are compared with each other; more are noted in a bitmap.
  static constexpr int64_t kMostCompared = 32;

  // For rows of up to `population` edges, of which up to `count` are drawn, those with the smallest keys if `by_key`.
  void reserve(int64_t population, int64_t count, bool by_key) {
    if (by_key) {
      candidates_.reserve(population);
      repeats_.reserve(population);
    } else if (count > kMostCompared) {
      const int64_t words = (population + 63) / 64, before = taken_.size();
      if (words > before) std::fill_n(taken_.extend(words - before), words - before, uint64_t{0});
    }
  }

  static void all(const Picks& picks, int64_t* out) {
    for (int64_t i = 0; i < picks.population; ++i) out[i] = picks.begin + i;
  }

  static void with_replacement(const Picks& picks, RandomStream random, int64_t* out) {
    for (int64_t i = 0; i < picks.count; ++i) {
      out[i] = picks.begin + static_cast<int64_t>(random.below(static_cast<uint64_t>(picks.population)));
    }
  }

  // Robert Floyd's algorithm: J. Bentley, "Programming Pearls: A sample of brilliance", CACM 30(9), 1987.
  void without_replacement(const Picks& picks, RandomStream random, int64_t* out) {
    const bool compared = picks.count <= kMostCompared;
    for (int64_t i = 0; i < picks.count; ++i) {
      const int64_t last = picks.population - picks.count + i;
      auto drawn = static_cast<int64_t>(random.below(static_cast<uint64_t>(last) + 1));
      const bool again = compared ? std::find(out, out + i, picks.begin + drawn) != out + i : is_taken(drawn);
      if (again) drawn = last;
      if (!compared) taken_[drawn / 64] |= uint64_t{1} << drawn % 64;
      out[i] = picks.begin + drawn;
    }
    if (compared) return;
    for (int64_t i = 0; i < picks.count; ++i) taken_[(out[i] - picks.begin) / 64] = 0;
  }

  // Each pick as likely as its weight says. `running` are the sums of weights from the first edge of the row on.
  static void weighted_with_replacement(const Picks& picks, const double* running, RandomStream random, int64_t* out) {
    const double *begin = running + picks.begin, *end = begin + picks.population;
    const double total = end[-1];
    for (int64_t i = 0; i < picks.count; ++i) {
      const double* found = std::upper_bound(begin, end, random.between0and1() * total);
      // The product may be rounded up to the total: then it is the last edge that has a weight.
      if (found == end) found = std::lower_bound(begin, end, total);
      // The end again if the rows were written to since the sums were made.
      out[i] = picks.begin + std::min(found - begin, picks.population - 1);
    }
  }

  // One draw after another from what is left, each as likely as its weight: the edges with the smallest of so many
  // exponentially distributed numbers. P. Efraimidis, P. Spirakis, "Weighted random sampling with a reservoir",
  // Information Processing Letters 97(5), 2006. Edges of weight 0 come last. In ascending order.
  void weighted_without_replacement(const Picks& picks, const double* weight, RandomStream random, int64_t* out) {
    smallest(picks, [&](int64_t edge) { return -std::log(random.between0and1()) / weight[edge]; }, out);
  }

  // The edges whose sources have the smallest random numbers. These depend on `key` and the source alone, so rows share
  // sources, while each row for itself draws any `count` of its edges as often as any others. A source that a row has
  // several times has a further number each time. M. Balin, U. Catalyurek, "Layer-neighbor sampling: Defusing
  // neighborhood explosion in GNNs", NeurIPS 2023: LABOR-0, with a fixed count by sequential Poisson sampling.
  template <class Source>
  void by_source(const Picks& picks, uint64_t key, const Source& source, int64_t* out) {
    if (ascends(picks, source)) {
      smallest(
          picks, [&](int64_t e) { return RandomStream(key, static_cast<uint64_t>(source(e))).between0and1(); }, out);
      return;
    }
    met_.begin();
    repeats_.clear();
    int32_t* repeats = repeats_.extend(picks.population);
    const auto number = [&](int64_t edge) {
      const auto found = static_cast<uint64_t>(source(edge));
      const auto place = static_cast<int32_t>(edge - picks.begin);
      const auto [first, is_new] = met_.insert(found, place);
      if (is_new) {
        repeats[place] = 0;
        return RandomStream(key, found).between0and1();
      }
      return RandomStream(key, NodeTable::key_of(++repeats[first], static_cast<int64_t>(found))).between0and1();
    };
    smallest(picks, number, out);
  }

 private:
  struct Candidate {
    double key;
    int64_t edge;
    bool operator<(const Candidate& other) const { return key < other.key || (key == other.key && edge < other.edge); }
  };

  // Whether the row has each source once, in ascending order, as rows of sorted edges have.
  template <class Source>
  static bool ascends(const Picks& picks, const Source& source) {
    int64_t before = -1;
    for (int64_t i = 0; i < picks.population; ++i) {
      const int64_t found = source(picks.begin + i);
      if (found <= before) return false;
      before = found;
    }
    return true;
  }

  // The edges with the smallest keys, in ascending order of edges.
  template <class Key>
  void smallest(const Picks& picks, const Key& key, int64_t* out) {
    candidates_.clear();
    Candidate* of_row = candidates_.extend(picks.population);
    for (int64_t i = 0; i < picks.population; ++i) of_row[i] = {key(picks.begin + i), picks.begin + i};
    std::nth_element(of_row, of_row + picks.count, of_row + picks.population);
    for (int64_t i = 0; i < picks.count; ++i) out[i] = of_row[i].edge;
    std::sort(out, out + picks.count);
  }

  bool is_taken(int64_t drawn) const { return (taken_[drawn / 64] >> drawn % 64 & 1) != 0; }

  Buffer<uint64_t> taken_;  // a bit an edge; all 0 between rows
  Buffer<Candidate> candidates_;
  NodeTable met_;            // the sources of a row, with their first places
  Buffer<int32_t> repeats_;  // how often a source was met again, by its first place
};

}  // namespace onehop
