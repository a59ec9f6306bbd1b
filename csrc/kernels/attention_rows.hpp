// Operations of attention on the rows that a block of edges gathers, for all heads: scores, weighted sums, and the sums
// behind gradients. Every function processes one block of columns of each head, held in registers, and stores per-edge
// numbers head by head, kBlockEdges apart.
#pragma once

#include "sweep.hpp"

namespace onehop {
inline namespace ONEHOP_ISA {

// Most edges that are processed together: their rows stay in the caches between the passes over them.
inline constexpr int kBlockEdges = 64;

// Vectors of a head's columns held at a time; up to three of each are in registers.
inline constexpr int kHeadVectors = 4;

// Rows chosen by an index; `ahead` is the prefetch distance in edges, 0 if they are in the cache already.
template <class S>
struct Gathered {
  const S* base;
  int64_t stride;
  const int32_t* index;
  int64_t ahead = 0;

  ONEHOP_INLINE const S* row(int64_t e) const { return base + index[e] * stride; }
  // Prefetches a block of columns.
  template <int64_t kBytes>
  ONEHOP_INLINE void ask(int64_t e, int64_t begin, int64_t columns) const {
    if (ahead == 0) return;
    const S* coming = row(e + ahead) + begin;
    prefetch_lines<kBytes>(reinterpret_cast<const char*>(coming));
    if constexpr (kBytes % kLineBytes != 0 && kBytes > 4) __builtin_prefetch(coming + columns - 1, 0, kKeepRows);
  }
};

// The heads of a row, and the block of columns of each.
struct HeadBlock {
  int64_t heads, width;    // of the row
  int64_t begin, columns;  // of the block, in each head
};

template <class A>
ONEHOP_INLINE Vector<A, 4> combine_pairs(Vector<A, 4> a, Vector<A, 4> b) {
  return __builtin_shufflevector(a, b, 0, 4, 1, 5) + __builtin_shufflevector(a, b, 2, 6, 3, 7);
}

// The sums of lanes of four vectors, each added up in the order of sum_of_lanes.
template <class A, int kLanes>
ONEHOP_INLINE Vector<A, 4> sums_of_lanes(const Vector<A, kLanes>* v) {
  if constexpr (kLanes > 4) {
    using Half = Vector<A, kLanes / 2>;
    struct Halves {
      Half low, high;
    };
    Half folded[4];
    for (int i = 0; i < 4; ++i) {
      const auto halves = bit_cast<Halves>(v[i]);
      folded[i] = halves.low + halves.high;
    }
    return sums_of_lanes<A, kLanes / 2>(folded);
  } else if constexpr (kLanes == 4) {
    const auto first = combine_pairs<A>(v[0], v[1]), second = combine_pairs<A>(v[2], v[3]);
    return __builtin_shufflevector(first, second, 0, 1, 4, 5) + __builtin_shufflevector(first, second, 2, 3, 6, 7);
  } else {
    return Vector<A, 4>{sum_of_lanes<A, kLanes>(v[0]), sum_of_lanes<A, kLanes>(v[1]), sum_of_lanes<A, kLanes>(v[2]),
                        sum_of_lanes<A, kLanes>(v[3])};
  }
}

template <class A, int kLanes>
ONEHOP_INLINE Vector<A, kLanes> leaky(Vector<A, kLanes> z, Vector<A, kLanes> slope) {
  return z > splat<A, kLanes>(0) ? z : z * slope;
}

// own . row
template <class Own>
struct DotTerm {
  using A = Acc<Own>;
  const Own* own;

  template <int kLanes, int kVectors>
  struct Head {
    Vector<A, kLanes> own[kVectors];
    ONEHOP_INLINE Head(const DotTerm& term, int64_t begin, int64_t columns) {
      for (int v = 0; v < kVectors; ++v) {
        own[v] = load<Own, kLanes>(term.own + begin + vector_begin<kLanes, kVectors>(v, columns));
      }
    }
    ONEHOP_INLINE Vector<A, kLanes> operator()(int v, Vector<A, kLanes> row, int64_t, int64_t) const {
      return own[v] * row;
    }
  };
};

// att . leaky(own + row)
template <class Own>
struct LeakyTerm {
  using A = Acc<Own>;
  const Own* own;
  const A* att;
  A slope;

  template <int kLanes, int kVectors>
  struct Head {
    Vector<A, kLanes> own[kVectors], att[kVectors], slope;
    ONEHOP_INLINE Head(const LeakyTerm& term, int64_t begin, int64_t columns) : slope(splat<A, kLanes>(term.slope)) {
      for (int v = 0; v < kVectors; ++v) {
        const int64_t at = begin + vector_begin<kLanes, kVectors>(v, columns);
        own[v] = load<Own, kLanes>(term.own + at);
        att[v] = load<A, kLanes>(term.att + at);
      }
    }
    ONEHOP_INLINE Vector<A, kLanes> operator()(int v, Vector<A, kLanes> row, int64_t, int64_t) const {
      return att[v] * leaky<A, kLanes>(own[v] + row, slope);
    }
  };
};

// (own + edge) . row, with rows of edges that lie one after another
template <class Own>
struct EdgeDotTerm {
  using A = Acc<Own>;
  const Own* own;
  const A* edge;
  int64_t edge_stride;

  template <int kLanes, int kVectors>
  struct Head {
    Vector<A, kLanes> own[kVectors];
    const A* edge;
    int64_t edge_stride;
    ONEHOP_INLINE Head(const EdgeDotTerm& term, int64_t begin, int64_t columns)
        : edge(term.edge + begin), edge_stride(term.edge_stride) {
      for (int v = 0; v < kVectors; ++v) {
        own[v] = load<Own, kLanes>(term.own + begin + vector_begin<kLanes, kVectors>(v, columns));
      }
    }
    ONEHOP_INLINE Vector<A, kLanes> operator()(int v, Vector<A, kLanes> row, int64_t e, int64_t at) const {
      return (own[v] + load<A, kLanes>(edge + e * edge_stride + at)) * row;
    }
  };
};

// out[head][e] = the term, summed over the block's columns; with `add`, added to the existing value.
template <class Term, class S, int kLanes, int kVectors>
void score_rows(const Term& term, const Gathered<S>& rows, int64_t edges, const HeadBlock& block, bool add,
                Acc<S>* out) {
  using A = Acc<S>;
  using V = Vector<A, kLanes>;
  constexpr int64_t kBytes = int64_t{kLanes} * kVectors * static_cast<int64_t>(sizeof(S));
  const int64_t columns = block.columns;
  const int64_t shared = (kVectors - 1) * kLanes - vector_begin<kLanes, kVectors>(kVectors - 1, columns);
  for (int64_t head = 0; head < block.heads; ++head, out += kBlockEdges) {
    const int64_t begin = head * block.width + block.begin;
    const typename Term::template Head<kLanes, kVectors> own(term, begin, columns);
    const auto of_edge = [&](int64_t e) {
      rows.template ask<kBytes>(e, begin, columns);
      const S* row = rows.row(e) + begin;
      V sum = splat<A, kLanes>(0);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        const int64_t at = vector_begin<kLanes, kVectors>(v, columns);
        V part = own(v, load<S, kLanes>(row + at), e, at);
        if constexpr (kLanes > 1) {
          // Lanes that the previous vector has counted.
          if (v == kVectors - 1 && shared > 0) part = without_first<A, kLanes>(part, shared);
        }
        sum += part;
      }
      return sum;
    };
    const auto of_four = [&](int64_t e) {
      V sums[4];
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) sums[i] = of_edge(e + i);
      auto four = sums_of_lanes<A, kLanes>(sums);
      if (add) four += load_raw<A, 4>(out + e);
      store_raw<A, 4>(out + e, four);
    };
    int64_t e = 0;
    for (; e + 4 <= edges; e += 4) of_four(e);
    if (!add && e + 2 <= edges && edges > 4) {
      of_four(edges - 4);  // some again, with the same result
      continue;
    }
    for (; e < edges; ++e) {
      const A sum = sum_of_lanes<A, kLanes>(of_edge(e));
      out[e] = add ? out[e] + sum : sum;
    }
  }
}

