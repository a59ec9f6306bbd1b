// Sum, mean, max and min over the sources of every destination.
#include "aggregate.hpp"

#include "sweep.hpp"

namespace onehop {
inline namespace ONEHOP_ISA {
namespace {

enum class Kind { sum, max, min };

// What a source's row is taken with: nothing, the caller's weight as a factor or as a term, or its scale.
enum class Factor { none, weight, term, scale };

// One call, as a piece of work sees it: pointers of the right types, for the columns of one pass.
template <class T>
struct Job {
  using A = Acc<T>;
  const int64_t* rowptr;
  const int32_t* col;
  const T* x;
  int64_t x_stride;
  const A* weight;  // of edge e: weight[(perm ? perm[e] : e) * weight_stride]
  int64_t weight_stride;
  const int32_t* perm;
  const A* col_scale;
  void* out;
  int64_t out_stride;
  bool out_is_acc;
  A* ties;
  A* slots;
  A* tie_slots;
  int64_t width;
  const int32_t* row_of;  // which row of `out`, `ties` and `row_scale` each row is; null: the same
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
  // The same for messages of which none is NaN.
  ONEHOP_INLINE void take_number(V message) {
    value = kKind == Kind::max ? larger_of<Acc<T>, kLanes>(message, value) : smaller_of<Acc<T>, kLanes>(message, value);
  }
};

// What every vector of a row ends with.
template <class T>
struct RowEnd {
  int64_t row;  // of the output
  int64_t degree;
  Acc<T> divisor, scale;

  ONEHOP_INLINE RowEnd(const Job<T>& job, int64_t place)
      : row(job.row_of != nullptr ? job.row_of[place] : place),
        degree(job.rowptr[place + 1] - job.rowptr[place]),
        divisor(static_cast<Acc<T>>(degree > 1 ? degree : 1)),
        scale(job.row_scale != nullptr ? job.row_scale[row] : Acc<T>(1)) {}
};

// Writes a vector of a row's result: mean and scale applied, in the type of the output.
template <class T, Kind kKind, bool kTies, int kLanes>
ONEHOP_INLINE void finish(const Job<T>& job, const RowEnd<T>& end, int64_t column,
                          State<T, kKind, kTies, kLanes> state) {
  using A = Acc<T>;
  if constexpr (kKind == Kind::sum) {
    if (job.mean) state.value /= splat<A, kLanes>(end.divisor);
  } else if (end.degree == 0) {
    state.value = splat<A, kLanes>(0);
  }
  if constexpr (kTies) {
    const auto none = splat<A, kLanes>(0);
    store<A, kLanes>(job.ties + end.row * job.width + column, state.value == state.value ? state.ties : none);
  }
  if (job.row_scale != nullptr) state.value *= splat<A, kLanes>(end.scale);
  const int64_t place = end.row * job.out_stride + column;
  if (sizeof(T) == 2 && !job.out_is_acc) {
    store<T, kLanes>(static_cast<T*>(job.out) + place, state.value);
  } else if (job.nontemporal) {
    store_past_caches<A, kLanes>(static_cast<A*>(job.out) + place, state.value);
  } else {
    store<A, kLanes>(static_cast<A*>(job.out) + place, state.value);
  }
}

template <class T, Factor kFactor>
ONEHOP_INLINE Acc<T> factor_of(const Job<T>& job, int64_t e) {
  if constexpr (kFactor == Factor::weight || kFactor == Factor::term) {
    return job.weight[(job.perm != nullptr ? job.perm[e] : e) * job.weight_stride];
  } else if constexpr (kFactor == Factor::scale) {
    return job.col_scale[job.col[e]];
  } else {
    return Acc<T>(1);
  }
}

// Calls visit(vector number, message) for the block's vectors of every edge in [e, edge_end).
template <class T, Kind kKind, Factor kFactor, int kLanes, int kVectors, class Visit>
ONEHOP_INLINE void for_messages(const Job<T>& job, int64_t e, int64_t edge_end, const T* x, int64_t columns,
                                const Visit& visit) {
  using A = Acc<T>;
  constexpr int64_t kBlockBytes = int64_t{kLanes} * kVectors * static_cast<int64_t>(sizeof(T));
  const int64_t ahead = job.prefetch;
  for (; e < edge_end; ++e) {
    const T* coming = x + job.col[e + ahead] * job.x_stride;
    prefetch_lines<kBlockBytes>(reinterpret_cast<const char*>(coming));
    if constexpr (kBlockBytes % kLineBytes != 0 && kBlockBytes > 4) {
      __builtin_prefetch(coming + columns - 1, 0, 3);  // rows that straddle one more line
    }
    if constexpr (kFactor == Factor::weight || kFactor == Factor::term) {
      if (job.perm != nullptr) __builtin_prefetch(job.weight + job.perm[e + ahead] * job.weight_stride, 0, 3);
    }
    const T* source = x + job.col[e] * job.x_stride;
    const A factor = factor_of<T, kFactor>(job, e);
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      auto message = load<T, kLanes>(source + vector_begin<kLanes, kVectors>(v, columns));
      if constexpr (kFactor != Factor::none) {
        if constexpr (kFactor == Factor::term) {
          message += splat<A, kLanes>(factor);
        } else {
          message *= splat<A, kLanes>(factor);
        }
        if constexpr (sizeof(T) == 2 && kKind != Kind::sum) {
          // Compared as the 16-bit numbers that an unfused run would have stored.
          if (!job.out_is_acc) message = rounded<T, kLanes>(message);
        }
      }
      visit(v, message);
    }
  }
}

// The edges [e, edge_end) as the states of a block's vectors.
template <class T, Kind kKind, bool kTies, Factor kFactor, int kLanes, int kVectors>
ONEHOP_INLINE void fold_edges(const Job<T>& job, int64_t e, int64_t edge_end, const T* x, int64_t columns,
                              State<T, kKind, kTies, kLanes>* state) {
  using A = Acc<T>;
  using V = Vector<A, kLanes>;
#pragma GCC unroll 16
  for (int v = 0; v < kVectors; ++v) state[v].clear();
  if constexpr (kKind != Kind::sum && !kTies) {
    // NaN is rare and dear to look for: first as if there were none, while a plain sum, which a NaN spoils,
    // keeps watch. (Infinities of both signs spoil it too; then the careful way finds no NaN, and is right.)
    V watch[2] = {splat<A, kLanes>(0), splat<A, kLanes>(0)};
    for_messages<T, kKind, kFactor, kLanes, kVectors>(job, e, edge_end, x, columns, [&](int v, V message) {
      watch[v % 2] += message;
      state[v].take_number(message);
    });
    const A sum = sum_of_lanes<A, kLanes>(watch[0] + watch[1]);
    if (sum == sum) return;
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) state[v].clear();
  }
  for_messages<T, kKind, kFactor, kLanes, kVectors>(
      job, e, edge_end, x, columns, [&](int v, V message) { state[v].take(message, splat<A, kLanes>(1)); });
}

// Rows [row, row_end), whole, for one block of columns.
template <class T, Kind kKind, bool kTies, Factor kFactor, int kLanes, int kVectors>
void sweep_rows(const Job<T>& shared, int64_t row, int64_t row_end, int64_t column, int64_t columns) {
  const Job<T> job = shared;  // a copy of its own: no store can change it, so it stays in registers
  int64_t e = job.rowptr[row];
  for (; row < row_end; ++row) {
    const int64_t edge_end = job.rowptr[row + 1];
    State<T, kKind, kTies, kLanes> state[kVectors];
    fold_edges<T, kKind, kTies, kFactor, kLanes, kVectors>(job, e, edge_end, job.x + column, columns, state);
    const RowEnd<T> end(job, row);
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      finish(job, end, column + vector_begin<kLanes, kVectors>(v, columns), state[v]);
    }
    e = edge_end;
  }
}

