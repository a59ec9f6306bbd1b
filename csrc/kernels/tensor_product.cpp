// Products of sources' features with the spherical harmonics of edges, path by path, summed over each row.
//
// The harmonics of an edge are one number for all channels. So a pair of components of a path has one number an edge,
// the sum of coefficients times harmonics, which is computed once, and channels are vectors.
#include "onehop/tensor_product.hpp"

#include "sweep.hpp"
#include "tables.hpp"

namespace onehop {
inline namespace ONEHOP_ISA {
namespace {

// Components of an irrep of the largest degree, 4.
constexpr int kMostComponents = 9;
// Registers for results, beside operands.
constexpr int kVectors = kMostVectors;
// Pairs of a group that are multiplied with a row in one pass.
constexpr int64_t kPairsAtOnce = 4;
// How many edges ahead rows are prefetched.
constexpr int64_t kAhead = 2;

// The operands of an edge and one path, from the first channel of a block.
template <class T>
struct PathOfEdge {
  const TensorPath* path;
  const TensorGroup* groups;
  const TensorPair* pairs;
  const T* values;  // a number for each pair
  int64_t columns;  // channels of the block
  const T* x;
  const T* weights;
};

// The steps for a block of channels, with its vectors as constants. The last vector of a block overlaps the one before
// it, so all vectors are read before any is written.
template <class T>
struct PickSteps {
  template <int kLanes, int kCount>
  static void add(const PathOfEdge<T>& edge, T* out) {
    using V = Vector<T, kLanes>;
    const int64_t channels = edge.path->channels;
    const auto begin_of = [&](int v) { return vector_begin<kLanes, kCount>(v, edge.columns); };
    // Features times weights, which all components of the result share.
    alignas(kLineBytes) T weighted[kMostComponents * kLanes * kCount];
    V weights[kCount];
#pragma GCC unroll 16
    for (int v = 0; v < kCount; ++v) weights[v] = load<T, kLanes>(edge.weights + begin_of(v));
    for (int64_t i = 0; i < edge.path->components; ++i) {
#pragma GCC unroll 16
      for (int v = 0; v < kCount; ++v) {
        const V x = load<T, kLanes>(edge.x + i * channels + begin_of(v));
        store<T, kLanes>(weighted + (i * kCount + v) * kLanes, x * weights[v]);
      }
    }
    for (int64_t g = edge.path->group_begin; g < edge.path->group_end; ++g) {
      const TensorGroup& group = edge.groups[g];
      T* to = out + group.component * channels;
      V sums[kCount];
#pragma GCC unroll 16
      for (int v = 0; v < kCount; ++v) sums[v] = load<T, kLanes>(to + begin_of(v));
      for (int64_t p = group.pair_begin; p < group.pair_end; ++p) {
        const V value = splat<T, kLanes>(edge.values[p]);
        const T* from = weighted + edge.pairs[p].component * kCount * kLanes;
#pragma GCC unroll 16
        for (int v = 0; v < kCount; ++v) sums[v] += value * load<T, kLanes>(from + v * kLanes);
      }
#pragma GCC unroll 16
      for (int v = 0; v < kCount; ++v) store<T, kLanes>(to + begin_of(v), sums[v]);
    }
  }

  // The gradient of the weights: the products without weights, times the gradient of the result; added to `out`.
  template <int kLanes, int kCount>
  static void add_weights(const PathOfEdge<T>& edge, const T* grad, T* out) {
    using V = Vector<T, kLanes>;
    const int64_t channels = edge.path->channels;
    const auto begin_of = [&](int v) { return vector_begin<kLanes, kCount>(v, edge.columns); };
    V sums[kCount];
#pragma GCC unroll 16
    for (int v = 0; v < kCount; ++v) sums[v] = load<T, kLanes>(out + begin_of(v));
    for (int64_t g = edge.path->group_begin; g < edge.path->group_end; ++g) {
      const TensorGroup& group = edge.groups[g];
      V product[kCount] = {};
      for (int64_t p = group.pair_begin; p < group.pair_end; ++p) {
        const V value = splat<T, kLanes>(edge.values[p]);
        const T* from = edge.x + edge.pairs[p].component * channels;
#pragma GCC unroll 16
        for (int v = 0; v < kCount; ++v) product[v] += value * load<T, kLanes>(from + begin_of(v));
      }
      const T* row = grad + group.component * channels;
#pragma GCC unroll 16
      for (int v = 0; v < kCount; ++v) sums[v] += product[v] * load<T, kLanes>(row + begin_of(v));
    }
#pragma GCC unroll 16
    for (int v = 0; v < kCount; ++v) store<T, kLanes>(out + begin_of(v), sums[v]);
  }

  // For each pair of a path, the sum over the channels of weight * feature * gradient; added to `sums`.
  template <int kLanes, int kCount>
  static void add_pairs(const PathOfEdge<T>& edge, const T* grad, T* sums) {
    for (int64_t g = edge.path->group_begin; g < edge.path->group_end; ++g) {
      const TensorGroup& group = edge.groups[g];
      const T* row = grad + group.component * edge.path->channels;
      int64_t p = group.pair_begin;
      for (; p + kPairsAtOnce <= group.pair_end; p += kPairsAtOnce) {
        multiply<kLanes, kCount, kPairsAtOnce>(edge, row, p, sums);
      }
      for (; p < group.pair_end; ++p) multiply<kLanes, kCount, 1>(edge, row, p, sums);
    }
  }

  template <int kLanes, int kCount, int kPairs>
  ONEHOP_INLINE static void multiply(const PathOfEdge<T>& edge, const T* row, int64_t first, T* sums) {
    using V = Vector<T, kLanes>;
    V products[kPairs] = {};
#pragma GCC unroll 16
    for (int v = 0; v < kCount; ++v) {
      const int64_t begin = vector_begin<kLanes, kCount>(v, edge.columns);
      const V weighted = load<T, kLanes>(edge.weights + begin) * load<T, kLanes>(row + begin);
#pragma GCC unroll 4
      for (int n = 0; n < kPairs; ++n) {
        const T* x = edge.x + edge.pairs[first + n].component * edge.path->channels;
        V product = weighted * load<T, kLanes>(x + begin);
        // Columns that the last vector shares with the one before it count once.
        if constexpr (kLanes > 1) {
          if (v == kCount - 1) product = without_first<T, kLanes>(product, int64_t{v} * kLanes - begin);
        }
        products[n] += product;
      }
    }
#pragma GCC unroll 4
    for (int n = 0; n < kPairs; ++n) sums[first + n] += sum_of_lanes<T, kLanes>(products[n]);
  }

  struct Steps {
    void (*add)(const PathOfEdge<T>&, T*);
    void (*add_weights)(const PathOfEdge<T>&, const T*, T*);
    void (*add_pairs)(const PathOfEdge<T>&, const T*, T*);
  };
  template <int kLanes, int kCount>
  Steps operator()() const {
    return {add<kLanes, kCount>, add_weights<kLanes, kCount>, add_pairs<kLanes, kCount>};
  }
};

// The blocks of a path's channels, and the steps for the last one and for the ones before it.
template <class T>
struct PathSteps {
  BlockCut<T, kVectors> blocks;
  typename PickSteps<T>::Steps inner, outer;
};

template <class T>
struct Products {
  const TensorProductArgs& args;
  const Block steps;
  const Block values;  // [threads, pairs]
  const Block sums;    // the same

  explicit Products(const TensorProductArgs& all)
      : args(all),
        steps(all.path_count * static_cast<int64_t>(sizeof(PathSteps<T>))),
        values(all.threads * all.pair_count * static_cast<int64_t>(sizeof(T))),
        sums(all.threads * all.pair_count * static_cast<int64_t>(sizeof(T))) {
    for (int64_t p = 0; p < args.path_count; ++p) {
      const BlockCut<T, kVectors> blocks(args.paths[p].channels);
      const auto steps_of = [](const ColumnBlock& block) { return with_block<T, kVectors>(block, PickSteps<T>{}); };
      const PathSteps<T> path{blocks, steps_of(blocks[0]), steps_of(blocks[blocks.blocks - 1])};
      std::memcpy(static_cast<void*>(steps.as<PathSteps<T>>() + p), &path, sizeof(path));
    }
  }

  // The numbers of an edge's pairs: for each pair, the sum of coefficients times harmonics.
  void fill(const T* harmonics, T* to) const {
    const auto* factors = static_cast<const T*>(args.term_factors);
    for (int64_t p = 0; p < args.pair_count; ++p) {
      T sum = 0;
      for (int64_t t = args.pairs[p].term_begin; t < args.pairs[p].term_end; ++t) {
        sum += factors[t] * harmonics[args.term_columns[t]];
      }
      to[p] = sum;
    }
  }

  // Calls visit(steps, operands, first channel of the block, path) for each block of each path.
  template <class Visit>
  ONEHOP_INLINE void each_block(const T* values_of_edge, const T* x, const T* weights, const Visit& visit) const {
    for (int64_t p = 0; p < args.path_count; ++p) {
      const TensorPath& path = args.paths[p];
      const PathSteps<T>& of_path = steps.as<PathSteps<T>>()[p];
      for (int64_t b = 0; b < of_path.blocks.blocks; ++b) {
        const ColumnBlock block = of_path.blocks[b];
        const PathOfEdge<T> edge{&path,
                                 args.groups,
                                 args.pairs,
                                 values_of_edge,
                                 block.columns,
                                 x + path.in_begin + block.begin,
                                 weights == nullptr ? nullptr : weights + path.weight_begin + block.begin};
        visit(b + 1 < of_path.blocks.blocks ? of_path.inner : of_path.outer, edge, block.begin, path);
      }
    }
  }

  const T* row_of(const void* from, int64_t stride, int64_t number) const {
    return from == nullptr ? nullptr : static_cast<const T*>(from) + number * stride;
  }

  // Prefetches the rows that an edge after this one reads.
  void prefetch(int64_t e) const {
    e = smaller(e + kAhead, args.csr->edges - 1);
    prefetch_row(row_of(args.x, args.x_stride, args.csr->col_data()[e]), args.x_width);
    if (args.weights_stride != 0) {
      prefetch_row(row_of(args.weights, args.weights_stride, edge_number(*args.csr, e)), args.weights_width);
    }
  }

  static void prefetch_row(const T* row, int64_t columns) {
    const auto* bytes = reinterpret_cast<const char*>(row);
    const int64_t count = columns * static_cast<int64_t>(sizeof(T));
    for (int64_t offset = 0; offset < count; offset += kLineBytes) __builtin_prefetch(bytes + offset, 0, kKeepRows);
  }

  // The sum over the edges [e, edge_end) of a row, into `out` [out_width].
  void sum_edges(int64_t e, int64_t edge_end, int thread, T* out) const {
    T* numbers = values.as<T>() + thread * args.pair_count;
    std::memset(out, 0, static_cast<size_t>(args.out_width) * sizeof(T));
    for (; e < edge_end; ++e) {
      prefetch(e);
      const int64_t number = edge_number(*args.csr, e);
      fill(row_of(args.harmonics, args.harmonics_stride, number), numbers);
      each_block(numbers, row_of(args.x, args.x_stride, args.csr->col_data()[e]),
                 row_of(args.weights, args.weights_stride, number),
                 [&](const auto& step, const PathOfEdge<T>& edge, int64_t begin, const TensorPath& path) {
                   step.add(edge, out + path.out_begin + begin);
                 });
    }
  }

  void sum_rows() const {
    const WorkList& work = *args.work;
    const int64_t* rowptr = args.csr->rowptr_data();
    auto* slots = static_cast<T*>(args.slots);
    auto* out = static_cast<T*>(args.out);
    for_items(work, args.threads, [&](const WorkItem& item, int thread) {
      const auto whole = [&](int64_t row, int64_t row_end) {
        for (; row < row_end; ++row) sum_edges(rowptr[row], rowptr[row + 1], thread, out + row * args.out_width);
      };
      const auto part = [&](int64_t, int64_t e, int64_t edge_end, int64_t slot) {
        sum_edges(e, edge_end, thread, slots + slot * args.out_width);
      };
      visit_rows(item, rowptr, whole, part);
    });
    for_cut_rows(work, args.threads, [&](const CutRow& cut) {
      T* total = out + cut.row * args.out_width;
      std::memcpy(total, slots + cut.slot_begin * args.out_width, static_cast<size_t>(args.out_width) * sizeof(T));
      for (int64_t slot = cut.slot_begin + 1; slot < cut.slot_end; ++slot) {
        for (int64_t column = 0; column < args.out_width; ++column) {
          total[column] += slots[slot * args.out_width + column];
        }
      }
    });
  }

  void edge_gradients(int64_t e, const T* grad, int thread, T* to_harmonics, T* to_weights) const {
    const int64_t number = edge_number(*args.csr, e);
    const T* x = row_of(args.x, args.x_stride, args.csr->col_data()[e]);
    if (to_harmonics != nullptr) {
      T* totals = sums.as<T>() + thread * args.pair_count;
      std::memset(totals, 0, static_cast<size_t>(args.pair_count) * sizeof(T));
      each_block(nullptr, x, row_of(args.weights, args.weights_stride, number),
                 [&](const auto& step, const PathOfEdge<T>& edge, int64_t begin, const TensorPath& path) {
                   step.add_pairs(edge, grad + path.out_begin + begin, totals);
                 });
      spread(totals, to_harmonics + number * args.harmonics_width);
    }
    if (to_weights != nullptr) {
      T* numbers = values.as<T>() + thread * args.pair_count;
      fill(row_of(args.harmonics, args.harmonics_stride, number), numbers);
      T* to = to_weights;
      if (!args.sums_weights) {
        to += number * args.weights_width;
        std::memset(to, 0, static_cast<size_t>(args.weights_width) * sizeof(T));
      }
      each_block(numbers, x, nullptr,
                 [&](const auto& step, const PathOfEdge<T>& edge, int64_t begin, const TensorPath& path) {
                   step.add_weights(edge, grad + path.out_begin + begin, to + path.weight_begin + begin);
                 });
    }
  }

  // From numbers of pairs to the gradient of the harmonics.
  void spread(const T* totals, T* to) const {
    const auto* factors = static_cast<const T*>(args.term_factors);
    std::memset(to, 0, static_cast<size_t>(args.harmonics_width) * sizeof(T));
    for (int64_t p = 0; p < args.pair_count; ++p) {
      for (int64_t t = args.pairs[p].term_begin; t < args.pairs[p].term_end; ++t) {
        to[args.term_columns[t]] += factors[t] * totals[p];
      }
    }
  }

  void edges() const {
    const WorkList& work = *args.work;
    const int64_t* rowptr = args.csr->rowptr_data();
    auto* slots = static_cast<T*>(args.slots);
    const auto items = static_cast<int64_t>(work.items.size());
    if (args.sums_weights) {
      std::memset(static_cast<void*>(slots), 0, static_cast<size_t>(items * args.weights_width) * sizeof(T));
    }
    for_items(work, args.threads, [&](const WorkItem& item, int thread) {
      T* to_weights = static_cast<T*>(args.to_weights);
      if (args.sums_weights) to_weights = slots + (&item - work.items.data()) * args.weights_width;
      for (int64_t row = item.row_begin; row < item.row_end; ++row) {
        const int64_t end = smaller(rowptr[row + 1], item.edge_end);
        for (int64_t e = larger(rowptr[row], item.edge_begin); e < end; ++e) {
          prefetch(e);
          edge_gradients(e, row_of(args.grad, args.grad_stride, row), thread, static_cast<T*>(args.to_harmonics),
                         to_weights);
        }
      }
    });
    if (args.sums_weights) {
      // In the order of the items, which does not depend on the threads.
      auto* total = static_cast<T*>(args.to_weights);
      std::memset(total, 0, static_cast<size_t>(args.weights_width) * sizeof(T));
      for (int64_t item = 0; item < items; ++item) {
        for (int64_t i = 0; i < args.weights_width; ++i) total[i] += slots[item * args.weights_width + i];
      }
    }
  }
};

}  // namespace

void tensor_product(const TensorProductArgs& args) {
  if (args.dtype == DType::float64) return Products<double>(args).sum_rows();
  Products<float>(args).sum_rows();
}

void tensor_product_edges(const TensorProductArgs& args) {
  if (args.dtype == DType::float64) return Products<double>(args).edges();
  Products<float>(args).edges();
}

}  // namespace ONEHOP_ISA
}  // namespace onehop