// sum = rescale[head] * sum (without `rescale`: 0) + the sum over edges of weight[head][e] * row. With one
// weight for all heads, weight_stride is 0.
template <class S, int kLanes, int kVectors>
void sum_rows(const Gathered<S>& rows, int64_t edges, const HeadBlock& block, const Acc<S>* weight,
              int64_t weight_stride, const Acc<S>* rescale, Acc<S>* sum) {
  using A = Acc<S>;
  using V = Vector<A, kLanes>;
  constexpr int kChains = kVectors <= 2 ? 2 : 1;  // independent sums
  constexpr int64_t kBytes = int64_t{kLanes} * kVectors * static_cast<int64_t>(sizeof(S));
  for (int64_t head = 0; head < block.heads; ++head, weight += weight_stride) {
    const int64_t begin = head * block.width + block.begin;
    V sums[kChains][kVectors];
    for (int v = 0; v < kVectors; ++v) {
      for (int chain = 0; chain < kChains; ++chain) sums[chain][v] = splat<A, kLanes>(0);
      if (rescale != nullptr) {
        const A* before = sum + begin + vector_begin<kLanes, kVectors>(v, block.columns);
        sums[0][v] = load<A, kLanes>(before) * splat<A, kLanes>(rescale[head]);
      }
    }
    const auto take = [&](int64_t e, V* to) {
      rows.template ask<kBytes>(e, begin, block.columns);
      const S* row = rows.row(e) + begin;
      const V factor = splat<A, kLanes>(weight[e]);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        to[v] += factor * load<S, kLanes>(row + vector_begin<kLanes, kVectors>(v, block.columns));
      }
    };
    int64_t e = 0;
    for (; e + kChains <= edges; e += kChains) {
#pragma GCC unroll 2
      for (int chain = 0; chain < kChains; ++chain) take(e + chain, sums[chain]);
    }
    if (e < edges) take(e, sums[0]);
    for (int v = 0; v < kVectors; ++v) {
      V all = sums[0][v];
      if constexpr (kChains > 1) all += sums[1][v];
      store<A, kLanes>(sum + begin + vector_begin<kLanes, kVectors>(v, block.columns), all);
    }
  }
}

