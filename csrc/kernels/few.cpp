// Sums and attention over few edges, in the order in which they come: no graph is made.
//
// Every pass reads the ends of an edge once, and leaves where one is out of range, before it has used it. Sums run in
// the order of the edges, as PyG's do, on the calling thread.
#include "exponential.hpp"
#include "sweep.hpp"
#include "tables.hpp"

namespace onehop {
inline namespace ONEHOP_ISA {
namespace {

// The constant that PyG adds to every sum, in torch_geometric.utils.softmax.
constexpr double kSumOffset = 1e-16;

// Calls visit.template operator()<lanes>(first number) for `count` numbers, in vectors as long as they fill.
template <class T, int kLanes = kFullLanes<T>, class Visit>
ONEHOP_INLINE void for_numbers(int64_t count, const Visit& visit, int64_t first = 0) {
  for (; first + kLanes <= count; first += kLanes) visit.template operator()<kLanes>(first);
  if constexpr (kLanes > 1) {
    if (first < count) for_numbers<T, kLanes / 2>(count, visit, first);
  }
}

template <class T>
ONEHOP_INLINE void fill(T* numbers, int64_t count, T value) {
  for_numbers<T>(count, [&]<int kLanes>(int64_t i) { store<T, kLanes>(numbers + i, splat<T, kLanes>(value)); });
}

// to += factor * from
template <class T>
ONEHOP_INLINE void add(T* to, const T* from, T factor, int64_t count) {
  for_numbers<T>(count, [&]<int kLanes>(int64_t i) {
    store<T, kLanes>(to + i, load<T, kLanes>(to + i) + factor * load<T, kLanes>(from + i));
  });
}

// The sum of term.template operator()<lanes>(number) over `count` numbers.
template <class T, class Term>
ONEHOP_INLINE T sum_over(int64_t count, const Term& term) {
  constexpr int kLanes = kFullLanes<T>;
  Vector<T, kLanes> sums = splat<T, kLanes>(0);
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) sums += term.template operator()<kLanes>(i);
  T total = 0;
  for (int lane = 0; lane < kLanes; ++lane) total += sums[lane];
  for (; i < count; ++i) total += term.template operator()<1>(i);
  return total;
}

template <class T>
ONEHOP_INLINE T dot(const T* a, const T* b, int64_t count) {
  return sum_over<T>(count, [&]<int kLanes>(int64_t i) { return load<T, kLanes>(a + i) * load<T, kLanes>(b + i); });
}

template <class T, int kLanes>
ONEHOP_INLINE Vector<T, kLanes> leaky(Vector<T, kLanes> x, T slope) {
  return x > splat<T, kLanes>(0) ? x : Vector<T, kLanes>(x * slope);
}

// The operands, and where their rows begin.
template <class T>
struct Few {
  const FewArgs& args;
  const int64_t width = args.heads * args.columns;

  const T* values(int64_t source) const { return static_cast<const T*>(args.values) + source * width; }
  const T* of_source(int64_t source, int64_t numbers) const {
    return static_cast<const T*>(args.of_source) + source * numbers;
  }
  const T* of_target(int64_t target, int64_t numbers) const {
    return static_cast<const T*>(args.of_target) + target * numbers;
  }
  const T* grad(int64_t target) const { return static_cast<const T*>(args.grad) + target * width; }
  T weight(int64_t edge) const { return args.weight == nullptr ? T{1} : static_cast<const T*>(args.weight)[edge]; }

  // Visits the edges as (number, source, target). False if an end is out of range.
  template <class Visit>
  ONEHOP_INLINE bool each(const Visit& visit) const {
    for (int64_t edge = 0; edge < args.edges; ++edge) {
      const int64_t source =
          args.source_ends == nullptr ? edge : __atomic_load_n(args.source_ends + edge * args.stride, __ATOMIC_RELAXED);
      const int64_t target = __atomic_load_n(args.target_ends + edge * args.stride, __ATOMIC_RELAXED);
      if (static_cast<uint64_t>(source) >= static_cast<uint64_t>(args.sources) ||
          static_cast<uint64_t>(target) >= static_cast<uint64_t>(args.targets)) {
        return false;
      }
      visit(edge, source, target);
    }
    return true;
  }
};

// The number of edges of each target goes to the scratch memory.
template <class T>
bool count_edges(const Few<T>& few, T* counts) {
  fill<T>(counts, few.args.targets, 0);
  return few.each([&](int64_t, int64_t, int64_t target) { counts[target] += 1; });
}

template <class T>
bool sum(const Few<T>& few) {
  const FewArgs& args = few.args;
  T* out = static_cast<T*>(args.out);
  fill<T>(out, args.targets * few.width, 0);
  const bool in_range = few.each([&](int64_t edge, int64_t source, int64_t target) {
    add(out + target * few.width, few.values(source), few.weight(edge), few.width);
  });
  if (!in_range || args.kind == FewKind::sum) return in_range;
  T* counts = static_cast<T*>(args.scratch);
  if (!count_edges(few, counts)) return false;
  for (int64_t target = 0; target < args.targets; ++target) {
    const T count = counts[target] > 1 ? counts[target] : T{1};
    T* row = out + target * few.width;
    for_numbers<T>(few.width, [&]<int kLanes>(int64_t i) {
      store<T, kLanes>(row + i, load<T, kLanes>(row + i) / splat<T, kLanes>(count));
    });
  }
  return true;
}

template <class T>
bool sum_grad(const Few<T>& few) {
  const FewArgs& args = few.args;
  T *counts = static_cast<T*>(args.scratch), *of_values = static_cast<T*>(args.grad_values);
  T* of_weight = static_cast<T*>(args.grad_weight);
  const bool mean = args.kind == FewKind::mean;
  if (mean && !count_edges(few, counts)) return false;
  if (of_values != nullptr) fill<T>(of_values, args.sources * few.width, 0);
  return few.each([&](int64_t edge, int64_t source, int64_t target) {
    // An edge that another thread has written to since may have a target without edges.
    const T share = mean ? 1 / (counts[target] > 1 ? counts[target] : T{1}) : T{1};
    const T* grad = few.grad(target);
    if (of_values != nullptr) add(of_values + source * few.width, grad, share * few.weight(edge), few.width);
    if (of_weight != nullptr) of_weight[edge] = share * dot(few.values(source), grad, few.width);
  });
}

// Whether a number takes the place of the largest, or least, so far. NaN stays.
template <class T, int kLanes>
ONEHOP_INLINE auto is_beyond(bool max, Vector<T, kLanes> x, Vector<T, kLanes> found) {
  return (max ? x > found : x < found) | (x != x);
}

template <class T>
bool extremum(const Few<T>& few) {
  const FewArgs& args = few.args;
  const bool max = args.kind == FewKind::max;
  T *out = static_cast<T*>(args.out), *counts = static_cast<T*>(args.scratch);
  fill<T>(counts, args.targets, 0);
  fill<T>(out, args.targets * few.width, 0);
  return few.each([&](int64_t, int64_t source, int64_t target) {
    const T* row = few.values(source);
    T* found = out + target * few.width;
    const bool first = counts[target] == 0;
    counts[target] = 1;
    for_numbers<T>(few.width, [&]<int kLanes>(int64_t i) {
      const auto x = load<T, kLanes>(row + i), before = load<T, kLanes>(found + i);
      store<T, kLanes>(found + i, first ? x : (is_beyond<T, kLanes>(max, x, before) ? x : before));
    });
  });
}

// Entries that tie share the gradient; torch counts the zeros that it begins with among them. No entry equals an
// extremum that is NaN, and torch gives NaN to all entries of its row.
template <class T>
bool extremum_grad(const Few<T>& few) {
  const FewArgs& args = few.args;
  const auto* out = static_cast<const T*>(args.out);
  T *ties = static_cast<T*>(args.scratch), *of_values = static_cast<T*>(args.grad_values);
  for (int64_t i = 0; i < args.targets * few.width; ++i) ties[i] = out[i] == 0;
  fill<T>(of_values, args.sources * few.width, 0);
  const auto visit = [&](const auto& row) {
    return few.each([&](int64_t, int64_t source, int64_t target) {
      const int64_t from = source * few.width, to = target * few.width;
      for_numbers<T>(few.width, [&]<int kLanes>(int64_t i) {
        using V = Vector<T, kLanes>;
        const V zero = splat<T, kLanes>(0), x = load<T, kLanes>(few.values(source) + i);
        row.template operator()<kLanes>(x == load<T, kLanes>(out + to + i), zero, from + i, to + i);
      });
    });
  };
  return visit([&]<int kLanes>(auto ties_here, Vector<T, kLanes> zero, int64_t, int64_t to) {
           const Vector<T, kLanes> one = zero + splat<T, kLanes>(1);
           store<T, kLanes>(ties + to, load<T, kLanes>(ties + to) + (ties_here ? one : zero));
         }) &&
         visit([&]<int kLanes>(auto ties_here, Vector<T, kLanes> zero, int64_t from, int64_t to) {
           const Vector<T, kLanes> one = zero + splat<T, kLanes>(1);
           const Vector<T, kLanes> share =
               load<T, kLanes>(static_cast<const T*>(args.grad) + to) / load<T, kLanes>(ties + to);
           store<T, kLanes>(of_values + from, load<T, kLanes>(of_values + from) + (ties_here ? one : zero) * share);
         });
}

// What the softmax of an edge is made of, for each head.
template <class T>
ONEHOP_INLINE void score(const Few<T>& few, int64_t source, int64_t target, T* scores) {
  const FewArgs& args = few.args;
  const T factor = static_cast<T>(args.factor);
  if (args.kind == FewKind::gat) {
    const T *a = few.of_source(source, args.heads), *b = few.of_target(target, args.heads);
    return for_numbers<T>(args.heads, [&]<int kLanes>(int64_t head) {
      store<T, kLanes>(scores + head, leaky<T, kLanes>(load<T, kLanes>(a + head) + load<T, kLanes>(b + head), factor));
    });
  }
  const T *a = few.of_source(source, few.width), *b = few.of_target(target, few.width);
  const T* att = static_cast<const T*>(args.att);
  for (int64_t head = 0; head < args.heads; ++head, a += args.columns, b += args.columns, att += args.columns) {
    if (args.kind == FewKind::dot) {
      scores[head] = factor * dot(a, b, args.columns);
    } else {
      scores[head] = sum_over<T>(args.columns, [&]<int kLanes>(int64_t i) {
        return load<T, kLanes>(att + i) * leaky<T, kLanes>(load<T, kLanes>(a + i) + load<T, kLanes>(b + i), factor);
      });
    }
  }
}

// Makes the weights of edges of their scores, which are in alpha, and of the largest score of each target: -infinity
// without edges.
template <class T>
bool normalise(const Few<T>& few, const T* most) {
  const FewArgs& args = few.args;
  const int64_t heads = args.heads;
  T *alpha = static_cast<T*>(args.alpha), *sums = static_cast<T*>(args.scratch) + args.targets * heads;
  fill<T>(sums, args.targets * heads, 0);
  // Calls visit.template operator()<lanes>(the place of a weight, that of its target).
  const auto for_weights = [&](const auto& visit) {
    return few.each([&](int64_t edge, int64_t, int64_t target) {
      for_numbers<T>(heads, [&]<int kLanes>(int64_t head) {
        visit.template operator()<kLanes>(alpha + edge * heads + head, target * heads + head);
      });
    });
  };
  if (!for_weights([&]<int kLanes>(T* at, int64_t target) {
        store<T, kLanes>(at, load<T, kLanes>(at) - load<T, kLanes>(most + target));
      })) {
    return false;
  }
  for_numbers<T>(args.edges * heads, [&]<int kLanes>(int64_t i) {
    store<T, kLanes>(alpha + i, exponential<T, kLanes>(load<T, kLanes>(alpha + i)));
  });
  return for_weights([&]<int kLanes>(T* at, int64_t target) {
           store<T, kLanes>(sums + target, load<T, kLanes>(sums + target) + load<T, kLanes>(at));
         }) &&
         for_weights([&]<int kLanes>(T* at, int64_t target) {
           const Vector<T, kLanes> offset = splat<T, kLanes>(static_cast<T>(kSumOffset));
           store<T, kLanes>(at, load<T, kLanes>(at) / (load<T, kLanes>(sums + target) + offset));
         });
}

// Makes the weights of the scores that write(edge, source, target, scores) writes for each head.
template <class T, class Write>
bool weigh(const Few<T>& few, const Write& write) {
  const FewArgs& args = few.args;
  T *alpha = static_cast<T*>(args.alpha), *most = static_cast<T*>(args.scratch);
  fill<T>(most, args.targets * args.heads, -static_cast<T>(__builtin_huge_val()));
  return few.each([&](int64_t edge, int64_t source, int64_t target) {
    T *scores = alpha + edge * args.heads, *largest = most + target * args.heads;
    write(edge, source, target, scores);
    // Without a branch, which would go either way. NaN is passed over: it makes the sum NaN.
    for_numbers<T>(args.heads, [&]<int kLanes>(int64_t head) {
      const auto x = load<T, kLanes>(scores + head), before = load<T, kLanes>(largest + head);
      store<T, kLanes>(largest + head, x > before ? x : before);
    });
  }) && normalise(few, most);
}

template <class T>
bool softmax(const Few<T>& few) {
  return weigh(few, [&](int64_t edge, int64_t, int64_t, T* scores) {
    __builtin_memcpy(scores, few.values(edge), sizeof(T) * static_cast<size_t>(few.args.heads));
  });
}

template <class T>
bool softmax_grad(const Few<T>& few) {
  const FewArgs& args = few.args;
  const int64_t heads = args.heads;
  const auto *alpha = static_cast<const T*>(args.alpha), *grad = static_cast<const T*>(args.grad);
  T *sums = static_cast<T*>(args.scratch), *out = static_cast<T*>(args.grad_values);
  fill<T>(sums, args.targets * heads, 0);
  return few.each([&](int64_t edge, int64_t, int64_t target) {
    for (int64_t at = edge * heads, to = target * heads; at < (edge + 1) * heads; ++at, ++to) {
      out[at] = alpha[at] * grad[at];
      sums[to] += out[at];
    }
  }) && few.each([&](int64_t edge, int64_t, int64_t target) {
    for (int64_t at = edge * heads, to = target * heads; at < (edge + 1) * heads; ++at, ++to) {
      out[at] -= alpha[at] * sums[to];
    }
  });
}

template <class T>
bool attend(const Few<T>& few) {
  const FewArgs& args = few.args;
  T *out = static_cast<T*>(args.out), *alpha = static_cast<T*>(args.alpha);
  fill<T>(out, args.targets * few.width, 0);
  const auto write = [&](int64_t, int64_t source, int64_t target, T* scores) { score(few, source, target, scores); };
  return weigh(few, write) && few.each([&](int64_t edge, int64_t source, int64_t target) {
    for (int64_t head = 0; head < args.heads; ++head) {
      const int64_t place = head * args.columns;
      add(out + target * few.width + place, few.values(source) + place, alpha[edge * args.heads + head], args.columns);
    }
  });
}

// Adds the gradients of a score, which is `grad`, to those of its operands.
template <class T>
ONEHOP_INLINE void add_score_grad(const Few<T>& few, T grad, int64_t source, int64_t target, int64_t head) {
  const FewArgs& args = few.args;
  const T factor = static_cast<T>(args.factor);
  T *of_source = static_cast<T*>(args.grad_of_source), *of_target = static_cast<T*>(args.grad_of_target);
  if (args.kind == FewKind::gat) {
    const T before = few.of_source(source, args.heads)[head] + few.of_target(target, args.heads)[head];
    const T own = before > 0 ? grad : grad * factor;
    of_source[source * args.heads + head] += own;
    of_target[target * args.heads + head] += own;
    return;
  }
  const int64_t place = head * args.columns;
  const T *a = few.of_source(source, few.width) + place, *b = few.of_target(target, few.width) + place;
  T *to_a = of_source + source * few.width + place, *to_b = of_target + target * few.width + place;
  if (args.kind == FewKind::dot) {
    add(to_a, b, grad * factor, args.columns);
    add(to_b, a, grad * factor, args.columns);
    return;
  }
  const T* att = static_cast<const T*>(args.att) + place;
  T* of_att = static_cast<T*>(args.grad_att) + place;
  for_numbers<T>(args.columns, [&]<int kLanes>(int64_t i) {
    using V = Vector<T, kLanes>;
    const V before = load<T, kLanes>(a + i) + load<T, kLanes>(b + i), wide = splat<T, kLanes>(grad);
    const V through = wide * load<T, kLanes>(att + i);
    const V own = before > splat<T, kLanes>(0) ? through : V(through * factor);
    store<T, kLanes>(of_att + i, load<T, kLanes>(of_att + i) + wide * leaky<T, kLanes>(before, factor));
    store<T, kLanes>(to_a + i, load<T, kLanes>(to_a + i) + own);
    store<T, kLanes>(to_b + i, load<T, kLanes>(to_b + i) + own);
  });
}

template <class T>
bool attend_grad(const Few<T>& few) {
  const FewArgs& args = few.args;
  const int64_t heads = args.heads;
  const auto* alpha = static_cast<const T*>(args.alpha);
  // The sum over each target's edges of weight times gradient to the weight, and these gradients.
  T *sums = static_cast<T*>(args.scratch), *grads = sums + args.targets * heads;
  T* of_values = static_cast<T*>(args.grad_values);
  const int64_t scored = args.kind == FewKind::gat ? heads : few.width;
  fill<T>(sums, args.targets * heads, 0);
  fill<T>(of_values, args.sources * few.width, 0);
  // GATv2's scores are of the values themselves.
  if (args.grad_of_source != args.grad_values) fill<T>(static_cast<T*>(args.grad_of_source), args.sources * scored, 0);
  fill<T>(static_cast<T*>(args.grad_of_target), args.targets * scored, 0);
  if (args.kind == FewKind::gatv2) fill<T>(static_cast<T*>(args.grad_att), few.width, 0);
  const bool in_range = few.each([&](int64_t edge, int64_t source, int64_t target) {
    for (int64_t head = 0; head < heads; ++head) {
      const int64_t place = head * args.columns;
      const T weight = alpha[edge * heads + head];
      const T found = dot(few.values(source) + place, few.grad(target) + place, args.columns);
      grads[edge * heads + head] = found;
      sums[target * heads + head] += weight * found;
      add(of_values + source * few.width + place, few.grad(target) + place, weight, args.columns);
    }
  });
  return in_range && few.each([&](int64_t edge, int64_t source, int64_t target) {
    for (int64_t head = 0; head < heads; ++head) {
      const int64_t at = edge * heads + head;
      add_score_grad(few, alpha[at] * (grads[at] - sums[target * heads + head]), source, target, head);
    }
  });
}

template <class T>
bool forward(const FewArgs& args) {
  const Few<T> few{args};
  if (args.kind == FewKind::softmax) return softmax(few);
  if (args.kind >= FewKind::gat) return attend(few);
  return args.kind >= FewKind::max ? extremum(few) : sum(few);
}

template <class T>
bool backward(const FewArgs& args) {
  const Few<T> few{args};
  if (args.kind == FewKind::softmax) return softmax_grad(few);
  if (args.kind >= FewKind::gat) return attend_grad(few);
  return args.kind >= FewKind::max ? extremum_grad(few) : sum_grad(few);
}

}  // namespace

bool few_edges(const FewArgs& args) {
  return args.dtype == DType::float64 ? forward<double>(args) : forward<float>(args);
}

bool few_edges_grad(const FewArgs& args) {
  return args.dtype == DType::float64 ? backward<double>(args) : backward<float>(args);
}

}  // namespace ONEHOP_ISA
}  // namespace onehop