// A piece of a cut row: its state goes to a slot, unfinished.
template <class T, Kind kKind, bool kTies, Factor kFactor, int kLanes, int kVectors>
void sweep_part(const Job<T>& job, int64_t e, int64_t edge_end, int64_t column, int64_t columns, int64_t slot) {
  using A = Acc<T>;
  State<T, kKind, kTies, kLanes> state[kVectors];
  fold_edges<T, kKind, kTies, kFactor, kLanes, kVectors>(job, e, edge_end, job.x + column, columns, state);
  for (int v = 0; v < kVectors; ++v) {
    const int64_t place = slot * job.width + column + vector_begin<kLanes, kVectors>(v, columns);
    store<A, kLanes>(job.slots + place, state[v].value);
    if constexpr (kTies) store<A, kLanes>(job.tie_slots + place, state[v].ties);
  }
}

template <class T>
using SweepRows = void (*)(const Job<T>&, int64_t, int64_t, int64_t, int64_t);
template <class T>
using SweepPart = void (*)(const Job<T>&, int64_t, int64_t, int64_t, int64_t, int64_t);
template <class T>
struct Sweeps {
  SweepRows<T> rows;
  SweepPart<T> part;
};

template <class T, Kind kKind, bool kTies, Factor kFactor>
struct PickSweeps {
  template <int kLanes, int kVectors>
  Sweeps<T> operator()() const {
    return {sweep_rows<T, kKind, kTies, kFactor, kLanes, kVectors>,
            sweep_part<T, kKind, kTies, kFactor, kLanes, kVectors>};
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
    finish(job, end, column, state);
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

template <class T, Kind kKind, bool kTies, Factor kFactor>
void run(const AggregateArgs& args) {
  using A = Acc<T>;
  // A tie counter doubles the registers of a column.
  constexpr int kVectors = kTies ? kMostVectors / 2 : kMostVectors;
  const Csr& csr = *args.csr;
  const WorkList& work = *args.work;
  auto* slots = static_cast<A*>(args.slots);
  // Weights that also have scales, or 64-bit numbers, are laid out in order for each piece of work.
  const bool permuted = static_cast<bool>(csr.perm) && !args.weight_in_graph_order;
  const bool staged = args.weight != nullptr && (args.col_scale != nullptr || (permuted && csr.perm_is_wide));
  const Block scratch(staged ? args.threads * work.most_edges * static_cast<int64_t>(sizeof(A)) : 0);
  const Job<T> whole_job{csr.rowptr_data(),
                         csr.col_data(),
                         static_cast<const T*>(args.x),
                         args.x_stride,
                         static_cast<const A*>(args.weight),
                         args.weight_stride,
                         permuted && !csr.perm_is_wide ? csr.perm.as<int32_t>() : nullptr,
                         static_cast<const A*>(args.col_scale),
                         args.out,
                         args.out_stride,
                         args.out_is_acc,
                         static_cast<A*>(args.ties),
                         slots,
                         slots + work.slots * args.width,
                         args.width,
                         csr.row_of ? csr.row_of.as<int32_t>() : nullptr,
                         static_cast<const A*>(args.row_scale),
                         args.reduce == Reduce::mean,
                         args.nontemporal && whole_lines<A>(args),
                         args.prefetch};
  const int64_t most = args.register_block > 0 ? args.register_block : kVectors;
  const int64_t tile = args.column_tile > 0 ? args.column_tile : args.width;
  for (int64_t first = 0; first < args.width; first += tile) {
    const BlockCut<A, kVectors> blocks(smaller(tile, args.width - first), most);
    for_items(work, args.threads, [&](const WorkItem& item, int thread) {
      Job<T> job = whole_job;
      if (staged) {
        A* laid_out = scratch.as<A>() + thread * work.most_edges;
        stage_weights(csr, item, args.weight, args.weight_stride, permuted, args.col_scale, laid_out);
        job.weight = laid_out - item.edge_begin;
        job.weight_stride = 1;
        job.perm = nullptr;
      }
      const auto sweeps_of = [](const ColumnBlock& block) {
        return with_block<A, kVectors>(block, PickSweeps<T, kKind, kTies, kFactor>{});
      };
      const auto whole = [&](int64_t begin, int64_t end) {
        if (blocks.blocks == 1) {
          const ColumnBlock block = blocks[0];
          sweeps_of(block).rows(job, begin, end, first, block.columns);
          return;
        }
        // All blocks of a row before the next row: its sources are read as wholes.
        const SweepRows<T> inner = sweeps_of(blocks[0]).rows;
        const ColumnBlock last = blocks[blocks.blocks - 1];
        const SweepRows<T> outer = sweeps_of(last).rows;
        for (int64_t row = begin; row < end; ++row) {
          for (int64_t b = 0; b + 1 < blocks.blocks; ++b) {
            inner(job, row, row + 1, first + b * blocks.step, blocks.step);
          }
          outer(job, row, row + 1, first + last.begin, last.columns);
        }
      };
      const auto part = [&](int64_t, int64_t begin, int64_t end, int64_t slot) {
        for (int64_t b = 0; b < blocks.blocks; ++b) {
          const ColumnBlock block = blocks[b];
          sweeps_of(block).part(job, begin, end, first + block.begin, block.columns, slot);
        }
      };
      visit_rows(item, job.rowptr, whole, part);
      if (job.nontemporal) settle_stores();
    });
  }
  for_cut_rows(work, args.threads, [&](const CutRow& cut) { combine_cut_row<T, kKind, kTies>(whole_job, cut); });
}

template <class T, Kind kKind, bool kTies>
void run_factor(const AggregateArgs& args) {
  if constexpr (kKind != Kind::sum) {
    if (args.weight != nullptr && args.weight_adds) return run<T, kKind, kTies, Factor::term>(args);
  }
  if (args.weight != nullptr) return run<T, kKind, kTies, Factor::weight>(args);
  if constexpr (kKind == Kind::sum) {
    if (args.col_scale != nullptr) return run<T, kKind, kTies, Factor::scale>(args);
  }
  run<T, kKind, kTies, Factor::none>(args);
}

template <class T, Kind kKind>
void run_kind(const AggregateArgs& args) {
  if constexpr (kKind != Kind::sum) {
    if (args.ties != nullptr) return run_factor<T, kKind, true>(args);
  }
  run_factor<T, kKind, false>(args);
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