// slopes += the sum over edges of weight[head][e] * leaky'(own + row).
template <class Own, class S, int kLanes, int kVectors>
void sum_slopes(const Own* own, Acc<S> slope, const Gathered<S>& rows, int64_t edges, const HeadBlock& block,
                const Acc<S>* weight, Acc<S>* slopes) {
  using A = Acc<S>;
  using V = Vector<A, kLanes>;
  for (int64_t head = 0; head < block.heads; ++head, weight += kBlockEdges) {
    const int64_t begin = head * block.width + block.begin;
    V target[kVectors], steep[kVectors], before[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      const int64_t at = begin + vector_begin<kLanes, kVectors>(v, block.columns);
      target[v] = load<Own, kLanes>(own + at);
      before[v] = load<A, kLanes>(slopes + at);
      steep[v] = splat<A, kLanes>(0);
    }
    // Sums for leaky' = 1, and for all edges: the slope is applied to the difference, once.
    A all = 0;
    for (int64_t e = 0; e < edges; ++e) {
      const S* row = rows.row(e) + begin;
      const V factor = splat<A, kLanes>(weight[e]);
      all += weight[e];
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        const V z = target[v] + load<S, kLanes>(row + vector_begin<kLanes, kVectors>(v, block.columns));
        steep[v] = z > splat<A, kLanes>(0) ? steep[v] + factor : steep[v];
      }
    }
    for (int v = 0; v < kVectors; ++v) {
      const V flat = (splat<A, kLanes>(all) - steep[v]) * splat<A, kLanes>(slope);
      store<A, kLanes>(slopes + begin + vector_begin<kLanes, kVectors>(v, block.columns), before[v] + steep[v] + flat);
    }
  }
}

