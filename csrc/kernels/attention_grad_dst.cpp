// Gradients of attention to destinations: the sweep over the edges of every destination.
#include "attention_grad.hpp"

namespace onehop {
inline namespace ONEHOP_ISA {
namespace {

template <class T>
class DestinationSweep {
 public:
  using A = Acc<T>;
  explicit DestinationSweep(const AttendArgs& args)
      : scores_(args),
        heads_(args.heads),
        columns_(args.rule == ScoreRule::gat ? args.heads : scores_.key_columns),
        groups_(smaller(kMostGroups, static_cast<int64_t>(args.work->items.size()))),
        weight_numbers_(args.grad_edge_weight != nullptr ? args.edge_width * scores_.key_columns : 0),
        product_(larger(args.value_width, 1)),
        product_edge_(larger(args.value_width, 1)),
        sum_(larger(args.key_width, 1)),
        sum_edge_(larger(args.key_width, 1)),
        slopes_(larger(args.key_width, 1)),
        slopes_edge_(larger(args.key_width, 1)),
        input_dots_(larger(scores_.key_columns, 1)),
        weight_sums_(larger(scores_.key_columns, 1)),
        thread_bytes_(EdgeNumbers<A>::bytes(heads_) + Arena::bytes_of<A>(heads_ * kBlockEdges) +
                      Arena::bytes_of<A>(columns_) +
                      Arena::bytes_of<A>(scores_.edge_rows.any() ? scores_.most_edges * scores_.key_columns : 0) +
                      scores_.edge_bytes() + Arena::bytes_of<A>(kBlockEdges) + 4 * kLineBytes),
        scratch_(args.threads * thread_bytes_),
        att_parts_(args),
        weight_parts_(groups_ * weight_numbers_ * static_cast<int64_t>(sizeof(A))) {
    if (weight_numbers_ > 0) clear(weight_parts_.template as<A>(), groups_ * weight_numbers_);
  }

  void operator()(int64_t group, const WorkItem& item, int thread) const {
    const AttendArgs& args = scores_.args;
    Arena arena(scratch_.as<char>() + thread * thread_bytes_);
    const EdgeNumbers<A> numbers(arena, heads_);
    A* own_sum = arena.take<A>(heads_ * kBlockEdges);
    A* sums = arena.take<A>(columns_);
    A* edge_grads = arena.take<A>(scores_.edge_rows.any() ? scores_.most_edges * scores_.key_columns : 0);
    A* inputs = arena.take<A>(kBlockEdges);
    const EdgeScratch<A> edge = scores_.edge_scratch(arena);
    A* att_part = att_parts_.of(group);

    for_edge_blocks(item, scores_.rowptr, scores_.most_edges,
                    [&](int64_t first, int64_t edges, const Segment* segments, int64_t count) {
                      scores_.lay_out_edges(first, edges, edge);
                      scores_(first, segments, count, edge, numbers.raw);
                      scores_.finish(edges, numbers.raw, numbers.weight);
                      for (const Segment* s = segments; s < segments + count; ++s) {
                        multiply_grads(first, *s, edge, numbers.slope + s->begin);
                        const A* less = static_cast<const A*>(args.softmax) + 2 * s->row * heads_;
                        for (int64_t head = 0; head < heads_; ++head) {
                          A* of_head = numbers.weight + head * kBlockEdges + s->begin;
                          for (int64_t e = 0; e < s->edges; ++e) of_head[e] -= less[head];
                        }
                      }
                      exponentials(numbers.weight, heads_, edges);
                      if (scores_.masks.any()) scores_.masks.fill(scores_.csr, first, edges, numbers.mask);
                      mask_products(scores_, first, edges, numbers);
                      for (const Segment* s = segments; s < segments + count; ++s) {
                        if (s->starts) find_own_sum(*s, own_sum, item);
                        find_slopes(*s, own_sum, numbers);
                      }
                      mask_weights(scores_, edges, numbers);
                      pass_through_score(scores_, edges, numbers.raw, numbers.slope);
                      for (const Segment* s = segments; s < segments + count; ++s) {
                        add_up(first, *s, edge, numbers, s->starts, sums);
                        if (s->ends) {
                          if (att_part != nullptr && s->edges > 0)
                            add_product(scores_.query(s->row), sums, columns_, att_part);
                          s->slot < 0 ? finish(s->row, sums) : copy(sums, slot(s->slot));
                        }
                        if (scores_.edge_rows.any()) find_edge_grads(*s, edge, numbers, edge_grads, att_part);
                      }
                      if (args.rule == ScoreRule::gat) {
                        write_edge_scores(first, edges, numbers.slope);
                      } else if (scores_.edge_rows.any()) {
                        write_edge_grads(group, first, edges, inputs, edge_grads);
                      }
                    });
  }

  void combine(const CutRow& cut) const {
    A* first = slot(cut.slot_begin);
    for (int64_t s = cut.slot_begin + 1; s < cut.slot_end; ++s) {
      for (int64_t c = 0; c < columns_; ++c) first[c] += slot(s)[c];
    }
    finish(cut.row, first);
  }

  void add_parts() const {
    const AttendArgs& args = scores_.args;
    if (args.grad_att != nullptr) {
      clear(static_cast<A*>(args.grad_att), scores_.key_columns);
      att_parts_.add_to(args.grad_att);
    }
    if (args.grad_edge_weight != nullptr) {
      add_groups(weight_parts_.as<A>(), groups_, weight_numbers_, static_cast<A*>(args.grad_edge_weight));
    }
  }

 private:
  const T* grad(int64_t row) const { return static_cast<const T*>(scores_.args.grad) + row * scores_.args.grad_stride; }
  A* slot(int64_t number) const {
    const AttendArgs& args = scores_.args;
    return static_cast<A*>(args.slots) + number * attend_slot_width(heads_, args.key_width, args.value_width);
  }
  void copy(const A* from, A* to) const { std::memcpy(to, from, static_cast<size_t>(columns_) * sizeof(A)); }

  // p of every edge and head.
  void multiply_grads(int64_t first, const Segment& s, const EdgeScratch<A>& edge, A* out) const {
    const AttendArgs& args = scores_.args;
    const DotTerm<T> term{grad(s.row)};
    if (scores_.edges_in_values()) {
      product_edge_(term, scores_.laid_out(edge.values, scores_.value_columns, s.begin), s.edges, heads_, out);
    } else {
      const bool near = args.rule == ScoreRule::gatv2;  // for their scores
      product_(term, scores_.gathered(args.value, args.value_stride, first + s.begin, near), s.edges, heads_, out);
    }
  }

  // D of the row; kept, beside its softmax, for the sweep over sources.
  void find_own_sum(const Segment& s, A* own_sum, const WorkItem& item) const {
    const AttendArgs& args = scores_.args;
    // In the order in which p is summed: for a row with one edge, the two are bitwise equal.
    const T* out = static_cast<const T*>(args.out) + s.row * scores_.value_columns;
    product_(DotTerm<T>{grad(s.row)}, {out, 0, scores_.ordinals.value}, 1, heads_, own_sum);
    const auto* extra = static_cast<const A*>(args.weights_product);
    for (int64_t head = 0; head < heads_; ++head) {
      own_sum[head] = own_sum[head * kBlockEdges] + (extra != nullptr ? extra[s.row * heads_ + head] : A(0));
    }
    // For a cut row, the piece that has its first edge.
    if (scores_.rowptr[s.row] < item.edge_begin) return;
    A* to = static_cast<A*>(args.statistics) + 3 * s.row * heads_;
    std::memcpy(to, static_cast<const A*>(args.softmax) + 2 * s.row * heads_,
                static_cast<size_t>(2 * heads_) * sizeof(A));
    std::memcpy(to + 2 * heads_, own_sum, static_cast<size_t>(heads_) * sizeof(A));
  }

  void find_slopes(const Segment& s, const A* own_sum, const EdgeNumbers<A>& numbers) const {
    const A* inverse = static_cast<const A*>(scores_.args.softmax) + (2 * s.row + 1) * heads_;
    for (int64_t head = 0; head < heads_; ++head) {
      A* weight = numbers.weight + head * kBlockEdges + s.begin;
      A* slope = numbers.slope + head * kBlockEdges + s.begin;
      const A factor = inverse[head], own = own_sum[head];
      for (int64_t e = 0; e < s.edges; ++e) {
        weight[e] *= factor;
        slope[e] = weight[e] * (slope[e] - own);
      }
    }
  }

  void add_up(int64_t first, const Segment& s, const EdgeScratch<A>& edge, const EdgeNumbers<A>& numbers, bool starts,
              A* sums) const {
    const AttendArgs& args = scores_.args;
    const A* slope = numbers.slope + s.begin;
    const int64_t begin = first + s.begin;
    if (starts) clear(sums, columns_);
    if (args.rule == ScoreRule::gat) {
      for (int64_t head = 0; head < heads_; ++head) sums[head] += total(slope + head * kBlockEdges, s.edges);
      return;
    }
    if (args.rule == ScoreRule::gatv2) {
      const T* own = scores_.query(s.row);
      if (scores_.edge_rows.any()) {
        slopes_edge_(own, scores_.slope, scores_.laid_out(edge.keys, columns_, s.begin), s.edges, heads_, slope, sums);
      } else {
        slopes_(own, scores_.slope, scores_.keys(begin, true), s.edges, heads_, slope, sums);
      }
      return;
    }
    if (scores_.edge_rows.any()) {
      sum_edge_(scores_.laid_out(edge.keys, columns_, s.begin), s.edges, heads_, slope, kBlockEdges, ones_.value, sums);
    } else {
      sum_(scores_.keys(begin, true), s.edges, heads_, slope, kBlockEdges, ones_.value, sums);
    }
  }

  void finish(int64_t row, A* sums) const {
    const AttendArgs& args = scores_.args;
    if (args.grad_query == nullptr) return;
    if (args.rule == ScoreRule::gat) return copy(sums, static_cast<A*>(args.grad_query) + row * columns_);
    if (args.rule == ScoreRule::gatv2) {
      const A* att = static_cast<const A*>(args.att);
      for (int64_t c = 0; c < columns_; ++c) sums[c] *= att[c];
    }
    static constexpr A kOne = 1;
    store_scaled<T>(sums, &kOne, 1, columns_, static_cast<T*>(args.grad_query) + row * columns_);
  }

  void write_edge_scores(int64_t first, int64_t edges, const A* slope) const {
    auto* out = static_cast<A*>(scores_.args.grad_edge);
    if (out == nullptr) return;
    for (int64_t e = 0; e < edges; ++e) {
      A* to = out + edge_number(scores_.csr, first + e) * heads_;
      for (int64_t head = 0; head < heads_; ++head) to[head] = slope[head * kBlockEdges + e];
    }
  }

  // The gradient of every edge's (projected) features, one row after another.
  void find_edge_grads(const Segment& s, const EdgeScratch<A>& edge, const EdgeNumbers<A>& numbers, A* out,
                       A* att_part) const {
    const AttendArgs& args = scores_.args;
    const T* query = scores_.query(s.row);
    const int64_t columns = scores_.key_columns, width = args.key_width;
    for (int64_t e = s.begin; e < s.begin + s.edges; ++e) {
      A* to = out + e * columns;
      for (int64_t head = 0; head < heads_; ++head) {
        const A slope = numbers.slope[head * kBlockEdges + e], weight = numbers.weight[head * kBlockEdges + e];
        const int64_t begin = head * width;
        if (args.rule == ScoreRule::gatv2) {
          const A* att = static_cast<const A*>(args.att);
          const A* row = edge.keys + e * columns;
          for (int64_t c = begin; c < begin + width; ++c) {
            const A sloped = load<T, 1>(query + c) + row[c] > 0 ? slope : slope * scores_.slope;
            to[c] = att[c] * sloped;
            if (att_part != nullptr) att_part[c] += sloped * edge.rows[e * columns + c];
          }
        } else {
          const T* g = grad(s.row);
          for (int64_t c = begin; c < begin + width; ++c) {
            to[c] = slope * load<T, 1>(query + c) + weight * load<T, 1>(g + c);
          }
        }
      }
    }
  }

  // Writes the gradient of edge features, or propagates it through their projection.
  void write_edge_grads(int64_t group, int64_t first, int64_t edges, A* inputs, const A* grads) const {
    const AttendArgs& args = scores_.args;
    const int64_t columns = scores_.key_columns, count = scores_.edge_rows.inputs();
    const bool projected = scores_.edge_rows.projected();
    static constexpr A kOne = 1;
    if (args.grad_edge != nullptr) {
      for (int64_t e = 0; e < edges; ++e) {
        const int64_t number = edge_number(scores_.csr, first + e);
        const A* from = grads + e * columns;
        if (!projected) {
          store_scaled<T>(from, &kOne, 1, columns, static_cast<T*>(args.grad_edge) + number * columns);
          continue;
        }
        T* to = static_cast<T*>(args.grad_edge) + number * count;
        for (int64_t k = 0; k < count; k += kBlockEdges) {
          const int64_t some = smaller(kBlockEdges, count - k);
          const A* weight = static_cast<const A*>(args.edge_weight) + k * columns;
          input_dots_(DotTerm<A>{from}, {weight, columns, scores_.ordinals.value}, some, 1, inputs);
          store_scaled<T>(inputs, &kOne, 1, some, to + k);
        }
      }
    }
    if (args.grad_edge_weight == nullptr) return;
    A* part = weight_parts_.as<A>() + group * weight_numbers_;
    for (int64_t k = 0; k < count; ++k, part += columns) {
      for (int64_t e = 0; e < edges; ++e) inputs[e] = load<T, 1>(scores_.edge_rows.row(scores_.csr, first + e) + k);
      weight_sums_(scores_.laid_out(grads, columns, 0), edges, 1, inputs, 0, &kOne, part);
    }
  }

  Scores<T> scores_;
  int64_t heads_, columns_, groups_, weight_numbers_;
  ScoreRows<DotTerm<T>, T> product_;
  ScoreRows<DotTerm<T>, A> product_edge_;
  SumRows<T> sum_;
  SumRows<A> sum_edge_;
  SumSlopes<T, T> slopes_;
  SumSlopes<T, A> slopes_edge_;
  ScoreRows<DotTerm<A>, A> input_dots_;
  SumRows<A> weight_sums_;
  Ones<A> ones_{heads_};
  int64_t thread_bytes_;
  Block scratch_;
  AttParts<A> att_parts_;
  Block weight_parts_;
};

}  // namespace

template <class T>
void attend_grad_dst_as(const AttendArgs& args) {
  const DestinationSweep<T> sweep(args);
  for_groups(*args.work, args.threads,
             [&](int64_t group, const WorkItem& item, int thread) { sweep(group, item, thread); });
  for_cut_rows(*args.work, args.threads, [&](const CutRow& cut) { sweep.combine(cut); });
  sweep.add_parts();
}

template void attend_grad_dst_as<ONEHOP_TYPE>(const AttendArgs& args);

}  // namespace ONEHOP_ISA
}  // namespace onehop
