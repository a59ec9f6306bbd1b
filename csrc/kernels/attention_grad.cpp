// The gradient of attention, in two sweeps: over the edges of every destination, and over those of every source
// on the transposed graph. Both compute scores and weights again; nothing is kept for an edge, and every sum has
// one owner. With g the gradient of out, w an edge's softmaxed weight, m its mask, p = g[i] . value[j] and
// D[i] = g[i] . out[i] (which is the sum of w m p over the row), the gradient of its score is d = w (m p - D[i]).
// Gradients of returned weights are added to m p, and their part of D comes from outside.
//
// The gradient of gatv2's att is the sum of d leaky(z) over all edges, with z = query[i] + value[j] + edge. As
// leaky(z) = leaky'(z) z, it is had from sums of d leaky'(z) over rows, times the rows, in both sweeps: work for
// every node in place of every edge.
#include "attention.hpp"
#include "attention_scores.hpp"

namespace onehop {
inline namespace ONEHOP_ISA {
namespace {

// Per-edge numbers of a block, head by head.
template <class A>
struct EdgeNumbers {
  A *raw, *weight, *slope, *mask;  // score before its end; m w; d; m

  EdgeNumbers(Arena& arena, int64_t heads)
      : raw(arena.take<A>(heads * kBlockEdges)),
        weight(arena.take<A>(heads * kBlockEdges)),
        slope(arena.take<A>(heads * kBlockEdges)),
        mask(arena.take<A>(heads * kBlockEdges)) {
    // Powers are taken of whole vectors: what lies beyond the edges must be some number.
    std::memset(weight, 0, static_cast<size_t>(heads * kBlockEdges) * sizeof(A));
  }
  static int64_t bytes(int64_t heads) { return 4 * Arena::bytes_of<A>(heads * kBlockEdges); }
};

template <class A>
void clear(A* numbers, int64_t count) {
  std::memset(numbers, 0, static_cast<size_t>(count) * sizeof(A));
}

// Scales d by what lies between the score and its sum: the leaky relu of gat, the scale of dot.
template <class T>
void pass_through_score(const Scores<T>& scores, int64_t edges, const Acc<T>* raw, Acc<T>* slope) {
  using A = Acc<T>;
  if (scores.args.rule == ScoreRule::gatv2) return;
  const bool gat = scores.args.rule == ScoreRule::gat;
  const A factor = static_cast<A>(scores.args.factor);
  for (int64_t head = 0; head < scores.heads; ++head, raw += kBlockEdges, slope += kBlockEdges) {
    for (int64_t e = 0; e < edges; ++e) slope[e] *= gat && raw[e] > 0 ? A(1) : factor;
  }
}

// Turns p into m p, and adds the gradients of returned weights (times the mask, if those were masked).
template <class T>
void mask_products(const Scores<T>& scores, int64_t first, int64_t edges, const EdgeNumbers<Acc<T>>& numbers) {
  using A = Acc<T>;
  const AttendArgs& args = scores.args;
  const bool masked = scores.masks.any();
  if (masked) {
    for (int64_t head = 0; head < scores.heads; ++head) {
      A* products = numbers.slope + head * kBlockEdges;
      const A* mask = numbers.mask + head * kBlockEdges;
      for (int64_t e = 0; e < edges; ++e) products[e] *= mask[e];
    }
  }
  if (args.grad_weights == nullptr) return;
  for (int64_t e = 0; e < edges; ++e) {
    const A* grad = static_cast<const A*>(args.grad_weights) + edge_number(scores.csr, first + e) * scores.heads;
    for (int64_t head = 0; head < scores.heads; ++head) {
      const int64_t at = head * kBlockEdges + e;
      numbers.slope[at] += masked && args.weights_masked ? grad[head] * numbers.mask[at] : grad[head];
    }
  }
}

// Applies the mask to the weights, for sums of rows.
template <class T>
void mask_weights(const Scores<T>& scores, int64_t edges, const EdgeNumbers<Acc<T>>& numbers) {
  if (!scores.masks.any()) return;
  for (int64_t head = 0; head < scores.heads; ++head) {
    auto* weight = numbers.weight + head * kBlockEdges;
    const auto* mask = numbers.mask + head * kBlockEdges;
    for (int64_t e = 0; e < edges; ++e) weight[e] *= mask[e];
  }
}

// Adds up what groups of pieces of work left, group after group.
template <class A>
void add_groups(const A* parts, int64_t groups, int64_t count, A* out) {
  clear(out, count);
  for (int64_t group = 0; group < groups; ++group, parts += count) {
    for (int64_t c = 0; c < count; ++c) out[c] += parts[c];
  }
}

// Runs body(group, item, thread) for every piece of work; pieces of a group run one after another. Sums over
// all edges are kept for each group: enough of them to share out, whatever the number of threads, and few
// enough to keep.
constexpr int64_t kMostGroups = 64;

template <class Body>
void for_groups(const WorkList& work, int threads, const Body& body) {
  struct Context {
    const WorkList& work;
    const Body& body;
    int64_t groups;
  } context{work, body, smaller(kMostGroups, static_cast<int64_t>(work.items.size()))};
  parallel_for(
      context.groups, threads,
      [](void* opaque, int64_t group, int thread) {
        const auto& c = *static_cast<const Context*>(opaque);
        const auto items = static_cast<int64_t>(c.work.items.size());
        for (int64_t i = items * group / c.groups; i < items * (group + 1) / c.groups; ++i) {
          c.body(group, c.work.items.data()[i], thread);
        }
      },
      &context);
}

// The gradient of att, in parts for groups of pieces of work.
template <class A>
class AttParts {
 public:
  explicit AttParts(const AttendArgs& args)
      : groups_(smaller(kMostGroups, static_cast<int64_t>(args.work->items.size()))),
        columns_(args.grad_att != nullptr ? args.heads * args.key_width : 0),
        parts_(groups_ * columns_ * static_cast<int64_t>(sizeof(A))) {
    if (columns_ > 0) clear(parts_.template as<A>(), groups_ * columns_);
  }
  // The part of a group, or null.
  A* of(int64_t group) const { return columns_ > 0 ? parts_.template as<A>() + group * columns_ : nullptr; }
  // Adds all parts, in order.
  void add_to(void* out) const {
    for (int64_t group = 0; group < groups_ && columns_ > 0; ++group) {
      for (int64_t c = 0; c < columns_; ++c) static_cast<A*>(out)[c] += of(group)[c];
    }
  }

 private:
  int64_t groups_, columns_;
  Block parts_;
};

// part += row * sums
template <class T>
void add_product(const T* row, const Acc<T>* sums, int64_t columns, Acc<T>* part) {
  constexpr int kLanes = kFullLanes<Acc<T>>;
  int64_t c = 0;
  for (; c + kLanes <= columns; c += kLanes) {
    const auto product = load<T, kLanes>(row + c) * load<Acc<T>, kLanes>(sums + c);
    store<Acc<T>, kLanes>(part + c, load<Acc<T>, kLanes>(part + c) + product);
  }
  for (; c < columns; ++c) part[c] += load<T, 1>(row + c) * sums[c];
}

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
    // In the order in which p is added up: where a row has one edge, the two are the same to the last bit.
    const T* out = static_cast<const T*>(args.out) + s.row * scores_.value_columns;
    product_(DotTerm<T>{grad(s.row)}, {out, 0, scores_.ordinals.value}, 1, heads_, own_sum);
    const auto* extra = static_cast<const A*>(args.weights_product);
    for (int64_t head = 0; head < heads_; ++head) {
      own_sum[head] = own_sum[head * kBlockEdges] + (extra != nullptr ? extra[s.row * heads_ + head] : A(0));
    }
    // Of a cut row, the piece that has its first edge.
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

  // Writes the gradient of edge features, or takes it through their projection.
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

  // 1 for every head: sums go on from what is there.
  struct Ones {
    Block block;
    A* value;
    explicit Ones(int64_t heads) : block(heads * static_cast<int64_t>(sizeof(A))), value(block.as<A>()) {
      for (int64_t head = 0; head < heads; ++head) value[head] = 1;
    }
  };

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
  Ones ones_{heads_};
  int64_t thread_bytes_;
  Block scratch_;
  AttParts<A> att_parts_;
  Block weight_parts_;
};

// On the transposed graph: rows are sources, columns destinations.
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

  // To what the sweep over destinations has left there.
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

  struct Ones {
    Block block;
    A* value;
    explicit Ones(int64_t heads) : block(heads * static_cast<int64_t>(sizeof(A))), value(block.as<A>()) {
      for (int64_t head = 0; head < heads; ++head) value[head] = 1;
    }
  };

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
  Ones ones_{heads_};
  int64_t thread_bytes_;
  Block scratch_;
  AttParts<A> att_parts_;
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

template <class T>
void attend_grad_src_as(const AttendArgs& args) {
  const SourceSweep<T> sweep(args);
  for_groups(*args.work, args.threads,
             [&](int64_t group, const WorkItem& item, int thread) { sweep(group, item, thread); });
  for_cut_rows(*args.work, args.threads, [&](const CutRow& cut) { sweep.combine(cut); });
  sweep.add_parts();
}

template void attend_grad_dst_as<ONEHOP_TYPE>(const AttendArgs& args);
template void attend_grad_src_as<ONEHOP_TYPE>(const AttendArgs& args);

}  // namespace ONEHOP_ISA
}  // namespace onehop
