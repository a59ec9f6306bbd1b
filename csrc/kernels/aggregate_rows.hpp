// The loops of aggregation over the edges of rows, for a block of columns.
//
// They know a call by its Job alone. What is fixed when they are compiled beyond types comes as a class `Fixed`:
// the engine's own kernels fix nothing (Open), those generated at run time fix what they were generated for.
#pragma once

#include "blocks.hpp"
#include "generated.hpp"

namespace onehop {
inline namespace ONEHOP_ISA {

// Nothing is fixed.
struct Open {
  static constexpr int64_t kStride = 0;  // between rows of x; 0: the job's
  static constexpr int kPrefetch = -1;   // how many edges ahead a row is asked for; -1: the job's
  static constexpr int kKeep = -1;       // how long such a row is worth keeping; -1: as the job says
  static constexpr int kChains = 1;      // sums that a row's edges are dealt out to, added up in the end
};

// One call, as a piece of work sees it: pointers of the right types, for the columns of one pass.
template <class T>
struct Job {
  using A = Acc<T>;
  const int64_t* rowptr;
  const int32_t* col;  // the source of every edge
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
  bool keeps_near;  // rows that are asked for go to the nearest cache, not to the second
  int prefetch;
  A sign;  // of max with a factor: -1 where it is the min, as the max of what is negated
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
  } else if (kKind == Kind::max && job.sign < 0) {
    state.value = -state.value;
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

template <class T, class Fixed, Kind kKind, Factor kFactor>
ONEHOP_INLINE Acc<T> factor_of(const Job<T>& job, int64_t e) {
  if constexpr (kFactor == Factor::weight || kFactor == Factor::term) {
    const Acc<T> weight = job.weight[(job.perm != nullptr ? job.perm[e] : e) * job.weight_stride];
    return kKind == Kind::sum ? weight : weight * job.sign;
  } else if constexpr (kFactor == Factor::scale) {
    return job.col_scale[job.col[e]];
  } else {
    return Acc<T>(1);
  }
}

// Where the row of a source begins.
template <class T, class Fixed>
ONEHOP_INLINE const T* row_of_source(const Job<T>& job, const T* x, int64_t source) {
  if constexpr (Fixed::kStride > 0) {
    return x + source * Fixed::kStride;
  } else {
    return x + source * job.x_stride;
  }
}

// Asks for the lines of a row, the one with its last number included: rows may straddle one more line.
template <int64_t kBytes, int kKeep, class T>
ONEHOP_INLINE void ask_for_row(const T* row, const T* last) {
  prefetch_lines<kBytes, kKeep>(reinterpret_cast<const char*>(row));
  if constexpr (kBytes % kLineBytes != 0 && kBytes > 4) __builtin_prefetch(last, 0, kKeep);
}

// Asks for what the edge `ahead` edges after e will read.
template <class T, class Fixed, Kind kKind, Factor kFactor, int kLanes, int kVectors>
ONEHOP_INLINE void ask_ahead(const Job<T>& job, int64_t e, const T* x, int64_t columns) {
  constexpr int64_t kBlockBytes = int64_t{kLanes} * kVectors * static_cast<int64_t>(sizeof(T));
  const int64_t ahead = Fixed::kPrefetch >= 0 ? Fixed::kPrefetch : job.prefetch;
  const T* coming = row_of_source<T, Fixed>(job, x, job.col[e + ahead]);
  const T* last = coming + columns - 1;
  if constexpr (Fixed::kKeep >= 0) {
    ask_for_row<kBlockBytes, Fixed::kKeep>(coming, last);
  } else if (kKind == Kind::sum && job.keeps_near) {  // elsewhere the choice would only make code longer
    ask_for_row<kBlockBytes, kKeepNear>(coming, last);
  } else {
    ask_for_row<kBlockBytes, kKeepRows>(coming, last);
  }
  if constexpr (kFactor == Factor::weight || kFactor == Factor::term) {
    if (job.perm != nullptr) __builtin_prefetch(job.weight + job.perm[e + ahead] * job.weight_stride, 0, 3);
  }
}

// Calls visit(vector number, message) for the block's vectors of edge e.
template <class T, class Fixed, Kind kKind, Factor kFactor, int kLanes, int kVectors, class Visit>
ONEHOP_INLINE void messages_of(const Job<T>& job, int64_t e, const T* x, int64_t columns, const Visit& visit) {
  using A = Acc<T>;
  if constexpr (Fixed::kPrefetch != 0) ask_ahead<T, Fixed, kKind, kFactor, kLanes, kVectors>(job, e, x, columns);
  const T* source = row_of_source<T, Fixed>(job, x, job.col[e]);
  const A factor = factor_of<T, Fixed, kKind, kFactor>(job, e);
#pragma GCC unroll 32
  for (int v = 0; v < kVectors; ++v) {
    auto message = load<T, kLanes>(source + vector_begin<kLanes, kVectors>(v, columns));
    if constexpr (kFactor != Factor::none) {
      if constexpr (kFactor == Factor::term) {
        message = message * splat<A, kLanes>(job.sign) + splat<A, kLanes>(factor);
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

// The same for every edge in [e, edge_end).
template <class T, class Fixed, Kind kKind, Factor kFactor, int kLanes, int kVectors, class Visit>
ONEHOP_INLINE void for_messages(const Job<T>& job, int64_t e, int64_t edge_end, const T* x, int64_t columns,
                                const Visit& visit) {
  for (; e < edge_end; ++e) messages_of<T, Fixed, kKind, kFactor, kLanes, kVectors>(job, e, x, columns, visit);
}

// A sum whose edges are dealt out to several chains of additions: for narrow rows the next addition need not
// wait for the one before it.
template <class T, class Fixed, Factor kFactor, int kLanes, int kVectors>
ONEHOP_INLINE void sum_in_chains(const Job<T>& job, int64_t e, int64_t edge_end, const T* x, int64_t columns,
                                 State<T, Kind::sum, false, kLanes>* state) {
  using V = Vector<Acc<T>, kLanes>;
  constexpr int kChains = Fixed::kChains;
  V sums[kChains][kVectors] = {};
  const auto take = [&](int chain, int64_t edge) {
    messages_of<T, Fixed, Kind::sum, kFactor, kLanes, kVectors>(job, edge, x, columns,
                                                                [&](int v, V message) { sums[chain][v] += message; });
  };
  for (; e + kChains <= edge_end; e += kChains) {
#pragma GCC unroll 8
    for (int chain = 0; chain < kChains; ++chain) take(chain, e + chain);
  }
  for (; e < edge_end; ++e) take(0, e);
#pragma GCC unroll 32
  for (int v = 0; v < kVectors; ++v) {
    V total = sums[0][v];
#pragma GCC unroll 8
    for (int chain = 1; chain < kChains; ++chain) total += sums[chain][v];
    state[v].value = total;
  }
}

// The edges [e, edge_end) as the states of a block's vectors.
template <class T, class Fixed, Kind kKind, bool kTies, Factor kFactor, int kLanes, int kVectors>
ONEHOP_INLINE void fold_edges(const Job<T>& job, int64_t e, int64_t edge_end, const T* x, int64_t columns,
                              State<T, kKind, kTies, kLanes>* state) {
  using A = Acc<T>;
  using V = Vector<A, kLanes>;
  if constexpr (kKind == Kind::sum && Fixed::kChains > 1) {
    return sum_in_chains<T, Fixed, kFactor, kLanes, kVectors>(job, e, edge_end, x, columns, state);
  }
#pragma GCC unroll 32
  for (int v = 0; v < kVectors; ++v) state[v].clear();
  if constexpr (kKind != Kind::sum && !kTies) {
    // NaN is rare and dear to look for: first as if there were none, while a plain sum, which a NaN spoils,
    // keeps watch. (Infinities of both signs spoil it too; then the careful way finds no NaN, and is right.)
    V watch[2] = {splat<A, kLanes>(0), splat<A, kLanes>(0)};
    for_messages<T, Fixed, kKind, kFactor, kLanes, kVectors>(job, e, edge_end, x, columns, [&](int v, V message) {
      watch[v % 2] += message;
      state[v].take_number(message);
    });
    const A sum = sum_of_lanes<A, kLanes>(watch[0] + watch[1]);
    if (sum == sum) return;
#pragma GCC unroll 32
    for (int v = 0; v < kVectors; ++v) state[v].clear();
  }
  for_messages<T, Fixed, kKind, kFactor, kLanes, kVectors>(
      job, e, edge_end, x, columns, [&](int v, V message) { state[v].take(message, splat<A, kLanes>(1)); });
}

// Rows [row, row_end), whole, for one block of columns.
template <class T, class Fixed, Kind kKind, bool kTies, Factor kFactor, int kLanes, int kVectors>
void sweep_rows(const Job<T>& shared, int64_t row, int64_t row_end, int64_t column, int64_t columns) {
  const Job<T> job = shared;  // a copy of its own: no store can change it, so it stays in registers
  int64_t e = job.rowptr[row];
  for (; row < row_end; ++row) {
    const int64_t edge_end = job.rowptr[row + 1];
    State<T, kKind, kTies, kLanes> state[kVectors];
    fold_edges<T, Fixed, kKind, kTies, kFactor, kLanes, kVectors>(job, e, edge_end, job.x + column, columns, state);
    const RowEnd<T> end(job, row);
#pragma GCC unroll 32
    for (int v = 0; v < kVectors; ++v) {
      finish(job, end, column + vector_begin<kLanes, kVectors>(v, columns), state[v]);
    }
    e = edge_end;
  }
}

// A piece of a cut row: its state goes to a slot, unfinished.
template <class T, class Fixed, Kind kKind, bool kTies, Factor kFactor, int kLanes, int kVectors>
void sweep_part(const Job<T>& job, int64_t e, int64_t edge_end, int64_t column, int64_t columns, int64_t slot) {
  using A = Acc<T>;
  State<T, kKind, kTies, kLanes> state[kVectors];
  fold_edges<T, Fixed, kKind, kTies, kFactor, kLanes, kVectors>(job, e, edge_end, job.x + column, columns, state);
  for (int v = 0; v < kVectors; ++v) {
    const int64_t place = slot * job.width + column + vector_begin<kLanes, kVectors>(v, columns);
    store<A, kLanes>(job.slots + place, state[v].value);
    if constexpr (kTies) store<A, kLanes>(job.tie_slots + place, state[v].ties);
  }
}

}  // namespace ONEHOP_ISA
}  // namespace onehop
