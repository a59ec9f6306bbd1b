// Common parts of both sweeps of attention's gradient.
//
// The gradient of attention, in two sweeps: over the edges of every destination, and over those of every source
// on the transposed graph. Both compute scores and weights again; nothing is kept for an edge, and every sum has
// one owner. With g the gradient of out, w an edge's softmaxed weight, m its mask, p = g[i] . value[j] and
// D[i] = g[i] . out[i] (which is the sum of w m p over the row), the gradient of its score is d = w (m p - D[i]).
// Gradients of returned weights are added to m p, and their part of D comes from outside.
//
// The gradient of gatv2's att is the sum of d leaky(z) over all edges, with z = query[i] + value[j] + edge. As leaky(z)
// = leaky'(z) z, it is computed from sums of d leaky'(z) over rows, times the rows, in both sweeps: work for every node
// instead of every edge.
#pragma once

#include "attention.hpp"
#include "attention_scores.hpp"

namespace onehop {
inline namespace ONEHOP_ISA {

// Per-edge numbers of a block, head by head.
template <class A>
struct EdgeNumbers {
  A *raw, *weight, *slope, *mask;  // score before its end; m w; d; m

  EdgeNumbers(Arena& arena, int64_t heads)
      : raw(arena.take<A>(heads * kBlockEdges)),
        weight(arena.take<A>(heads * kBlockEdges)),
        slope(arena.take<A>(heads * kBlockEdges)),
        mask(arena.take<A>(heads * kBlockEdges)) {
    // Exponentials are computed for whole vectors: the padding beyond the edges must hold valid numbers.
    std::memset(weight, 0, static_cast<size_t>(heads * kBlockEdges) * sizeof(A));
  }
  static int64_t bytes(int64_t heads) { return 4 * Arena::bytes_of<A>(heads * kBlockEdges); }
};

// 1 for every head: sums continue from the existing values.
template <class A>
struct Ones {
  Block block;
  A* value;
  explicit Ones(int64_t heads) : block(heads * static_cast<int64_t>(sizeof(A))), value(block.as<A>()) {
    for (int64_t head = 0; head < heads; ++head) value[head] = 1;
  }
};

template <class A>
void clear(A* numbers, int64_t count) {
  std::memset(numbers, 0, static_cast<size_t>(count) * sizeof(A));
}

// Scales d by the factor between the score and its sum: the leaky relu of gat, the scale of dot.
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

// Sums the results of groups of work items, group after group.
template <class A>
void add_groups(const A* parts, int64_t groups, int64_t count, A* out) {
  clear(out, count);
  for (int64_t group = 0; group < groups; ++group, parts += count) {
    for (int64_t c = 0; c < count; ++c) out[c] += parts[c];
  }
}

// Runs body(group, item, thread) for every work item; items of a group run one after another. Sums over all edges are
// stored for each group: enough groups to balance any number of threads, and few enough to store.
inline constexpr int64_t kMostGroups = 64;

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

}  // namespace ONEHOP_ISA
}  // namespace onehop
