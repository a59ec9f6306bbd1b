// Sums over edges that are weighted by their two ends: a product of two rows, or their distance, a function of it, and
// the sum, in one pass. The weights of a chunk of a row's edges are on the stack; nothing is stored for edges.
#include "exponential.hpp"
#include "sweep.hpp"
#include "tables.hpp"

namespace onehop {
inline namespace ONEHOP_ISA {
namespace {

// Edges are processed in chunks: the sources' rows, read for the weights, are still in L1 when they are summed.
constexpr int64_t kStretchBytes = 16384;
constexpr int64_t kMostEdges = 64, kLeastEdges = 8;

// The vectors of a block; columns that the last one shares with the one before it count once.
template <class T, bool kDistance, int kLanes, int kVectors>
ONEHOP_INLINE Acc<T> compare(const T* row, const T* source, int64_t columns) {
  using A = Acc<T>;
  using V = Vector<A, kLanes>;
  const auto term = [&](int64_t begin) {
    const V x = load<T, kLanes>(row + begin), y = load<T, kLanes>(source + begin);
    if constexpr (kDistance) return (x - y) * (x - y);
    return x * y;
  };
  V sum = splat<A, kLanes>(0);
#pragma GCC unroll 16
  for (int v = 0; v < kVectors - 1; ++v) sum += term(v * kLanes);
  const int64_t begin = vector_begin<kLanes, kVectors>(kVectors - 1, columns);
  V last = term(begin);
  if constexpr (kLanes > 1) last = without_first<A, kLanes>(last, (kVectors - 1) * kLanes - begin);
  return sum_of_lanes<A, kLanes>(sum + last);
}

// One call, for the columns of a block.
template <class T>
struct Pairs {
  const int32_t* col;
  const T* row;      // of the destination
  const T* sources;  // of the block's first column
  int64_t stride;
  int64_t columns;
  int prefetch;
};

// `kDistance`: edges are compared by their distance, and messages are differences; else by a product, and messages are
// sources.
template <class T, bool kDistance>
struct PickBlock {
  // Adds each edge's product or squared distance to scores.
  template <int kLanes, int kVectors>
  static void score(const Pairs<T>& pairs, int64_t e, int64_t edge_end, Acc<T>* scores) {
    constexpr int64_t kBlockBytes = int64_t{kLanes} * kVectors * static_cast<int64_t>(sizeof(T));
    for (; e < edge_end; ++e) {
      const T* coming = pairs.sources + pairs.col[e + pairs.prefetch] * pairs.stride;
      prefetch_lines<kBlockBytes>(reinterpret_cast<const char*>(coming));
      if constexpr (kBlockBytes % kLineBytes != 0) __builtin_prefetch(coming + pairs.columns - 1, 0, kKeepRows);
      const T* source = pairs.sources + pairs.col[e] * pairs.stride;
      *scores++ += compare<T, kDistance, kLanes, kVectors>(pairs.row, source, pairs.columns);
    }
  }

  // Adds the weighted messages to sums.
  template <int kLanes, int kVectors>
  static void add(const Pairs<T>& pairs, int64_t e, int64_t edge_end, const Acc<T>* weights, Acc<T>* sums) {
    using A = Acc<T>;
    using V = Vector<A, kLanes>;
    V state[kVectors];
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      state[v] = load<A, kLanes>(sums + vector_begin<kLanes, kVectors>(v, pairs.columns));
    }
    for (; e < edge_end; ++e) {
      const T* source = pairs.sources + pairs.col[e] * pairs.stride;
      const V weight = splat<A, kLanes>(*weights++);
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) {
        const int64_t begin = vector_begin<kLanes, kVectors>(v, pairs.columns);
        V message = load<T, kLanes>(source + begin);
        if constexpr (kDistance) message = load<T, kLanes>(pairs.row + begin) - message;
        state[v] += weight * message;
      }
    }
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      store<A, kLanes>(sums + vector_begin<kLanes, kVectors>(v, pairs.columns), state[v]);
    }
  }

  struct Steps {
    void (*score)(const Pairs<T>&, int64_t, int64_t, Acc<T>*);
    void (*add)(const Pairs<T>&, int64_t, int64_t, const Acc<T>*, Acc<T>*);
  };
  template <int kLanes, int kVectors>
  Steps operator()() const {
    return {score<kLanes, kVectors>, add<kLanes, kVectors>};
  }
};

// From scores to weights, in place; `scores` has room for whole vectors.
template <class A, PairRule kRule>
ONEHOP_INLINE void weigh(A* scores, int64_t edges, A factor) {
  constexpr int kLanes = kFullLanes<A>;
  using V = Vector<A, kLanes>;
  const V one = splat<A, kLanes>(1), scale = splat<A, kLanes>(factor);
  for (int64_t i = 0; i < edges; i += kLanes) {
    V score = load<A, kLanes>(scores + i) * scale;
    if constexpr (kRule == PairRule::sigmoid) score = one / (one + exponential<A, kLanes>(-score));
    if constexpr (kRule == PairRule::tdist) score = one / (one + score);
    store<A, kLanes>(scores + i, score);
  }
}

