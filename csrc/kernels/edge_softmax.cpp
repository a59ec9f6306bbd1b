// Softmax over the edges of every row, for each head, and its gradient.
#include "exponential.hpp"
#include "sweep.hpp"
#include "tables.hpp"

namespace onehop {
inline namespace ONEHOP_ISA {
namespace {

// Whole rows are processed together up to this many numbers, which fit well into L1.
constexpr int64_t kChunkNumbers = 2048;

// The constant that PyG adds to every sum, in torch_geometric.utils.softmax.
constexpr double kSumOffset = 1e-16;

// Calls visit.template operator()<lanes>(first head) for the heads, in vectors as long as they fill.
template <class A, int kLanes, class Visit>
ONEHOP_INLINE void for_heads(int64_t heads, const Visit& visit, int64_t first = 0) {
  while (first + kLanes <= heads) {
    visit.template operator()<kLanes>(first);
    first += kLanes;
  }
  if constexpr (kLanes > 1) {
    if (first < heads) for_heads<A, kLanes / 2>(heads, visit, first);
  }
}

// The values of `edges` edges from `from` on, `heads` apart, folded into one: four independent chains, joined in a
// fixed order.
template <class A, int kLanes, class Fold>
ONEHOP_INLINE Vector<A, kLanes> fold(const A* from, int64_t edges, int64_t heads, A start, const Fold& join) {
  using V = Vector<A, kLanes>;
  V chains[4];
  for (V& chain : chains) chain = splat<A, kLanes>(start);
  int64_t e = 0;
  for (; e + 4 <= edges; e += 4) {
#pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) chains[c] = join(chains[c], load<A, kLanes>(from + (e + c) * heads));
  }
  for (; e < edges; ++e) chains[0] = join(chains[0], load<A, kLanes>(from + e * heads));
  return join(join(chains[0], chains[1]), join(chains[2], chains[3]));
}

template <class A, int kLanes>
ONEHOP_INLINE Vector<A, kLanes> sum_of(const A* from, int64_t edges, int64_t heads) {
  using V = Vector<A, kLanes>;
  return fold<A, kLanes>(from, edges, heads, A(0), [](V sum, V value) { return sum + value; });
}

// NaN is ignored: it makes the sum NaN, and with it the whole row.
template <class A, int kLanes>
ONEHOP_INLINE Vector<A, kLanes> maximum_of(const A* from, int64_t edges, int64_t heads) {
  using V = Vector<A, kLanes>;
  return fold<A, kLanes>(from, edges, heads, -A(__builtin_huge_val()),
                         [](V most, V value) { return larger_of<A, kLanes>(value, most); });
}

// A per-edge array in the caller's order, [edges, heads], as the numbers of a range of the graph's edges.
template <class T>
ONEHOP_INLINE void gather(const Csr& csr, const void* from, int64_t heads, int64_t begin, int64_t end, Acc<T>* to) {
  using A = Acc<T>;
  for (int64_t e = begin; e < end; ++e, to += heads) {
    const T* numbers = static_cast<const T*>(from) + edge_number(csr, e) * heads;
    for_heads<A, kFullLanes<A>>(
        heads, [&]<int kLanes>(int64_t head) { store<A, kLanes>(to + head, load<T, kLanes>(numbers + head)); });
  }
}

template <class T>
ONEHOP_INLINE void scatter(const Csr& csr, const Acc<T>* from, int64_t heads, int64_t begin, int64_t end, void* to) {
  using A = Acc<T>;
  for (int64_t e = begin; e < end; ++e, from += heads) {
    T* numbers = static_cast<T*>(to) + edge_number(csr, e) * heads;
    for_heads<A, kFullLanes<A>>(
        heads, [&]<int kLanes>(int64_t head) { store<T, kLanes>(numbers + head, load<A, kLanes>(from + head)); });
  }
}

// Each pass stages the numbers of a range of edges, reduces every row to some numbers a head (`found`), and finishes
// the staged numbers with those. `map` processes all staged numbers at once, in full vectors.

// Softmax itself: a row is reduced to its maxima, and then to the sums of its powers of e.
template <class T>
struct Forward {
  using A = Acc<T>;
  static constexpr int kArrays = 1;   // staged
  static constexpr int kNumbers = 2;  // found, for a head

  static void stage(const EdgeSoftmaxArgs& args, int64_t begin, int64_t end, A* staged, int64_t) {
    gather<T>(*args.csr, args.scores, args.heads, begin, end, staged);
  }

  static void prepare(A* staged, int64_t edges, int64_t heads, A* found) {
    for_heads<A, kFullLanes<A>>(heads, [&]<int kLanes>(int64_t head) {
      const auto most = maximum_of<A, kLanes>(staged + head, edges, heads);
      store<A, kLanes>(found + head, most);
      subtract<kLanes>(staged + head, edges, heads, most);
    });
  }

  // A piece with only -inf, whose row may have more than that, has no share: e to the power of -inf.
  static void prepare_piece(A* staged, int64_t edges, int64_t heads, A* found) {
    for_heads<A, kFullLanes<A>>(heads, [&]<int kLanes>(int64_t head) {
      const auto most = maximum_of<A, kLanes>(staged + head, edges, heads);
      store<A, kLanes>(found + head, most);
      const auto none = most == splat<A, kLanes>(-A(__builtin_huge_val()));
      subtract<kLanes>(staged + head, edges, heads, none ? splat<A, kLanes>(0) : most);
    });
  }

  static void map(A* staged, int64_t, int64_t count) {
    constexpr int kLanes = kFullLanes<A>;
    for (int64_t i = 0; i < count; i += kLanes) {
      store<A, kLanes>(staged + i, exponential<A, kLanes>(load<A, kLanes>(staged + i)));
    }
  }

  static void reduce(const A* staged, int64_t edges, int64_t heads, A* found) {
    for_heads<A, kFullLanes<A>>(heads, [&]<int kLanes>(int64_t head) {
      store<A, kLanes>(found + heads + head, sum_of<A, kLanes>(staged + head, edges, heads));
    });
  }

  // Replaces the values that the pieces of a row were reduced to, in every piece, by those of the row.
  static void join(A* found, int64_t pieces, int64_t heads) {
    for (int64_t head = 0; head < heads; ++head) {
      A most = -A(__builtin_huge_val()), sum = 0;
      for (int64_t p = 0; p < pieces; ++p) most = larger_of<A, 1>(found[2 * p * heads + head], most);
      for (int64_t p = 0; p < pieces; ++p) {
        sum += found[(2 * p + 1) * heads + head] * exponential<A, 1>(found[2 * p * heads + head] - most);
      }
      for (int64_t p = 0; p < pieces; ++p) {
        found[2 * p * heads + head] = most;
        found[(2 * p + 1) * heads + head] = sum;
      }
    }
  }

  static void resume_piece(A* staged, int64_t edges, int64_t heads, const A* found) {
    for_heads<A, kFullLanes<A>>(heads, [&]<int kLanes>(int64_t head) {
      subtract<kLanes>(staged + head, edges, heads, load<A, kLanes>(found + head));
    });
  }

  static void finish(A* staged, int64_t, int64_t edges, int64_t heads, const A* found) {
    for_heads<A, kFullLanes<A>>(heads, [&]<int kLanes>(int64_t head) {
      const auto sum = load<A, kLanes>(found + heads + head) + splat<A, kLanes>(A(kSumOffset));
      for (int64_t e = 0; e < edges; ++e) {
        A* place = staged + e * heads + head;
        store<A, kLanes>(place, load<A, kLanes>(place) / sum);
      }
    });
  }

 private:
  template <int kLanes>
  ONEHOP_INLINE static void subtract(A* from, int64_t edges, int64_t heads, Vector<A, kLanes> value) {
    for (int64_t e = 0; e < edges; ++e) {
      store<A, kLanes>(from + e * heads, load<A, kLanes>(from + e * heads) - value);
    }
  }
};

// The gradient a (g - sum of a g): a row is reduced to that sum.
template <class T>
struct Backward {
  using A = Acc<T>;
  static constexpr int kArrays = 2;  // a g, and `gap` numbers further on, a
  static constexpr int kNumbers = 1;

  static void stage(const EdgeSoftmaxArgs& args, int64_t begin, int64_t end, A* staged, int64_t gap) {
    gather<T>(*args.csr, args.grad, args.heads, begin, end, staged);
    gather<T>(*args.csr, args.scores, args.heads, begin, end, staged + gap);
  }

  static void prepare(A*, int64_t, int64_t, A*) {}
  static void prepare_piece(A*, int64_t, int64_t, A*) {}
  static void resume_piece(A*, int64_t, int64_t, const A*) {}

  static void map(A* staged, int64_t gap, int64_t count) {
    constexpr int kLanes = kFullLanes<A>;
    for (int64_t i = 0; i < count; i += kLanes) {
      store<A, kLanes>(staged + i, load<A, kLanes>(staged + i) * load<A, kLanes>(staged + gap + i));
    }
  }

  static void reduce(const A* staged, int64_t edges, int64_t heads, A* found) {
    for_heads<A, kFullLanes<A>>(heads, [&]<int kLanes>(int64_t head) {
      store<A, kLanes>(found + head, sum_of<A, kLanes>(staged + head, edges, heads));
    });
  }

  static void join(A* found, int64_t pieces, int64_t heads) {
    for (int64_t head = 0; head < heads; ++head) {
      A sum = 0;
      for (int64_t p = 0; p < pieces; ++p) sum += found[p * heads + head];
      for (int64_t p = 0; p < pieces; ++p) found[p * heads + head] = sum;
    }
  }

  static void finish(A* staged, int64_t gap, int64_t edges, int64_t heads, const A* found) {
    for_heads<A, kFullLanes<A>>(heads, [&]<int kLanes>(int64_t head) {
      const auto sum = load<A, kLanes>(found + head);
      for (int64_t e = 0; e < edges; ++e) {
        A* place = staged + e * heads + head;
        store<A, kLanes>(place, load<A, kLanes>(place) - load<A, kLanes>(place + gap) * sum);
      }
    });
  }
};

// `count` rounded up to whole vectors, and one more: vectors reach beyond the last number.
constexpr int64_t with_room(int64_t count) { return (count / 16 + 2) * 16; }

template <class T, template <class> class Pass>
void run(const EdgeSoftmaxArgs& args) {
  using A = Acc<T>;
  using P = Pass<T>;
  const Csr& csr = *args.csr;
  const WorkList& work = *args.work;
  const int64_t* rowptr = csr.rowptr_data();
  const int64_t heads = args.heads, per_row = P::kNumbers * heads;
  const int64_t chunk = larger(kChunkNumbers / heads, 1);
  const int64_t gap = with_room(work.most_edges * heads);
  const int64_t per_thread = P::kArrays * gap + with_room(per_row);
  const Block scratch(args.threads * per_thread * static_cast<int64_t>(sizeof(A)));
  A* slots = static_cast<A*>(args.slots);

  for_items(work, args.threads, [&](const WorkItem& item, int thread) {
    A* staged = scratch.as<A>() + thread * per_thread;
    A* found = staged + P::kArrays * gap;
    // Visits rows that were staged together, by their numbers and edges.
    const auto for_rows = [&](int64_t row, int64_t row_end, const auto& visit) {
      const int64_t begin = rowptr[row];
      for (; row < row_end; ++row) visit(staged + (rowptr[row] - begin) * heads, rowptr[row + 1] - rowptr[row]);
    };
    const auto whole = [&](int64_t row, int64_t row_end) {
      while (row < row_end) {
        const int64_t begin = rowptr[row];
        int64_t last = row + 1;
        while (last < row_end && rowptr[last + 1] - begin <= chunk) ++last;
        const int64_t end = rowptr[last];
        P::stage(args, begin, end, staged, gap);
        for_rows(row, last, [&](A* own, int64_t edges) { P::prepare(own, edges, heads, found); });
        P::map(staged, gap, (end - begin) * heads);
        for_rows(row, last, [&](A* own, int64_t edges) {
          P::reduce(own, edges, heads, found);
          P::finish(own, gap, edges, heads, found);
        });
        scatter<T>(csr, staged, heads, begin, end, args.out);
        row = last;
      }
    };
    const auto part = [&](int64_t, int64_t begin, int64_t end, int64_t slot) {
      P::stage(args, begin, end, staged, gap);
      P::prepare_piece(staged, end - begin, heads, slots + slot * per_row);
      P::map(staged, gap, (end - begin) * heads);
      P::reduce(staged, end - begin, heads, slots + slot * per_row);
    };
    visit_rows(item, rowptr, whole, part);
  });
  if (work.slots == 0) return;
  for_cut_rows(work, args.threads, [&](const CutRow& cut) {
    P::join(slots + cut.slot_begin * per_row, cut.slot_end - cut.slot_begin, heads);
  });
  for_items(work, args.threads, [&](const WorkItem& item, int thread) {
    A* staged = scratch.as<A>() + thread * per_thread;
    const auto part = [&](int64_t, int64_t begin, int64_t end, int64_t slot) {
      P::stage(args, begin, end, staged, gap);
      P::resume_piece(staged, end - begin, heads, slots + slot * per_row);
      P::map(staged, gap, (end - begin) * heads);
      P::finish(staged, gap, end - begin, heads, slots + slot * per_row);
      scatter<T>(csr, staged, heads, begin, end, args.out);
    };
    visit_rows(item, rowptr, [](int64_t, int64_t) {}, part);
  });
}

}  // namespace

void edge_softmax(const EdgeSoftmaxArgs& args) {
  with_type(args.dtype, [&]<class T>(T) { run<T, Forward>(args); });
}

void edge_softmax_grad(const EdgeSoftmaxArgs& args) {
  with_type(args.dtype, [&]<class T>(T) { run<T, Backward>(args); });
}

}  // namespace ONEHOP_ISA
}  // namespace onehop
