// What becomes of the rows of a tile: sums and extrema over rows of the graph, and outer products added up.
#pragma once

#include "message_steps.hpp"

namespace onehop {
inline namespace ONEHOP_ISA {

constexpr bool is_by_row(Sink sink) { return sink == Sink::row_sum || sink == Sink::row_max || sink == Sink::row_min; }

// The reduction of a row so far, and one more.
template <class T, int kLanes, Sink kSink>
ONEHOP_INLINE Vector<T, kLanes> reduced(Vector<T, kLanes> state, Vector<T, kLanes> x) {
  if constexpr (kSink == Sink::row_max) return ((x > state) | (x != x)) ? x : state;
  if constexpr (kSink == Sink::row_min) return ((x < state) | (x != x)) ? x : state;
  return state + x;
}

// Columns [column, column + kVectors * kLanes) of the reduction of some rows, with what is there unless they are first.
template <class T, int kLanes, int kVectors, Sink kSink>
ONEHOP_INLINE void reduce_block(const Rows<T>& value, int64_t edge, int64_t end, int64_t column, bool first, T* to) {
  using V = Vector<T, kLanes>;
  V state[kVectors];
  const T* begin = first ? value[edge++] + column : to + column;
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) state[v] = load<T, kLanes>(begin + v * kLanes);
  for (; edge < end; ++edge) {
    const T* from = value[edge] + column;
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      state[v] = reduced<T, kLanes, kSink>(state[v], load<T, kLanes>(from + v * kLanes));
    }
  }
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) store<T, kLanes>(to + column + v * kLanes, state[v]);
}

// Reduces the rows of the edges [edge, end), of which there is one at least.
template <class T, Sink kSink>
void reduce_rows(const Rows<T>& value, int64_t edge, int64_t end, bool first, T* to) {
  constexpr int kLanes = kFullLanes<T>;
  int64_t column = 0;
  for (; column + 4 * kLanes <= value.width; column += 4 * kLanes) {
    reduce_block<T, kLanes, 4, kSink>(value, edge, end, column, first, to);
  }
  for (; column + kLanes <= value.width; column += kLanes) {
    reduce_block<T, kLanes, 1, kSink>(value, edge, end, column, first, to);
  }
  for (; column < value.width; ++column) reduce_block<T, 1, 1, kSink>(value, edge, end, column, first, to);
}

template <class T>
void reduce_rows(Sink sink, const Rows<T>& value, int64_t edge, int64_t end, bool first, T* to) {
  if (sink == Sink::row_max) return reduce_rows<T, Sink::row_max>(value, edge, end, first, to);
  if (sink == Sink::row_min) return reduce_rows<T, Sink::row_min>(value, edge, end, first, to);
  reduce_rows<T, Sink::row_sum>(value, edge, end, first, to);
}

// Columns [column, column + kVectors * kLanes) of the products of kRows consecutive numbers of a with each of b.
template <class T, int kRows, int kLanes, int kVectors>
ONEHOP_INLINE void add_outer_block(const Rows<T>& a, const Rows<T>& b, int64_t edges, int64_t k, int64_t column,
                                   T* out) {
  using V = Vector<T, kLanes>;
  V sums[kRows][kVectors];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) sums[r][v] = load<T, kLanes>(out + r * b.width + v * kLanes);
  }
  for (int64_t edge = 0; edge < edges; ++edge) {
    const T *factors = a[edge] + k, *from = b[edge] + column;
    V line[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) line[v] = load<T, kLanes>(from + v * kLanes);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const V factor = in_every_lane<T, kLanes>(factors + r);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sums[r][v] += factor * line[v];
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) store<T, kLanes>(out + r * b.width + v * kLanes, sums[r][v]);
  }
}

// Adds the products of each number of a with each of b, over the tile's edges, to out [a.width, b.width].
template <class T>
void add_outer(const Rows<T>& a, const Rows<T>& b, int64_t edges, T* out) {
  constexpr int kRows = 4;
  for_columns<T>(b.width, [&]<int kLanes, int kVectors>(int64_t column) {
    int64_t k = 0;
    for (; k + kRows <= a.width; k += kRows) {
      add_outer_block<T, kRows, kLanes, kVectors>(a, b, edges, k, column, out + k * b.width + column);
    }
    for (; k < a.width; ++k) {
      add_outer_block<T, 1, kLanes, kVectors>(a, b, edges, k, column, out + k * b.width + column);
    }
  });
}

}  // namespace ONEHOP_ISA
}  // namespace onehop