// The sum over the edges [e, edge_end) of a row, into sums [width].
template <class T, PairRule kRule>
void sum_edges(const FusedmmArgs& args, const BlockCut<Acc<T>, kMostVectors>& blocks, int64_t row, int64_t e,
               int64_t edge_end, Acc<T>* sums) {
  using A = Acc<T>;
  const int64_t row_bytes = args.width * static_cast<int64_t>(sizeof(T));
  const int64_t stretch = smaller(larger(kStretchBytes / row_bytes, kLeastEdges), kMostEdges);
  const auto* target = static_cast<const T*>(args.row_vectors) + row * args.row_stride;
  const auto* sources = static_cast<const T*>(args.col_vectors);
  const auto pairs_of = [&](const ColumnBlock& block) {
    return Pairs<T>{args.csr->col_data(), target + block.begin, sources + block.begin,
                    args.col_stride,      block.columns,        args.prefetch};
  };
  const auto steps_of = [](const ColumnBlock& block) {
    return with_block<A, kMostVectors>(block, PickBlock<T, kRule == PairRule::tdist>{});
  };
  const ColumnBlock last = blocks[blocks.blocks - 1];
  const auto inner = steps_of(blocks[0]), outer = steps_of(last);
  std::memset(sums, 0, static_cast<size_t>(args.width) * sizeof(A));
  for (; e < edge_end; e += stretch) {
    const int64_t end = smaller(e + stretch, edge_end);
    A scores[kMostEdges] = {};
    for (int64_t b = 0; b + 1 < blocks.blocks; ++b) inner.score(pairs_of(blocks[b]), e, end, scores);
    outer.score(pairs_of(last), e, end, scores);
    weigh<A, kRule>(scores, end - e, static_cast<A>(args.factor));
    for (int64_t b = 0; b + 1 < blocks.blocks; ++b) {
      inner.add(pairs_of(blocks[b]), e, end, scores, sums + b * blocks.step);
    }
    outer.add(pairs_of(last), e, end, scores, sums + last.begin);
  }
}

template <class T, PairRule kRule>
void run(const FusedmmArgs& args) {
  using A = Acc<T>;
  const WorkList& work = *args.work;
  const int64_t* rowptr = args.csr->rowptr_data();
  const BlockCut<A, kMostVectors> blocks(args.width);
  auto* slots = static_cast<A*>(args.slots);
  auto* out = static_cast<T*>(args.out);
  // Sums of 16-bit rows are kept wider until the row ends; others are kept in the result.
  const Block scratch(sizeof(T) == sizeof(A) ? 0 : args.threads * args.width * static_cast<int64_t>(sizeof(A)));
  const auto narrow = [&](const A* sums, T* to) {
    for (int64_t column = 0; column < args.width; ++column) store<T, 1>(to + column, sums[column]);
  };
  for_items(work, args.threads, [&](const WorkItem& item, int thread) {
    const auto whole = [&](int64_t row, int64_t row_end) {
      for (; row < row_end; ++row) {
        T* to = out + row * args.width;
        if constexpr (sizeof(T) == sizeof(A)) {
          sum_edges<T, kRule>(args, blocks, row, rowptr[row], rowptr[row + 1], to);
        } else {
          A* sums = scratch.as<A>() + thread * args.width;
          sum_edges<T, kRule>(args, blocks, row, rowptr[row], rowptr[row + 1], sums);
          narrow(sums, to);
        }
      }
    };
    const auto part = [&](int64_t row, int64_t e, int64_t edge_end, int64_t slot) {
      sum_edges<T, kRule>(args, blocks, row, e, edge_end, slots + slot * args.width);
    };
    visit_rows(item, rowptr, whole, part);
  });
  for_cut_rows(work, args.threads, [&](const CutRow& cut) {
    A* total = slots + cut.slot_begin * args.width;
    for (int64_t slot = cut.slot_begin + 1; slot < cut.slot_end; ++slot) {
      for (int64_t column = 0; column < args.width; ++column) total[column] += slots[slot * args.width + column];
    }
    narrow(total, out + cut.row * args.width);
  });
}

}  // namespace

void fusedmm(const FusedmmArgs& args) {
  with_type(args.dtype, [&]<class T>(T) {
    switch (args.rule) {
      case PairRule::dot:
        return run<T, PairRule::dot>(args);
      case PairRule::sigmoid:
        return run<T, PairRule::sigmoid>(args);
      case PairRule::tdist:
        return run<T, PairRule::tdist>(args);
    }
  });
}

}  // namespace ONEHOP_ISA
}  // namespace onehop
