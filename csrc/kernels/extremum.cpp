// Gradients of max and min. An edge gets a share of a destination's gradient if its message equals the extremum;
// `share` is that gradient divided among the tied edges. Multiplying by 0 or 1, instead of selecting, propagates a
// share that is not finite as NaN, as the gradient of PyTorch's scatter_reduce does.
#include "sweep.hpp"
#include "tables.hpp"

namespace onehop {
inline namespace ONEHOP_ISA {
namespace {

// Effect of a weight on a message.
enum class Weight { none, factor, term };

// Three vectors are held for every one of the block.
constexpr int kVectors = kMostVectors / 4;

template <class T>
using Sweep = void (*)(const ExtremumGradArgs&, int64_t row, int64_t e, int64_t edge_end, int64_t column,
                       int64_t columns, const Acc<T>* weight, Acc<T>* out);

template <class T, int kLanes>
ONEHOP_INLINE Vector<Acc<T>, kLanes> load_extremum(const ExtremumGradArgs& args, int64_t place) {
  if (sizeof(T) == 2 && !args.extremum_is_acc) return load<T, kLanes>(static_cast<const T*>(args.extremum) + place);
  return load<Acc<T>, kLanes>(static_cast<const Acc<T>*>(args.extremum) + place);
}

// 1 where the message, weight * x or weight + x, is the extremum, else 0.
template <class T, Weight kWeight, int kLanes>
ONEHOP_INLINE Vector<Acc<T>, kLanes> hits(const ExtremumGradArgs& args, Vector<Acc<T>, kLanes> x,
                                          Vector<Acc<T>, kLanes> extremum, Acc<T> weight) {
  using A = Acc<T>;
  auto message = x;
  if constexpr (kWeight != Weight::none) {
    if constexpr (kWeight == Weight::factor) message *= splat<A, kLanes>(weight);
    if constexpr (kWeight == Weight::term) message += splat<A, kLanes>(weight);
    if (sizeof(T) == 2 && !args.extremum_is_acc) message = rounded<T, kLanes>(message);
  }
  return message == extremum ? splat<A, kLanes>(1) : splat<A, kLanes>(0);
}

// On the transposed graph: `row` is a source, its columns are destinations. Overwrites out[0..columns).
template <class T, Weight kWeight, int kLanes, int kCount>
void sweep_source(const ExtremumGradArgs& args, int64_t row, int64_t e, int64_t edge_end, int64_t column,
                  int64_t columns, const Acc<T>* weight, Acc<T>* out) {
  using A = Acc<T>;
  using V = Vector<A, kLanes>;
  constexpr int64_t kBlockBytes = int64_t{kLanes} * kCount * static_cast<int64_t>(sizeof(A));
  const int32_t* col = args.csr->col_data();
  const T* own = static_cast<const T*>(args.x) + row * args.x_stride + column;
  const A* share = static_cast<const A*>(args.share) + column;
  V x[kCount], sum[kCount];
  for (int v = 0; v < kCount; ++v) {
    x[v] = load<T, kLanes>(own + vector_begin<kLanes, kCount>(v, columns));
    sum[v] = splat<A, kLanes>(0);
  }
  for (; e < edge_end; ++e) {
    const int64_t target = col[e];
    const int64_t coming = col[e + args.prefetch];
    prefetch_lines<kBlockBytes>(reinterpret_cast<const char*>(share + coming * args.width));
    const int64_t extremum_bytes = sizeof(T) == 2 && !args.extremum_is_acc ? 2 : static_cast<int64_t>(sizeof(A));
    prefetch_lines<kBlockBytes>(static_cast<const char*>(args.extremum) +
                                (coming * args.extremum_stride + column) * extremum_bytes);
    const A w = kWeight != Weight::none ? weight[e] : A(1);
#pragma GCC unroll 4
    for (int v = 0; v < kCount; ++v) {
      const int64_t at = vector_begin<kLanes, kCount>(v, columns);
      const V extremum = load_extremum<T, kLanes>(args, target * args.extremum_stride + column + at);
      V part = hits<T, kWeight, kLanes>(args, x[v], extremum, w) * load<A, kLanes>(share + target * args.width + at);
      if constexpr (kWeight == Weight::factor) part *= splat<A, kLanes>(w);
      sum[v] += part;
    }
  }
  for (int v = 0; v < kCount; ++v) store<A, kLanes>(out + vector_begin<kLanes, kCount>(v, columns), sum[v]);
}

// On the graph itself: adds the block's part to out[edge - first edge].
template <class T, Weight kWeight, int kLanes, int kCount>
void sweep_weight(const ExtremumGradArgs& args, int64_t row, int64_t e, int64_t edge_end, int64_t column,
                  int64_t columns, const Acc<T>* weight, Acc<T>* out) {
  using A = Acc<T>;
  using V = Vector<A, kLanes>;
  constexpr int64_t kBlockBytes = int64_t{kLanes} * kCount * static_cast<int64_t>(sizeof(T));
  const int32_t* col = args.csr->col_data();
  const T* sources = static_cast<const T*>(args.x) + column;
  const A* own = static_cast<const A*>(args.share) + row * args.width + column;
  V extremum[kCount], share[kCount];
  for (int v = 0; v < kCount; ++v) {
    const int64_t at = vector_begin<kLanes, kCount>(v, columns);
    extremum[v] = load_extremum<T, kLanes>(args, row * args.extremum_stride + column + at);
    share[v] = load<A, kLanes>(own + at);
  }
  for (; e < edge_end; ++e) {
    const T* source = sources + col[e] * args.x_stride;
    prefetch_lines<kBlockBytes>(reinterpret_cast<const char*>(sources + col[e + args.prefetch] * args.x_stride));
    V sum = splat<A, kLanes>(0);
#pragma GCC unroll 4
    for (int v = 0; v < kCount; ++v) {
      const int64_t at = vector_begin<kLanes, kCount>(v, columns);
      const V x = load<T, kLanes>(source + at);
      V part = hits<T, kWeight, kLanes>(args, x, extremum[v], weight[e]) * share[v];
      if constexpr (kWeight == Weight::factor) part *= x;
      if constexpr (kLanes > 1) {
        if (v == kCount - 1) part = without_first<A, kLanes>(part, (kCount - 1) * kLanes - at);
      }
      sum += part;
    }
    *out++ += sum_of_lanes<A, kLanes>(sum);
  }
}

template <class T, Weight kWeight>
struct PickSource {
  template <int kLanes, int kCount>
  Sweep<T> operator()() const {
    return sweep_source<T, kWeight, kLanes, kCount>;
  }
};

template <class T, Weight kWeight>
struct PickWeight {
  template <int kLanes, int kCount>
  Sweep<T> operator()() const {
    return sweep_weight<T, kWeight, kLanes, kCount>;
  }
};

// Calls sweep for every block of columns of a row's edges [begin, end).
template <class A, class Call>
ONEHOP_INLINE void for_blocks(const BlockCut<A, kVectors>& blocks, const Call& call) {
  for (int64_t b = 0; b < blocks.blocks; ++b) call(blocks[b]);
}

template <class T, Weight kWeight>
void grad_source(const ExtremumGradArgs& args) {
  using A = Acc<T>;
  const WorkList& work = *args.work;
  const int64_t* rowptr = args.csr->rowptr_data();
  const BlockCut<A, kVectors> blocks(args.width);
  const Block scratch(kWeight != Weight::none ? args.threads * work.most_edges * static_cast<int64_t>(sizeof(A)) : 0);
  auto* out = static_cast<A*>(args.out);
  auto* slots = static_cast<A*>(args.slots);
  for_items(work, args.threads, [&](const WorkItem& item, int thread) {
    const A* weight = nullptr;
    if constexpr (kWeight != Weight::none) {
      A* staged = scratch.as<A>() + thread * work.most_edges;
      stage_weights(*args.csr, item, args.weight, args.weight_stride, true, nullptr, staged);
      weight = staged - item.edge_begin;
    }
    const auto edges = [&](int64_t row, int64_t begin, int64_t end, A* to) {
      for_blocks(blocks, [&](const ColumnBlock& block) {
        with_block<A, kVectors>(block, PickSource<T, kWeight>{})(args, row, begin, end, block.begin, block.columns,
                                                                 weight, to + block.begin);
      });
    };
    visit_rows(
        item, rowptr,
        [&](int64_t begin, int64_t end) {
          for (int64_t row = begin; row < end; ++row) edges(row, rowptr[row], rowptr[row + 1], out + row * args.width);
        },
        [&](int64_t row, int64_t begin, int64_t end, int64_t slot) {
          edges(row, begin, end, slots + slot * args.width);
        });
  });
  for_cut_rows(work, args.threads, [&](const CutRow& cut) {
    for (int64_t column = 0; column < args.width; ++column) {
      A sum = 0;
      for (int64_t slot = cut.slot_begin; slot < cut.slot_end; ++slot) sum += slots[slot * args.width + column];
      out[cut.row * args.width + column] = sum;
    }
  });
}

template <class T, Weight kWeight>
void grad_weight(const ExtremumGradArgs& args) {
  using A = Acc<T>;
  const WorkList& work = *args.work;
  const Csr& csr = *args.csr;
  const int64_t* rowptr = csr.rowptr_data();
  const BlockCut<A, kVectors> blocks(args.width);
  const int64_t item_bytes = 2 * work.most_edges * static_cast<int64_t>(sizeof(A));
  const Block scratch(args.threads * item_bytes);
  auto* out = static_cast<A*>(args.out);
  for_items(work, args.threads, [&](const WorkItem& item, int thread) {
    A* staged = scratch.as<A>() + thread * 2 * work.most_edges;
    A* sums = staged + work.most_edges;
    stage_weights(csr, item, args.weight, args.weight_stride, true, nullptr, staged);
    std::memset(sums, 0, static_cast<size_t>(item.edge_end - item.edge_begin) * sizeof(A));
    for (int64_t row = item.row_begin; row < item.row_end; ++row) {
      const int64_t begin = larger(rowptr[row], item.edge_begin);
      const int64_t end = smaller(rowptr[row + 1], item.edge_end);
      for_blocks(blocks, [&](const ColumnBlock& block) {
        with_block<A, kVectors>(block, PickWeight<T, kWeight>{})(args, row, begin, end, block.begin, block.columns,
                                                                 staged - item.edge_begin,
                                                                 sums + (begin - item.edge_begin));
      });
    }
    for (int64_t e = item.edge_begin; e < item.edge_end; ++e) {
      out[edge_number(csr, e)] = sums[e - item.edge_begin];
    }
  });
}

}  // namespace

void extremum_grad_source(const ExtremumGradArgs& args) {
  const auto run = [&]<class T>(T) {
    if (args.weight == nullptr) return grad_source<T, Weight::none>(args);
    args.weight_adds ? grad_source<T, Weight::term>(args) : grad_source<T, Weight::factor>(args);
  };
  with_type(args.dtype, run);
}

void extremum_grad_weight(const ExtremumGradArgs& args) {
  const auto run = [&]<class T>(T) {
    args.weight_adds ? grad_weight<T, Weight::term>(args) : grad_weight<T, Weight::factor>(args);
  };
  with_type(args.dtype, run);
}

}  // namespace ONEHOP_ISA
}  // namespace onehop