// A head's columns cut into blocks, and the functions for full blocks and for the last one.
template <class A, class Function>
struct PerBlock {
  BlockCut<A, kHeadVectors> cut{1};
  Function inner = nullptr, last = nullptr;

  template <class Pick>
  PerBlock(int64_t width, const Pick& pick) : cut(width) {
    inner = with_block<A, kHeadVectors>(cut[0], pick);
    last = with_block<A, kHeadVectors>(cut[cut.blocks - 1], pick);
  }
  // Calls run(function, block, whether it is not the first) for every block of columns.
  template <class Run>
  ONEHOP_INLINE void operator()(int64_t heads, const Run& run) const {
    for (int64_t b = 0; b < cut.blocks; ++b) {
      const ColumnBlock block = cut[b];
      run(b + 1 < cut.blocks ? inner : last, HeadBlock{heads, cut.columns, block.begin, block.columns}, b > 0);
    }
  }
};

template <class Term, class S>
class ScoreRows {
 public:
  explicit ScoreRows(int64_t width) : blocks_(width, Pick{}) {}
  ONEHOP_INLINE void operator()(const Term& term, const Gathered<S>& rows, int64_t edges, int64_t heads,
                                Acc<S>* out) const {
    blocks_(heads, [&](Function f, const HeadBlock& block, bool add) { f(term, rows, edges, block, add, out); });
  }

 private:
  using Function = void (*)(const Term&, const Gathered<S>&, int64_t, const HeadBlock&, bool, Acc<S>*);
  struct Pick {
    template <int kLanes, int kVectors>
    Function operator()() const {
      return score_rows<Term, S, kLanes, kVectors>;
    }
  };
  PerBlock<Acc<S>, Function> blocks_;
};

template <class S>
class SumRows {
 public:
  explicit SumRows(int64_t width) : blocks_(width, Pick{}) {}
  ONEHOP_INLINE void operator()(const Gathered<S>& rows, int64_t edges, int64_t heads, const Acc<S>* weight,
                                int64_t weight_stride, const Acc<S>* rescale, Acc<S>* sum) const {
    blocks_(heads, [&](Function f, const HeadBlock& block, bool) {
      f(rows, edges, block, weight, weight_stride, rescale, sum);
    });
  }

 private:
  using Function = void (*)(const Gathered<S>&, int64_t, const HeadBlock&, const Acc<S>*, int64_t, const Acc<S>*,
                            Acc<S>*);
  struct Pick {
    template <int kLanes, int kVectors>
    Function operator()() const {
      return sum_rows<S, kLanes, kVectors>;
    }
  };
  PerBlock<Acc<S>, Function> blocks_;
};

template <class Own, class S>
class SumSlopes {
 public:
  explicit SumSlopes(int64_t width) : blocks_(width, Pick{}) {}
  ONEHOP_INLINE void operator()(const Own* own, Acc<S> slope, const Gathered<S>& rows, int64_t edges, int64_t heads,
                                const Acc<S>* weight, Acc<S>* slopes) const {
    blocks_(heads,
            [&](Function f, const HeadBlock& block, bool) { f(own, slope, rows, edges, block, weight, slopes); });
  }

 private:
  using Function = void (*)(const Own*, Acc<S>, const Gathered<S>&, int64_t, const HeadBlock&, const Acc<S>*, Acc<S>*);
  struct Pick {
    template <int kLanes, int kVectors>
    Function operator()() const {
      return sum_slopes<Own, S, kLanes, kVectors>;
    }
  };
  PerBlock<Acc<S>, Function> blocks_;
};

}  // namespace ONEHOP_ISA
}  // namespace onehop
