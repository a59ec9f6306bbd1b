// Attention over the edges of every destination: scores, softmax and weighted sum in one pass over the graph.
//
// A block of edges is processed in three steps: scores (which load the rows of its sources into the caches), their
// exponentials after subtracting the largest so far, and the sum of the rows. A row that spans blocks keeps its largest
// score, its sum of exponentials and its sum of rows, and rescales them when the largest changes.
#include "attention.hpp"

#include "attention_scores.hpp"

namespace onehop {
inline namespace ONEHOP_ISA {
namespace {

// Largest score, sum of exponentials and sum of rows of a part of a row, for each head.
template <class A>
struct RowState {
  A *largest, *total, *rows;
};

template <class T>
class Forward {
 public:
  using A = Acc<T>;
  explicit Forward(const AttendArgs& args)
      : scores_(args),
        heads_(args.heads),
        columns_(scores_.value_columns),
        sum_(larger(args.value_width, 1)),
        sum_edge_(larger(args.value_width, 1)),
        thread_bytes_(3 * Arena::bytes_of<A>(heads_ * kBlockEdges) + 4 * Arena::bytes_of<A>(heads_) +
                      Arena::bytes_of<A>(columns_) + scores_.edge_bytes() + 4 * kLineBytes),
        scratch_(args.threads * thread_bytes_) {}

  void operator()(const WorkItem& item, int thread) const {
    const AttendArgs& args = scores_.args;
    Arena arena(scratch_.as<char>() + thread * thread_bytes_);
    A* weight = arena.take<A>(heads_ * kBlockEdges);
    A* mask = arena.take<A>(heads_ * kBlockEdges);
    A* largest_of = arena.take<A>(heads_ * kBlockEdges);
    A* rescale = arena.take<A>(heads_);
    const RowState<A> state{arena.take<A>(heads_), arena.take<A>(heads_), arena.take<A>(columns_)};
    A* inverse = arena.take<A>(heads_);
    const EdgeScratch<A> edge = scores_.edge_scratch(arena);
    // Exponentials are computed for whole vectors: the padding beyond the edges must hold valid numbers.
    std::memset(weight, 0, static_cast<size_t>(heads_ * kBlockEdges) * sizeof(A));

    for_edge_blocks(
        item, scores_.rowptr, scores_.most_edges,
        [&](int64_t first, int64_t edges, const Segment* segments, int64_t count) {
          scores_.lay_out_edges(first, edges, edge);
          scores_(first, segments, count, edge, weight);
          if (args.rule != ScoreRule::gatv2) scores_.finish(edges, weight, weight);
          for (int64_t i = 0; i < count; ++i) {
            take_largest(segments[i], weight, segments[i].starts ? nullptr : state.largest, largest_of + i * heads_);
          }
          exponentials(weight, heads_, edges);
          if (scores_.masks.any()) scores_.masks.fill(scores_.csr, first, edges, mask);
          for (int64_t i = 0; i < count; ++i) {
            const Segment& s = segments[i];
            const A* largest = largest_of + i * heads_;
            for (int64_t head = 0; head < heads_; ++head) {
              const A sum = total(weight + head * kBlockEdges + s.begin, s.edges);
              rescale[head] = s.starts ? A(0) : exponential_of<A>(state.largest[head] - usable(largest[head]));
              state.total[head] = s.starts ? sum : state.total[head] * rescale[head] + sum;
              state.largest[head] = largest[head];
            }
            if (scores_.masks.any()) {
              for (int64_t head = 0; head < heads_; ++head) {
                const int64_t begin = head * kBlockEdges + s.begin;
                for (int64_t e = begin; e < begin + s.edges; ++e) weight[e] *= mask[e];
              }
            }
            const A* before = s.starts ? nullptr : rescale;
            if (scores_.edges_in_values()) {
              sum_edge_(scores_.laid_out(edge.values, columns_, s.begin), s.edges, heads_, weight + s.begin,
                        kBlockEdges, before, state.rows);
            } else {
              const bool near = args.rule == ScoreRule::gatv2;  // for their scores
              sum_(scores_.gathered(args.value, args.value_stride, first + s.begin, near), s.edges, heads_,
                   weight + s.begin, kBlockEdges, before, state.rows);
            }
            if (!s.ends) continue;
            if (s.slot < 0) {
              finish(s.row, state, inverse);
            } else {
              const RowState<A> slot = slot_of(s.slot);
              copy(state.largest, heads_, slot.largest);
              copy(state.total, heads_, slot.total);
              copy(state.rows, columns_, slot.rows);
            }
          }
        });
  }

  void combine(const CutRow& cut) const {
    const Block block((3 * heads_ + columns_) * static_cast<int64_t>(sizeof(A)));
    A* memory = block.as<A>();
    const RowState<A> all{memory, memory + heads_, memory + 2 * heads_};
    A* inverse = memory + 2 * heads_ + columns_;
    for (int64_t head = 0; head < heads_; ++head) {
      A highest = -A(__builtin_huge_val());
      for (int64_t slot = cut.slot_begin; slot < cut.slot_end; ++slot) {
        highest = slot_of(slot).largest[head] > highest ? slot_of(slot).largest[head] : highest;
      }
      all.largest[head] = highest;
      all.total[head] = 0;
      const int64_t width = scores_.args.value_width;
      A* rows = all.rows + head * width;
      for (int64_t c = 0; c < width; ++c) rows[c] = 0;
      for (int64_t slot = cut.slot_begin; slot < cut.slot_end; ++slot) {
        const RowState<A> part = slot_of(slot);
        const A factor = exponential_of<A>(part.largest[head] - usable(highest));
        all.total[head] += factor * part.total[head];
        for (int64_t c = 0; c < width; ++c) rows[c] += factor * part.rows[head * width + c];
      }
    }
    finish(cut.row, all, inverse);
  }

 private:
  static void copy(const A* from, int64_t count, A* to) {
    std::memcpy(to, from, static_cast<size_t>(count) * sizeof(A));
  }

  RowState<A> slot_of(int64_t slot) const {
    const AttendArgs& args = scores_.args;
    A* at = static_cast<A*>(args.slots) + slot * attend_slot_width(heads_, args.key_width, args.value_width);
    return {at, at + heads_, at + 2 * heads_};
  }

  // The largest score of each head, which is subtracted from the scores.
  void take_largest(const Segment& s, A* scores, const A* before, A* out) const {
    for (int64_t head = 0; head < heads_; ++head) {
      A* from = scores + head * kBlockEdges + s.begin;
      const A highest = largest<A>(from, s.edges, before == nullptr ? -A(__builtin_huge_val()) : before[head]);
      const A less = usable(highest);
      for (int64_t e = 0; e < s.edges; ++e) from[e] -= less;
      out[head] = highest;
    }
  }

  // PyG adds 1e-16 to the sum of exponentials; as one of them is 1, that is less than half a unit in its last place.
  void finish(int64_t row, const RowState<A>& state, A* inverse) const {
    const AttendArgs& args = scores_.args;
    const bool empty = scores_.rowptr[row] == scores_.rowptr[row + 1];
    A* softmax = static_cast<A*>(args.softmax) + 2 * row * heads_;
    for (int64_t head = 0; head < heads_; ++head) {
      inverse[head] = empty ? A(0) : 1 / state.total[head];
      softmax[head] = usable(state.largest[head]);
      softmax[heads_ + head] = inverse[head];
    }
    store_scaled<T>(state.rows, inverse, heads_, args.value_width, static_cast<T*>(args.out) + row * columns_);
  }

  Scores<T> scores_;
  int64_t heads_, columns_;
  SumRows<T> sum_;
  SumRows<A> sum_edge_;
  int64_t thread_bytes_;
  Block scratch_;
};

}  // namespace

template <class T>
void attend_as(const AttendArgs& args) {
  const Forward<T> forward(args);
  for_items(*args.work, args.threads, [&](const WorkItem& item, int thread) { forward(item, thread); });
  for_cut_rows(*args.work, args.threads, [&](const CutRow& cut) { forward.combine(cut); });
}

// The softmaxed weights, recomputed from the scores.
template <class T>
void attend_weights_as(const AttendArgs& args) {
  using A = Acc<T>;
  const Scores<T> scores(args);
  const int64_t heads = args.heads;
  const bool masked = args.weights_masked && scores.masks.any();
  const int64_t thread_bytes = 2 * Arena::bytes_of<A>(heads * kBlockEdges) + scores.edge_bytes() + 4 * kLineBytes;
  const Block scratch(args.threads * thread_bytes);
  for_items(*args.work, args.threads, [&](const WorkItem& item, int thread) {
    Arena arena(scratch.as<char>() + thread * thread_bytes);
    A* weight = arena.take<A>(heads * kBlockEdges);
    A* mask = arena.take<A>(heads * kBlockEdges);
    const EdgeScratch<A> edge = scores.edge_scratch(arena);
    std::memset(weight, 0, static_cast<size_t>(heads * kBlockEdges) * sizeof(A));
    for_edge_blocks(item, scores.rowptr, scores.most_edges,
                    [&](int64_t first, int64_t edges, const Segment* segments, int64_t count) {
                      scores.lay_out_edges(first, edges, edge);
                      scores(first, segments, count, edge, weight);
                      if (args.rule != ScoreRule::gatv2) scores.finish(edges, weight, weight);
                      for (const Segment* s = segments; s < segments + count; ++s) {
                        const A* less = static_cast<const A*>(args.softmax) + 2 * s->row * heads;
                        for (int64_t head = 0; head < heads; ++head) {
                          A* of_head = weight + head * kBlockEdges + s->begin;
                          for (int64_t e = 0; e < s->edges; ++e) of_head[e] -= less[head];
                        }
                      }
                      exponentials(weight, heads, edges);
                      if (masked) scores.masks.fill(scores.csr, first, edges, mask);
                      for (const Segment* s = segments; s < segments + count; ++s) {
                        const A* inverse = static_cast<const A*>(args.softmax) + (2 * s->row + 1) * heads;
                        for (int64_t e = s->begin; e < s->begin + s->edges; ++e) {
                          A* to = static_cast<A*>(args.weights) + edge_number(scores.csr, first + e) * heads;
                          for (int64_t head = 0; head < heads; ++head) {
                            const int64_t at = head * kBlockEdges + e;
                            to[head] = weight[at] * inverse[head] * (masked ? mask[at] : A(1));
                          }
                        }
                      }
                    });
  });
}

template void attend_as<ONEHOP_TYPE>(const AttendArgs& args);
template void attend_weights_as<ONEHOP_TYPE>(const AttendArgs& args);

}  // namespace ONEHOP_ISA
}  // namespace onehop
