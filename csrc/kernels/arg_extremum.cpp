// Max and min that store the one edge each entry is taken from, and the gradient, which goes only to that edge.
#include "sweep.hpp"
#include "tables.hpp"

namespace onehop {
inline namespace ONEHOP_ISA {
namespace {

// An extremum and its winner are held for every vector of the block.
constexpr int kVectors = kMostVectors / 4;

// Places of edges, as wide as the numbers that are compared.
template <class T>
struct PlaceOf {
  using type = int32_t;
};
template <>
struct PlaceOf<double> {
  using type = int64_t;
};
template <class T>
using Place = typename PlaceOf<T>::type;

// Minima are maxima of negated messages, which is exact.
template <class T>
T sign_of(const ArgExtremumArgs& args) {
  return args.minimum ? T(-1) : T(1);
}

template <class T, bool kLast, int kLanes>
struct State {
  Vector<T, kLanes> value;
  Vector<Place<T>, kLanes> winner;

  ONEHOP_INLINE void clear() {
    value = splat<T, kLanes>(-static_cast<T>(__builtin_huge_valf()));
    winner = splat<Place<T>, kLanes>(-1);
  }
  // No comparison with a NaN is true, so none wins.
  ONEHOP_INLINE void take(Vector<T, kLanes> message, Vector<Place<T>, kLanes> place) {
    const auto wins = kLast ? message >= value : message > value;
    value = wins ? message : value;
    winner = wins ? place : winner;
  }
  ONEHOP_INLINE void finish(T sign, T* out, int32_t* to) const {
    store<T, kLanes>(out, value * splat<T, kLanes>(sign));
    store_raw<int32_t, kLanes>(to, convert<int32_t, Place<T>, kLanes>(winner));
  }
};

template <class T>
using Sweep = void (*)(const ArgExtremumArgs&, int64_t e, int64_t edge_end, int64_t column, int64_t columns,
                       const T* weight, T sign, T* out, int32_t* winner);

// The edges [e, edge_end) for a block of columns; `out` and `winner` point at its first one. The result is multiplied
// by `sign` again.
template <class T, bool kLast, int kLanes, int kCount>
void sweep(const ArgExtremumArgs& args, int64_t e, int64_t edge_end, int64_t column, int64_t columns, const T* weight,
           T sign, T* out, int32_t* winner) {
  constexpr int64_t kBlockBytes = int64_t{kLanes} * kCount * static_cast<int64_t>(sizeof(T));
  const int32_t* col = args.csr->col_data();
  const T* sources = static_cast<const T*>(args.x) + column;
  const T turned = sign_of<T>(args);
  State<T, kLast, kLanes> state[kCount];
  for (int v = 0; v < kCount; ++v) state[v].clear();
  for (; e < edge_end; ++e) {
    prefetch_lines<kBlockBytes>(reinterpret_cast<const char*>(sources + col[e + args.prefetch] * args.x_stride));
    const T* source = sources + col[e] * args.x_stride;
    const auto factor = splat<T, kLanes>(weight != nullptr ? turned * weight[e] : turned);
    const auto place = splat<Place<T>, kLanes>(static_cast<Place<T>>(e));
#pragma GCC unroll 4
    for (int v = 0; v < kCount; ++v) {
      state[v].take(load<T, kLanes>(source + vector_begin<kLanes, kCount>(v, columns)) * factor, place);
    }
  }
  for (int v = 0; v < kCount; ++v) {
    const int64_t begin = vector_begin<kLanes, kCount>(v, columns);
    state[v].finish(sign, out + begin, winner + begin);
  }
}

template <class T, bool kLast>
struct PickSweep {
  template <int kLanes, int kCount>
  Sweep<T> operator()() const {
    return sweep<T, kLast, kLanes, kCount>;
  }
};

template <class T, bool kLast>
void run(const ArgExtremumArgs& args) {
  const WorkList& work = *args.work;
  const int64_t* rowptr = args.csr->rowptr_data();
  const BlockCut<T, kVectors> blocks(args.width);
  const bool weighted = args.weight != nullptr;
  const Block scratch(weighted ? args.threads * work.most_edges * static_cast<int64_t>(sizeof(T)) : 0);
  auto* out = static_cast<T*>(args.out);
  auto* slots = static_cast<T*>(args.slots);
  const T sign = sign_of<T>(args);
  for_items(work, args.threads, [&](const WorkItem& item, int thread) {
    const T* weight = nullptr;
    if (weighted) {
      T* staged = scratch.as<T>() + thread * work.most_edges;
      stage_weights(*args.csr, item, args.weight, args.weight_stride, true, nullptr, staged);
      weight = staged - item.edge_begin;
    }
    const auto edges = [&](int64_t begin, int64_t end, T last_sign, T* to, int32_t* winner) {
      for (int64_t b = 0; b < blocks.blocks; ++b) {
        const ColumnBlock block = blocks[b];
        with_block<T, kVectors>(block, PickSweep<T, kLast>{})(args, begin, end, block.begin, block.columns, weight,
                                                              last_sign, to + block.begin, winner + block.begin);
      }
    };
    visit_rows(
        item, rowptr,
        [&](int64_t begin, int64_t end) {
          for (int64_t row = begin; row < end; ++row) {
            edges(rowptr[row], rowptr[row + 1], sign, out + row * args.out_stride,
                  args.winner + row * args.winner_stride);
          }
        },
        [&](int64_t, int64_t begin, int64_t end, int64_t slot) {
          edges(begin, end, T(1), slots + slot * args.width, args.winner_slots + slot * args.width);
        });
  });
  for_cut_rows(work, args.threads, [&](const CutRow& cut) {
    for (int64_t column = 0; column < args.width; ++column) {
      State<T, kLast, 1> state;
      state.clear();
      for (int64_t slot = cut.slot_begin; slot < cut.slot_end; ++slot) {
        const int64_t place = slot * args.width + column;
        // A piece in which nothing won must not win by its infinity.
        if (args.winner_slots[place] >= 0) state.take(slots[place], args.winner_slots[place]);
      }
      state.finish(sign, out + cut.row * args.out_stride + column, args.winner + cut.row * args.winner_stride + column);
    }
  });
}

// Calls body(begin, end) for pieces of [0, count), each on one thread.
template <class Body>
void for_pieces(int64_t count, int64_t piece, int threads, const Body& body) {
  struct Context {
    int64_t count, piece;
    const Body& body;
  } context{count, piece, body};
  parallel_for((count + piece - 1) / piece, threads,
               [](void* opaque, int64_t task, int) {
                 const auto& c = *static_cast<const Context*>(opaque);
                 c.body(task * c.piece, smaller((task + 1) * c.piece, c.count));
               },
               &context);
}

// Whether an entry of the winners, which torch's operators take from anybody, is an edge.
ONEHOP_INLINE bool inside(const Csr& csr, int64_t winner) {
  return static_cast<uint64_t>(winner) < static_cast<uint64_t>(csr.edges);
}

// A thread owns some columns of all rows, so no two threads add to one place, and sums have one order. Searching for
// the winners among all edges of the transposed graph takes as long at 15 edges a row, and grows with them.
template <class T>
void grad_source(const ArgExtremumGradArgs& args) {
  constexpr int64_t kColumns = kLineBytes / static_cast<int64_t>(sizeof(T));
  const Csr& csr = *args.csr;
  const int32_t* col = csr.col_data();
  const auto* grad = static_cast<const T*>(args.grad);
  const auto* weight = static_cast<const T*>(args.weight);
  auto* out = static_cast<T*>(args.out);
  for_pieces(args.width, kColumns, args.threads, [&](int64_t begin, int64_t end) {
    for (int64_t row = 0; row < csr.rows; ++row) {
      const int32_t* winner = args.winner + row * args.winner_stride;
      const T* from = grad + row * args.grad_stride;
      for (int64_t column = begin; column < end; ++column) {
        const int64_t e = winner[column];
        if (!inside(csr, e)) continue;
        const T factor = weight != nullptr ? weight[edge_number(csr, e) * args.weight_stride] : T(1);
        out[col[e] * args.out_stride + column] += factor * from[column];
      }
    }
  });
}

// An edge has one row, and a row one thread.
template <class T>
void grad_weight(const ArgExtremumGradArgs& args) {
  constexpr int64_t kRows = 256;
  const Csr& csr = *args.csr;
  const int32_t* col = csr.col_data();
  const auto* grad = static_cast<const T*>(args.grad);
  const auto* x = static_cast<const T*>(args.x);
  auto* out = static_cast<T*>(args.out);
  for_pieces(csr.rows, kRows, args.threads, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int32_t* winner = args.winner + row * args.winner_stride;
      const T* from = grad + row * args.grad_stride;
      for (int64_t column = 0; column < args.width; ++column) {
        const int64_t e = winner[column];
        if (!inside(csr, e)) continue;
        out[edge_number(csr, e) * args.out_stride] += x[col[e] * args.x_stride + column] * from[column];
      }
    }
  });
}

// Calls visit(T{}) for the two types there are.
template <class Visit>
void with_number(DType dtype, const Visit& visit) {
  dtype == DType::float64 ? visit(double{}) : visit(float{});
}

}  // namespace

void arg_extremum(const ArgExtremumArgs& args) {
  with_number(args.dtype, [&]<class T>(T) { args.last ? run<T, true>(args) : run<T, false>(args); });
}

void arg_extremum_grad_source(const ArgExtremumGradArgs& args) {
  with_number(args.dtype, [&]<class T>(T) { grad_source<T>(args); });
}

void arg_extremum_grad_weight(const ArgExtremumGradArgs& args) {
  with_number(args.dtype, [&]<class T>(T) { grad_weight<T>(args); });
}

}  // namespace ONEHOP_ISA
}  // namespace onehop
