// Gradients of attention to sources: the sweep over the transposed graph.
#include "attention_grad.hpp"

namespace onehop {
inline namespace ONEHOP_ISA {
namespace {

template <class T>
class SourceSweep {
 public:
  using A = Acc<T>;
  explicit SourceSweep(const AttendArgs& args)
      : scores_(args),
        heads_(args.heads),
        value_columns_(scores_.value_columns),
        key_columns_(args.rule == ScoreRule::gat ? args.heads : scores_.key_columns),
        edge_bytes_(scores_.edge_rows.any() ? EdgeScratch<A>::bytes(scores_.most_edges, scores_.key_columns, false)
                                            : EdgeScratch<A>::bytes(0, 0, false)),
        score_(larger(args.key_width, 1)),
        score_edge_(larger(args.key_width, 1)),
        dot_(larger(args.key_width, 1)),
        dot_edge_(larger(args.key_width, 1)),
        product_(larger(args.value_width, 1)),
        product_edge_(larger(args.value_width, 1)),
        sum_values_(larger(args.value_width, 1)),
        sum_keys_(larger(args.key_width, 1)),
        slopes_(larger(args.key_width, 1)),
        slopes_edge_(larger(args.key_width, 1)),
        thread_bytes_(EdgeNumbers<A>::bytes(heads_) + 2 * Arena::bytes_of<A>(heads_ * kBlockEdges) +
                      Arena::bytes_of<A>(value_columns_) + Arena::bytes_of<A>(key_columns_) + edge_bytes_ +
                      4 * kLineBytes),
        scratch_(args.threads * thread_bytes_),
        att_parts_(args) {}

  void operator()(int64_t group, const WorkItem& item, int thread) const {
    Arena arena(scratch_.as<char>() + thread * thread_bytes_);
    const EdgeNumbers<A> numbers(arena, heads_);
    const Sums sums{arena.take<A>(value_columns_), arena.take<A>(key_columns_)};
    A* inverse = arena.take<A>(heads_ * kBlockEdges);
    A* own_sum = arena.take<A>(heads_ * kBlockEdges);
    A* att_part = att_parts_.of(group);
    const bool with_edges = scores_.edge_rows.any();
    const EdgeScratch<A> edge(arena, with_edges ? scores_.most_edges : 0, scores_.key_columns, false);

    for_edge_blocks(
        item, scores_.rowptr, scores_.most_edges,
        [&](int64_t first, int64_t edges, const Segment* segments, int64_t count) {
          if (with_edges) {
            scores_.edge_rows.fill(scores_.csr, first, edges, scores_.ordinals.value, edge.inputs, edge.rows);
            if (scores_.args.rule == ScoreRule::gatv2) {
              add_edge_rows<T>(queries(first, false), edges, scores_.key_columns, edge.rows, edge.keys);
            }
          }
          for (const Segment* s = segments; s < segments + count; ++s) {
            if (s->edges == 0) continue;
            find_raw(first, *s, edge, numbers.raw);
            multiply_grads(first, *s, edge, numbers.slope + s->begin);
          }
          if (scores_.masks.any()) scores_.masks.fill(scores_.csr, first, edges, numbers.mask);
          find_slopes(first, edges, numbers, inverse, own_sum);
          pass_through_score(scores_, edges, numbers.raw, numbers.slope);
          for (const Segment* s = segments; s < segments + count; ++s) {
            add_up(first, *s, edge, numbers, sums);
            if (!s->ends) continue;
            if (att_part != nullptr && s->edges > 0) add_product(value(s->row), sums.keys, key_columns_, att_part);
            if (s->slot < 0) {
              finish(s->row, sums);
            } else {
              std::memcpy(slot(s->slot).values, sums.values, static_cast<size_t>(value_columns_) * sizeof(A));
              std::memcpy(slot(s->slot).keys, sums.keys, static_cast<size_t>(key_columns_) * sizeof(A));
            }
          }
        });
  }

  // Added to the values that the sweep over destinations has left there.
  void add_parts() const {
    if (scores_.args.grad_att != nullptr) att_parts_.add_to(scores_.args.grad_att);
  }

  void combine(const CutRow& cut) const {
    const Sums all = slot(cut.slot_begin);
    for (int64_t number = cut.slot_begin + 1; number < cut.slot_end; ++number) {
      const Sums part = slot(number);
      for (int64_t c = 0; c < value_columns_; ++c) all.values[c] += part.values[c];
      for (int64_t c = 0; c < key_columns_; ++c) all.keys[c] += part.keys[c];
    }
    finish(cut.row, all);
  }

 private:
  // Of value: the sum of m w g. Of key: gat, the sum of d; gatv2, that of d leaky'; dot, that of d query.
  struct Sums {
    A *values, *keys;
  };

  Sums slot(int64_t number) const {
    const AttendArgs& args = scores_.args;
    A* at = static_cast<A*>(args.slots) + number * attend_slot_width(heads_, args.key_width, args.value_width);
    return {at, at + value_columns_};
  }
  Gathered<T> queries(int64_t first, bool near) const {
    return scores_.gathered(scores_.args.query, scores_.args.query_stride, first, near);
  }
  Gathered<T> grads(int64_t first, bool near) const {
    return scores_.gathered(scores_.args.grad, scores_.args.grad_stride, first, near);
  }
  const T* value(int64_t row) const {
    return static_cast<const T*>(scores_.args.value) + row * scores_.args.value_stride;
  }
  const T* key(int64_t row) const { return static_cast<const T*>(scores_.args.key) + row * scores_.args.key_stride; }

  void find_raw(int64_t first, const Segment& s, const EdgeScratch<A>& edge, A* out) const {
    const AttendArgs& args = scores_.args;
    const int64_t begin = first + s.begin;
    A* to = out + s.begin;
    if (args.rule == ScoreRule::gat) {
      add_scores<A>(args, static_cast<const A*>(args.key) + s.row * heads_, static_cast<const A*>(args.query), first, s,
                    out);
    } else if (args.rule == ScoreRule::gatv2) {
      const LeakyTerm<T> term{value(s.row), static_cast<const A*>(args.att), scores_.slope};
      if (scores_.edge_rows.any()) {
        score_edge_(term, scores_.laid_out(edge.keys, scores_.key_columns, s.begin), s.edges, heads_, to);
      } else {
        score_(term, queries(begin, false), s.edges, heads_, to);
      }
    } else if (scores_.edge_rows.any()) {
      const int64_t columns = scores_.key_columns;
      dot_edge_(EdgeDotTerm<T>{key(s.row), edge.rows + s.begin * columns, columns}, queries(begin, false), s.edges,
                heads_, to);
    } else {
      dot_(DotTerm<T>{key(s.row)}, queries(begin, false), s.edges, heads_, to);
    }
  }

  void multiply_grads(int64_t first, const Segment& s, const EdgeScratch<A>& edge, A* out) const {
    const Gathered<T> rows = grads(first + s.begin, false);
    if (scores_.edges_in_values()) {
      const int64_t columns = scores_.key_columns;
      product_edge_(EdgeDotTerm<T>{value(s.row), edge.rows + s.begin * columns, columns}, rows, s.edges, heads_, out);
    } else {
      product_(DotTerm<T>{value(s.row)}, rows, s.edges, heads_, out);
    }
  }

  void find_slopes(int64_t first, int64_t edges, const EdgeNumbers<A>& numbers, A* inverse, A* own_sum) const {
    const AttendArgs& args = scores_.args;
    const auto* statistics = static_cast<const A*>(args.statistics);
    const int32_t* col = scores_.col + first;
    scores_.finish(edges, numbers.raw, numbers.weight);
    for (int64_t e = 0; e < edges; ++e) {
      const A* of = statistics + 3 * col[e] * heads_;
      __builtin_prefetch(statistics + 3 * col[e + args.prefetch] * heads_, 0, 3);
      for (int64_t head = 0; head < heads_; ++head) {
        const int64_t at = head * kBlockEdges + e;
        numbers.weight[at] -= of[head];
        inverse[at] = of[heads_ + head];
        own_sum[at] = of[2 * heads_ + head];
      }
    }
    exponentials(numbers.weight, heads_, edges);
    mask_products(scores_, first, edges, numbers);
    for (int64_t head = 0; head < heads_; ++head) {
      const int64_t begin = head * kBlockEdges;
      A *weight = numbers.weight + begin, *slope = numbers.slope + begin;
      const A *factor = inverse + begin, *own = own_sum + begin;
      for (int64_t e = 0; e < edges; ++e) {
        weight[e] *= factor[e];
        slope[e] = weight[e] * (slope[e] - own[e]);
      }
    }
    mask_weights(scores_, edges, numbers);
  }

  void add_up(int64_t first, const Segment& s, const EdgeScratch<A>& edge, const EdgeNumbers<A>& numbers,
              const Sums& sums) const {
    const AttendArgs& args = scores_.args;
    const int64_t begin = first + s.begin;
    const A* slope = numbers.slope + s.begin;
    if (s.starts) {
      clear(sums.values, value_columns_);
      clear(sums.keys, key_columns_);
    }
    if (s.edges == 0) return;
    sum_values_(grads(begin, true), s.edges, heads_, numbers.weight + s.begin, kBlockEdges, ones_.value, sums.values);
    if (args.rule == ScoreRule::gat) {
      for (int64_t head = 0; head < heads_; ++head) sums.keys[head] += total(slope + head * kBlockEdges, s.edges);
    } else if (args.rule == ScoreRule::dot) {
      sum_keys_(queries(begin, true), s.edges, heads_, slope, kBlockEdges, ones_.value, sums.keys);
    } else if (scores_.edge_rows.any()) {
      slopes_edge_(value(s.row), scores_.slope, scores_.laid_out(edge.keys, key_columns_, s.begin), s.edges, heads_,
                   slope, sums.keys);
    } else {
      slopes_(value(s.row), scores_.slope, queries(begin, true), s.edges, heads_, slope, sums.keys);
    }
  }

  void finish(int64_t row, const Sums& sums) const {
    const AttendArgs& args = scores_.args;
    static constexpr A kOne = 1;
    if (args.rule == ScoreRule::gatv2) {
      const A* att = static_cast<const A*>(args.att);
      for (int64_t c = 0; c < value_columns_; ++c) sums.values[c] += att[c] * sums.keys[c];
    }
    if (args.grad_value != nullptr) {
      store_scaled<T>(sums.values, &kOne, 1, value_columns_, static_cast<T*>(args.grad_value) + row * value_columns_);
    }
    if (args.grad_key == nullptr) return;
    if (args.rule == ScoreRule::gat) {
      std::memcpy(static_cast<A*>(args.grad_key) + row * heads_, sums.keys, static_cast<size_t>(heads_) * sizeof(A));
    } else {
      store_scaled<T>(sums.keys, &kOne, 1, key_columns_, static_cast<T*>(args.grad_key) + row * key_columns_);
    }
  }

  Scores<T> scores_;
  int64_t heads_, value_columns_, key_columns_, edge_bytes_;
  ScoreRows<LeakyTerm<T>, T> score_;
  ScoreRows<LeakyTerm<T>, A> score_edge_;
  ScoreRows<DotTerm<T>, T> dot_;
  ScoreRows<EdgeDotTerm<T>, T> dot_edge_;
  ScoreRows<DotTerm<T>, T> product_;
  ScoreRows<EdgeDotTerm<T>, T> product_edge_;
  SumRows<T> sum_values_, sum_keys_;
  SumSlopes<T, T> slopes_;
  SumSlopes<T, A> slopes_edge_;
  Ones<A> ones_{heads_};
  int64_t thread_bytes_;
  Block scratch_;
  AttParts<A> att_parts_;
};

}  // namespace

template <class T>
void attend_grad_src_as(const AttendArgs& args) {
  const SourceSweep<T> sweep(args);
  for_groups(*args.work, args.threads,
             [&](int64_t group, const WorkItem& item, int thread) { sweep(group, item, thread); });
  for_cut_rows(*args.work, args.threads, [&](const CutRow& cut) { sweep.combine(cut); });
  sweep.add_parts();
}

template void attend_grad_src_as<ONEHOP_TYPE>(const AttendArgs& args);

}  // namespace ONEHOP_ISA
}  // namespace onehop
