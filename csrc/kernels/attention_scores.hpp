// Scores of a block of edges, from the side of the destinations: the start of the forward pass and of the first sweep
// of the backward pass.
#pragma once

#include "attention_block.hpp"

namespace onehop {
inline namespace ONEHOP_ISA {

// A thread's scratch memory, allocated in cache lines.
class Arena {
 public:
  explicit Arena(char* at) : at_(at) {}
  template <class A>
  A* take(int64_t count) {
    A* result = reinterpret_cast<A*>(at_);
    at_ += bytes_of<A>(count);
    return result;
  }
  template <class A>
  static int64_t bytes_of(int64_t count) {
    return (count * static_cast<int64_t>(sizeof(A)) + kLineBytes - 1) / kLineBytes * kLineBytes;
  }

 private:
  char* at_;
};

// Features of a block's edges, and the rows of sources with them added.
template <class A>
struct EdgeScratch {
  A *inputs, *rows, *keys, *values;

  EdgeScratch(Arena& arena, int64_t edges, int64_t width, bool with_values)
      : inputs(arena.take<A>(kBlockEdges)),
        rows(arena.take<A>(edges * width)),
        keys(arena.take<A>(edges * width)),
        values(arena.take<A>(with_values ? edges * width : 0)) {}
  static int64_t bytes(int64_t edges, int64_t width, bool with_values) {
    return Arena::bytes_of<A>(kBlockEdges) + (with_values ? 3 : 2) * Arena::bytes_of<A>(edges * width);
  }
};

template <class T>
class Scores {
 public:
  using A = Acc<T>;
  explicit Scores(const AttendArgs& a)
      : args(a),
        csr(*a.csr),
        rowptr(csr.rowptr_data()),
        col(csr.col_data()),
        heads(a.heads),
        key_columns(a.rule == ScoreRule::gat ? 0 : a.heads * a.key_width),
        value_columns(a.heads * a.value_width),
        slope(static_cast<A>(a.rule == ScoreRule::dot ? 0 : a.factor)),
        masks(a),
        edge_rows(a),
        most_edges(block_edges((a.rule == ScoreRule::dot ? key_columns + value_columns : value_columns) *
                               static_cast<int64_t>(sizeof(T)))),
        dot(larger(a.key_width, 1)),
        dot_edge(larger(a.key_width, 1)),
        leaky(larger(a.key_width, 1)),
        leaky_edge(larger(a.key_width, 1)) {}

  const AttendArgs& args;
  const Csr& csr;
  const int64_t* rowptr;
  const int32_t* col;
  int64_t heads, key_columns, value_columns;
  A slope;
  Masks<A> masks;
  EdgeRows<T> edge_rows;
  int64_t most_edges;
  Ordinals ordinals;

  bool edges_in_values() const { return args.rule == ScoreRule::dot && edge_rows.any(); }
  int64_t edge_bytes() const {
    return edge_rows.any() ? EdgeScratch<A>::bytes(most_edges, key_columns, edges_in_values()) : 0;
  }
  EdgeScratch<A> edge_scratch(Arena& arena) const {
    return edge_rows.any() ? EdgeScratch<A>(arena, most_edges, key_columns, edges_in_values())
                           : EdgeScratch<A>(arena, 0, 0, false);
  }
  // The rows of the nodes that the graph's columns name, from its edge `first` on; `near` if they were just read.
  Gathered<T> gathered(const void* rows, int64_t stride, int64_t first, bool near) const {
    return {static_cast<const T*>(rows), stride, col + first, near ? 0 : args.prefetch};
  }
  Gathered<A> laid_out(const A* rows, int64_t width, int64_t begin) const {
    return {rows + begin * width, width, ordinals.value};
  }
  Gathered<T> keys(int64_t first, bool near) const {
    return args.rule == ScoreRule::dot ? gathered(args.key, args.key_stride, first, near)
                                       : gathered(args.value, args.value_stride, first, near);
  }
  const T* query(int64_t row) const { return static_cast<const T*>(args.query) + row * args.query_stride; }

  // Prepares the features of the block's edges and the rows they are added to.
  void lay_out_edges(int64_t first, int64_t edges, const EdgeScratch<A>& scratch) const {
    if (!edge_rows.any()) return;
    edge_rows.fill(csr, first, edges, ordinals.value, scratch.inputs, scratch.rows);
    add_edge_rows<T>(keys(first, false), edges, key_columns, scratch.rows, scratch.keys);
    if (edges_in_values()) {
      add_edge_rows<T>(gathered(args.value, args.value_stride, first, false), edges, value_columns, scratch.rows,
                       scratch.values);
    }
  }

  // out[head][i]: for gat the sum before the leaky relu, for dot the product before the scale.
  void operator()(int64_t first, const Segment* segments, int64_t count, const EdgeScratch<A>& scratch, A* out) const {
    for (const Segment* s = segments; s < segments + count; ++s) {
      if (s->edges == 0) continue;
      A* to = out + s->begin;
      if (args.rule == ScoreRule::gat) {
        add_scores<A>(args, static_cast<const A*>(args.query) + s->row * heads, static_cast<const A*>(args.key), first,
                      *s, out);
      } else if (args.rule == ScoreRule::gatv2) {
        const LeakyTerm<T> term{query(s->row), static_cast<const A*>(args.att), slope};
        if (edge_rows.any()) {
          leaky_edge(term, laid_out(scratch.keys, key_columns, s->begin), s->edges, heads, to);
        } else {
          leaky(term, keys(first + s->begin, false), s->edges, heads, to);
        }
      } else if (edge_rows.any()) {
        dot_edge(DotTerm<T>{query(s->row)}, laid_out(scratch.keys, key_columns, s->begin), s->edges, heads, to);
      } else {
        dot(DotTerm<T>{query(s->row)}, keys(first + s->begin, false), s->edges, heads, to);
      }
    }
  }

  // Turns the output of operator(), for the first `edges` of every head, into scores. They are rounded as they are
  // stored: if a product stayed in a wider form until the largest score is subtracted, the rounding of huge scores
  // would show in their exponentials; hence no inlining.
  __attribute__((noinline)) void finish(int64_t edges, const A* raw, A* out) const {
    const bool gat = args.rule == ScoreRule::gat;
    const A factor = static_cast<A>(args.rule == ScoreRule::gatv2 ? 1 : args.factor);
    for (int64_t head = 0; head < heads; ++head, raw += kBlockEdges, out += kBlockEdges) {
      for (int64_t e = 0; e < edges; ++e) out[e] = gat && raw[e] > 0 ? raw[e] : raw[e] * factor;
    }
  }

 private:
  ScoreRows<DotTerm<T>, T> dot;
  ScoreRows<DotTerm<T>, A> dot_edge;
  ScoreRows<LeakyTerm<T>, T> leaky;
  ScoreRows<LeakyTerm<T>, A> leaky_edge;
};

// If no score is above -inf, nothing is subtracted: every exponential is 0 then, and the row's sum 0.
template <class A>
ONEHOP_INLINE A usable(A largest_score) {
  return largest_score == -A(__builtin_huge_val()) ? A(0) : largest_score;
}

}  // namespace ONEHOP_ISA
}  // namespace onehop
