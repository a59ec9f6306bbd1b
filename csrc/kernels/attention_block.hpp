// Blocks of edges for attention: consecutive edges, of several short rows or of a part of a long one, which are
// processed together; their masks, and their edge features.
#pragma once

#include "attention_rows.hpp"
#include "exponential.hpp"

namespace onehop {
inline namespace ONEHOP_ISA {

// The edges of one row in a block: [begin, begin + edges) of the block's. `starts` and `ends` say whether they
// are the first and the last of the row in this piece of work.
struct Segment {
  int64_t row, begin, edges;
  bool starts, ends;
  int64_t slot;  // of a cut row's piece, else -1
};

// Edges of a block: the rows they gather (row_bytes each) fit a small L1 cache, or they are few.
inline int64_t block_edges(int64_t row_bytes) {
  constexpr int64_t kNearBytes = 32 << 10, kLeast = 16;
  return smaller(kBlockEdges, larger(kLeast, kNearBytes / larger(row_bytes, 1)));
}

// Calls visit(first edge, edges, segments, count) for the blocks of a piece of work, in order.
template <class Visit>
void for_edge_blocks(const WorkItem& item, const int64_t* rowptr, int64_t most, const Visit& visit) {
  Segment segments[kBlockEdges];
  int64_t first = item.edge_begin, used = 0, count = 0;
  const auto flush = [&] {
    if (count > 0) visit(first, used, segments, count);
    first += used;
    used = count = 0;
  };
  for (int64_t row = item.row_begin; row < item.row_end; ++row) {
    int64_t left = smaller(rowptr[row + 1], item.edge_end) - larger(rowptr[row], item.edge_begin);
    if (used + left > most || count == kBlockEdges) flush();
    const int64_t head = row == item.row_begin ? item.head_slot : -1;
    const int64_t slot = head >= 0 ? head : row + 1 == item.row_end ? item.tail_slot : -1;
    for (bool starts = true; starts || left > 0; starts = false) {
      if (used == most) flush();
      const int64_t edges = smaller(left, most - used);
      left -= edges;
      segments[count++] = {row, used, edges, starts, left == 0, slot};
      used += edges;
    }
  }
  flush();
}

// The factor of an edge's weight: `mask`, or a dropout that is recomputed each time. The hash and its constants are
// described in onehop/reference/dropout.py.
template <class A>
class Masks {
 public:
  explicit Masks(const AttendArgs& args)
      : mask_(static_cast<const A*>(args.mask)),
        heads_(args.heads),
        threshold_(static_cast<uint32_t>(args.dropout * 4294967296.0)),
        kept_(static_cast<A>(1 / (1 - args.dropout))),
        base_(mix(mix(static_cast<uint32_t>(args.seed)) ^ static_cast<uint32_t>(args.seed >> 32))),
        any_(args.mask != nullptr || args.dropout > 0) {}

  bool any() const { return any_; }

  // out[head][i] for the edges [first, first + edges) of the graph's order.
  void fill(const Csr& csr, int64_t first, int64_t edges, A* out) const {
    if (mask_ != nullptr) {
      for (int64_t i = 0; i < edges; ++i) {
        const A* from = mask_ + edge_number(csr, first + i) * heads_;
        for (int64_t head = 0; head < heads_; ++head) out[head * kBlockEdges + i] = from[head];
      }
      return;
    }
    uint32_t low[kBlockEdges], high[kBlockEdges];
    for (int64_t i = 0; i < edges; ++i) {
      const auto number = static_cast<uint64_t>(edge_number(csr, first + i));
      low[i] = static_cast<uint32_t>(number);
      high[i] = static_cast<uint32_t>(number >> 32);
    }
    for (int64_t head = 0; head < heads_; ++head) {
      const uint32_t one = mix(base_ + static_cast<uint32_t>(head) * kStep);
      const uint32_t two = mix(one + kStep);
      A* to = out + head * kBlockEdges;
      for (int64_t i = 0; i < edges; ++i) to[i] = mix(mix(low[i] ^ one) + (two ^ high[i])) >= threshold_ ? kept_ : A(0);
    }
  }

 private:
  static constexpr uint32_t kStep = 0x9e3779b9u;
  static ONEHOP_INLINE uint32_t mix(uint32_t x) {
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15;
    x *= 0x846ca68bu;
    return x ^ (x >> 16);
  }

  const A* mask_;
  int64_t heads_;
  uint32_t threshold_;
  A kept_;
  uint32_t base_;
  bool any_;
};

// 0, 1, 2, ...: the index of rows that lie one after another.
struct Ordinals {
  int32_t value[kBlockEdges];
  Ordinals() {
    for (int i = 0; i < kBlockEdges; ++i) value[i] = i;
  }
};

// Features of edges, as rows of accumulators for the edges of a block: taken from [E, H * D], or projected.
template <class T>
class EdgeRows {
 public:
  using A = Acc<T>;
  explicit EdgeRows(const AttendArgs& args)
      : edge_(args.rule == ScoreRule::gat ? nullptr : static_cast<const T*>(args.edge)),
        stride_(args.edge_stride),
        inputs_(args.edge_width),
        width_(args.heads * args.key_width),
        weight_(static_cast<const A*>(args.edge_weight)),
        sum_(larger(width_, 1)) {}

  bool any() const { return edge_ != nullptr; }
  bool projected() const { return weight_ != nullptr; }
  int64_t inputs() const { return inputs_; }
  int64_t width() const { return width_; }
  const T* row(const Csr& csr, int64_t e) const { return edge_ + edge_number(csr, e) * stride_; }

  // out[i, :] for the edges [first, first + edges). `inputs` has room for inputs() numbers.
  void fill(const Csr& csr, int64_t first, int64_t edges, const int32_t* ordinals, A* inputs, A* out) const {
    for (int64_t i = 0; i < edges; ++i, out += width_) {
      const T* from = row(csr, first + i);
      if (!projected()) {
        for (int64_t c = 0; c < width_; ++c) out[c] = load<T, 1>(from + c);
        continue;
      }
      for (int64_t c = 0; c < width_; ++c) out[c] = 0;
      for (int64_t begin = 0; begin < inputs_; begin += kBlockEdges) {
        const int64_t count = smaller(kBlockEdges, inputs_ - begin);
        for (int64_t k = 0; k < count; ++k) inputs[k] = load<T, 1>(from + begin + k);
        static constexpr A kOne = 1;
        sum_({weight_ + begin * width_, width_, ordinals}, count, 1, inputs, 0, &kOne, out);
      }
    }
  }

 private:
  const T* edge_;
  int64_t stride_, inputs_, width_;
  const A* weight_;
  SumRows<A> sum_;
};

// out[i, :] = the gathered row of edge i + edge[i, :].
template <class T>
void add_edge_rows(const Gathered<T>& rows, int64_t edges, int64_t width, const Acc<T>* edge, Acc<T>* out) {
  for (int64_t i = 0; i < edges; ++i, edge += width, out += width) {
    const T* coming = rows.row(i + rows.ahead);
    for (int64_t c = 0; c < width; c += kLineBytes / static_cast<int64_t>(sizeof(T))) {
      __builtin_prefetch(coming + c, 0, kKeepRows);
    }
    const T* row = rows.row(i);
    for (int64_t c = 0; c < width; ++c) out[c] = load<T, 1>(row + c) + edge[c];
  }
}

template <class A>
ONEHOP_INLINE A exponential_of(A x) {
  return exponential<A, 1>(x);
}

// numbers[head][0..edges) becomes e to their power; up to kBlockEdges may be touched.
template <class A>
void exponentials(A* numbers, int64_t heads, int64_t edges) {
  constexpr int kLanes = kFullLanes<A>;
  static_assert(kBlockEdges % kLanes == 0);
  for (int64_t head = 0; head < heads; ++head, numbers += kBlockEdges) {
    for (int64_t i = 0; i < edges; i += kLanes) {
      store<A, kLanes>(numbers + i, exponential<A, kLanes>(load<A, kLanes>(numbers + i)));
    }
  }
}

template <class A>
ONEHOP_INLINE A total(const A* numbers, int64_t count) {
  constexpr int kLanes = kFullLanes<A>;
  A sum = 0;
  int64_t i = 0;
  if (count >= kLanes) {
    auto all = load<A, kLanes>(numbers);
    for (i = kLanes; i + kLanes <= count; i += kLanes) all += load<A, kLanes>(numbers + i);
    sum = sum_of_lanes<A, kLanes>(all);
  }
  for (; i < count; ++i) sum += numbers[i];
  return sum;
}

// The largest of `least` and the numbers; ignores NaN.
template <class A>
ONEHOP_INLINE A largest(const A* numbers, int64_t count, A least) {
  constexpr int kLanes = kFullLanes<A>;
  int64_t i = 0;
  if (count >= kLanes) {
    auto all = splat<A, kLanes>(least);
    for (; i + kLanes <= count; i += kLanes) all = larger_of<A, kLanes>(load<A, kLanes>(numbers + i), all);
    for (int lane = 0; lane < kLanes; ++lane) least = all[lane] > least ? all[lane] : least;
  }
  for (; i < count; ++i) least = numbers[i] > least ? numbers[i] : least;
  return least;
}

// gat: out[head][i] = key[j] + query[i] + edge, before the leaky relu; `own` are the numbers of the row, and
// `others` those of the nodes that the graph's columns name.
template <class A>
void add_scores(const AttendArgs& args, const A* own, const A* others, int64_t first, const Segment& segment, A* out) {
  const Csr& csr = *args.csr;
  const int32_t* col = csr.col_data() + first + segment.begin;
  const int64_t heads = args.heads;
  const auto* edge = static_cast<const A*>(args.edge);
  for (int64_t i = 0; i < segment.edges; ++i) {
    const A* other = others + col[i] * heads;
    __builtin_prefetch(others + col[i + args.prefetch] * heads, 0, 3);
    A* to = out + segment.begin + i;
    if (edge != nullptr) {
      const A* of_edge = edge + edge_number(csr, first + segment.begin + i) * heads;
      for (int64_t head = 0; head < heads; ++head) to[head * kBlockEdges] = own[head] + other[head] + of_edge[head];
    } else {
      for (int64_t head = 0; head < heads; ++head) to[head * kBlockEdges] = own[head] + other[head];
    }
  }
}

// For each head: to[c] = from[c] * factor[head], in the type of the output.
template <class T>
void store_scaled(const Acc<T>* from, const Acc<T>* factor, int64_t heads, int64_t width, T* to) {
  using A = Acc<T>;
  for (int64_t head = 0; head < heads; ++head, from += width, to += width) {
    constexpr int kLanes = kFullLanes<A>;
    const A by = factor[head];
    int64_t c = 0;
    for (; c + kLanes <= width; c += kLanes) {
      store<T, kLanes>(to + c, load<A, kLanes>(from + c) * splat<A, kLanes>(by));
    }
    for (; c < width; ++c) store<T, 1>(to + c, from[c] * by);
  }
}

}  // namespace ONEHOP_ISA
}  // namespace onehop
