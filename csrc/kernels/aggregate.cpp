// Sum, mean, max and min over the sources of every destination.
#include "aggregate.hpp"

#include "sweep.hpp"

namespace onehop {
inline namespace ONEHOP_ISA {
namespace {

enum class Kind { sum, max, min };

// One call, as a piece of work sees it: pointers of the right types, for the columns of one pass.
template <class T>
struct Job {
  using A = Acc<T>;
  const int64_t* rowptr;
  const int32_t* col;
  const T* x;
  int64_t x_stride;
  void* out;
  int64_t out_stride;
  bool out_is_acc;
  A* ties;
  A* slots;
  A* tie_slots;
  int64_t width;
  const A* row_scale;
  bool mean;
  bool nontemporal;
  int prefetch;
};

// The running result of one vector of columns.
template <class T, Kind kKind, bool kTies, int kLanes>
struct State {
  using V = Vector<Acc<T>, kLanes>;
  V value, ties;

  ONEHOP_INLINE void clear() {
    constexpr Acc<T> kInfinity = __builtin_huge_valf();
    value = splat<Acc<T>, kLanes>(kKind == Kind::sum ? Acc<T>(0) : kKind == Kind::max ? -kInfinity : kInfinity);
    if constexpr (kTies) ties = splat<Acc<T>, kLanes>(0);
  }
  // `count`: how many edges the message stands for (1, or the ties of a part of a row).
  ONEHOP_INLINE void take(V message, V count) {
    if constexpr (kKind == Kind::sum) {
      value += message;
    } else {
      // A NaN wins and stays: no comparison with it is true.
      const auto wins = (kKind == Kind::max ? message > value : message < value) | (message != message);
      if constexpr (kTies) ties = wins ? count : (message == value ? ties + count : ties);
      value = wins ? message : value;
    }
  }
};

// What every vector of a row ends with.
template <class T>
struct RowEnd {
  int64_t degree;
  Acc<T> divisor, scale;

  ONEHOP_INLINE RowEnd(const Job<T>& job, int64_t row)
      : degree(job.rowptr[row + 1] - job.rowptr[row]),
        divisor(static_cast<Acc<T>>(degree > 1 ? degree : 1)),
        scale(job.row_scale != nullptr ? job.row_scale[row] : Acc<T>(1)) {}
};

// Writes a vector of a row's result: mean and scale applied, in the type of the output.
template <class T, Kind kKind, bool kTies, int kLanes>
ONEHOP_INLINE void finish(const Job<T>& job, const RowEnd<T>& end, int64_t row, int64_t column,
                          State<T, kKind, kTies, kLanes> state) {
  using A = Acc<T>;
  if constexpr (kKind == Kind::sum) {
    if (job.mean) state.value /= splat<A, kLanes>(end.divisor);
  } else if (end.degree == 0) {
    state.value = splat<A, kLanes>(0);
  }
  if constexpr (kTies) {
    const auto none = splat<A, kLanes>(0);
    store<A, kLanes>(job.ties + row * job.width + column, state.value == state.value ? state.ties : none);
  }
  if (job.row_scale != nullptr) state.value *= splat<A, kLanes>(end.scale);
  const int64_t place = row * job.out_stride + column;
  if (sizeof(T) == 2 && !job.out_is_acc) {
    store<T, kLanes>(static_cast<T*>(job.out) + place, state.value);
  } else if (job.nontemporal) {
    store_past_caches<A, kLanes>(static_cast<A*>(job.out) + place, state.value);
  } else {
    store<A, kLanes>(static_cast<A*>(job.out) + place, state.value);
  }
}

// Edges [e, edge_end) folded into a row's state. `weight` is indexed by edge.
template <class T, Kind kKind, bool kTies, bool kWeighted, int kLanes, int kVectors>
ONEHOP_INLINE void fold_edges(const Job<T>& job, int64_t e, int64_t edge_end, const Acc<T>* weight, const T* x,
                              int64_t columns, State<T, kKind, kTies, kLanes>* state) {
  using A = Acc<T>;
  constexpr int64_t kBlockBytes = int64_t{kLanes} * kVectors * static_cast<int64_t>(sizeof(T));
  const int64_t ahead = job.prefetch;
  for (; e < edge_end; ++e) {
    const T* coming = x + job.col[e + ahead] * job.x_stride;
    prefetch_lines<kBlockBytes>(reinterpret_cast<const char*>(coming));
    if constexpr (kBlockBytes % kLineBytes != 0 && kBlockBytes > 4) {
      __builtin_prefetch(coming + columns - 1, 0, 3);  // rows that straddle one more line
    }
    const T* source = x + job.col[e] * job.x_stride;
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      auto message = load<T, kLanes>(source + vector_begin<kLanes, kVectors>(v, columns));
      if constexpr (kWeighted) {
        message *= splat<A, kLanes>(weight[e]);
        if constexpr (sizeof(T) == 2 && kKind != Kind::sum) {
          // Compared as the 16-bit numbers that an unfused run would have stored.
          if (!job.out_is_acc) message = rounded<T, kLanes>(message);
        }
      }
      state[v].take(message, splat<A, kLanes>(1));
    }
  }
}

// Rows [row, row_end), whole, for one block of columns.
template <class T, Kind kKind, bool kTies, bool kWeighted, int kLanes, int kVectors>
void sweep_rows(const Job<T>& shared, int64_t row, int64_t row_end, const Acc<T>* weight, int64_t column,
                int64_t columns) {
  const Job<T> job = shared;  // a copy of its own: no store can change it, so it stays in registers
  int64_t e = job.rowptr[row];
  for (; row < row_end; ++row) {
    const int64_t edge_end = job.rowptr[row + 1];
    State<T, kKind, kTies, kLanes> state[kVectors];
#pragma GCC unroll 16
    for (auto& s : state) s.clear();
    fold_edges<T, kKind, kTies, kWeighted, kLanes, kVectors>(job, e, edge_end, weight, job.x + column, columns, state);
    const RowEnd<T> end(job, row);
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      finish(job, end, row, column + vector_begin<kLanes, kVectors>(v, columns), state[v]);
    }
    e = edge_end;
  }
}

// A piece of a cut row: its state goes to a slot, unfinished.
template <class T, Kind kKind, bool kTies, bool kWeighted, int kLanes, int kVectors>
void sweep_part(const Job<T>& job, int64_t e, int64_t edge_end, const Acc<T>* weight, int64_t column, int64_t columns,
                int64_t slot) {
  using A = Acc<T>;
  State<T, kKind, kTies, kLanes> state[kVectors];
  for (auto& s : state) s.clear();
  fold_edges<T, kKind, kTies, kWeighted, kLanes, kVectors>(job, e, edge_end, weight, job.x + column, columns, state);
  for (int v = 0; v < kVectors; ++v) {
    const int64_t place = slot * job.width + column + vector_begin<kLanes, kVectors>(v, columns);
    store<A, kLanes>(job.slots + place, state[v].value);
    if constexpr (kTies) store<A, kLanes>(job.tie_slots + place, state[v].ties);
  }
}

template <class T>
using SweepRows = void (*)(const Job<T>&, int64_t, int64_t, const Acc<T>*, int64_t, int64_t);
template <class T>
using SweepPart = void (*)(const Job<T>&, int64_t, int64_t, const Acc<T>*, int64_t, int64_t, int64_t);
template <class T>
struct Sweeps {
  SweepRows<T> rows;
  SweepPart<T> part;
};

template <class T, Kind kKind, bool kTies, bool kWeighted>
struct PickSweeps {
  template <int kLanes, int kVectors>
  Sweeps<T> operator()() const {
    return {sweep_rows<T, kKind, kTies, kWeighted, kLanes, kVectors>,
            sweep_part<T, kKind, kTies, kWeighted, kLanes, kVectors>};
  }
};

template <class T, Kind kKind, bool kTies>
void combine_cut_row(const Job<T>& job, const CutRow& cut) {
  const RowEnd<T> end(job, cut.row);
  for (int64_t column = 0; column < job.width; ++column) {
    State<T, kKind, kTies, 1> state;
    state.clear();
    for (int64_t slot = cut.slot_begin; slot < cut.slot_end; ++slot) {
      const int64_t place = slot * job.width + column;
      state.take(job.slots[place], kTies ? job.tie_slots[place] : Acc<T>(1));
    }
    finish(job, end, cut.row, column, state);
  }
}

// Stores past the caches are of use for whole lines only.
template <class A>
bool whole_lines(const AggregateArgs& args) {
  const auto bytes = [](int64_t columns) { return columns * static_cast<int64_t>(sizeof(A)); };
  return (reinterpret_cast<uintptr_t>(args.out) | static_cast<uintptr_t>(bytes(args.width)) |
          static_cast<uintptr_t>(bytes(args.out_stride)) | static_cast<uintptr_t>(bytes(args.column_tile))) %
             kLineBytes ==
         0;
}

template <class T, Kind kKind, bool kTies, bool kWeighted>
void run(const AggregateArgs& args) {
  using A = Acc<T>;
  // A tie counter doubles the registers of a column.
  constexpr int kVectors = kTies ? kMostVectors / 2 : kMostVectors;
  const Csr& csr = *args.csr;
  const WorkList& work = *args.work;
  auto* slots = static_cast<A*>(args.slots);
  const Job<T> job{csr.rowptr_data(),
                   csr.col_data(),
                   static_cast<const T*>(args.x),
                   args.x_stride,
                   args.out,
                   args.out_stride,
                   args.out_is_acc,
                   static_cast<A*>(args.ties),
                   slots,
                   slots + work.slots * args.width,
                   args.width,
                   static_cast<const A*>(args.row_scale),
                   args.reduce == Reduce::mean,
                   args.nontemporal && whole_lines<A>(args),
                   args.prefetch};
  const Block scratch(kWeighted ? args.threads * work.most_edges * static_cast<int64_t>(sizeof(A)) : 0);
  const int64_t tile = args.column_tile > 0 ? args.column_tile : args.width;
  for (int64_t first = 0; first < args.width; first += tile) {
    const BlockCut<A, kVectors> blocks(smaller(tile, args.width - first));
    for_items(work, args.threads, [&](const WorkItem& item, int thread) {
      const A* weight = nullptr;
      if constexpr (kWeighted) {
        A* staged = scratch.as<A>() + thread * work.most_edges;
        stage_weights(csr, item, args.weight, args.weight_stride, args.col_scale, staged);
        weight = staged - item.edge_begin;
      }
      const auto sweeps_of = [](const ColumnBlock& block) {
        return with_block<A, kVectors>(block, PickSweeps<T, kKind, kTies, kWeighted>{});
      };
      const auto whole = [&](int64_t begin, int64_t end) {
        if (blocks.blocks == 1) {
          const ColumnBlock block = blocks[0];
          sweeps_of(block).rows(job, begin, end, weight, first, block.columns);
          return;
        }
        // All blocks of a row before the next row: its sources are read as wholes.
        const SweepRows<T> inner = sweeps_of(blocks[0]).rows;
        const ColumnBlock last = blocks[blocks.blocks - 1];
        const SweepRows<T> outer = sweeps_of(last).rows;
        for (int64_t row = begin; row < end; ++row) {
          for (int64_t b = 0; b + 1 < blocks.blocks; ++b) {
            inner(job, row, row + 1, weight, first + b * blocks.step, blocks.step);
          }
          outer(job, row, row + 1, weight, first + last.begin, last.columns);
        }
      };
      const auto part = [&](int64_t, int64_t begin, int64_t end, int64_t slot) {
        for (int64_t b = 0; b < blocks.blocks; ++b) {
          const ColumnBlock block = blocks[b];
          sweeps_of(block).part(job, begin, end, weight, first + block.begin, block.columns, slot);
        }
      };
      visit_rows(item, job.rowptr, whole, part);
      if (job.nontemporal) settle_stores();
    });
  }
  for_cut_rows(work, args.threads, [&](const CutRow& cut) { combine_cut_row<T, kKind, kTies>(job, cut); });
}

template <class T, Kind kKind>
void run_kind(const AggregateArgs& args) {
  const bool weighted = args.weight != nullptr || args.col_scale != nullptr;
  if constexpr (kKind != Kind::sum) {
    if (args.ties != nullptr) return weighted ? run<T, kKind, true, true>(args) : run<T, kKind, true, false>(args);
  }
  return weighted ? run<T, kKind, false, true>(args) : run<T, kKind, false, false>(args);
}

}  // namespace

template <class T>
void aggregate_as(const AggregateArgs& args) {
  switch (args.reduce) {
    case Reduce::sum:
    case Reduce::mean:
      return run_kind<T, Kind::sum>(args);
    case Reduce::max:
      return run_kind<T, Kind::max>(args);
    case Reduce::min:
      return run_kind<T, Kind::min>(args);
  }
}

template void aggregate_as<ONEHOP_TYPE>(const AggregateArgs& args);

}  // namespace ONEHOP_ISA
}  // namespace onehop
