// A dot product of two rows for every edge.
#include "sweep.hpp"
#include "tables.hpp"

namespace onehop {
inline namespace ONEHOP_ISA {
namespace {

// Products of a block; the columns that the last vector shares with the one before count once.
template <class T, int kLanes, int kVectors>
ONEHOP_INLINE Acc<T> dot(const T* row, const T* column, int64_t columns) {
  using A = Acc<T>;
  using V = Vector<A, kLanes>;
  V sum = splat<A, kLanes>(0);
#pragma GCC unroll 16
  for (int v = 0; v < kVectors - 1; ++v) {
    sum += load<T, kLanes>(row + v * kLanes) * load<T, kLanes>(column + v * kLanes);
  }
  const int64_t begin = vector_begin<kLanes, kVectors>(kVectors - 1, columns);
  V last = load<T, kLanes>(row + begin) * load<T, kLanes>(column + begin);
  if constexpr (kLanes > 1) {
    last = without_first<A, kLanes>(last, (kVectors - 1) * kLanes - begin);
  }
  return sum_of_lanes<A, kLanes>(sum + last);
}

template <class T, int kLanes, int kVectors>
void sweep_edges(const SddmmArgs& args, int64_t row, int64_t e, int64_t edge_end, int64_t column, int64_t columns,
                 Acc<T>* out) {
  constexpr int64_t kBlockBytes = int64_t{kLanes} * kVectors * static_cast<int64_t>(sizeof(T));
  const int32_t* col = args.csr->col_data();
  const T* target = static_cast<const T*>(args.row_vectors) + row * args.row_stride + column;
  const T* sources = static_cast<const T*>(args.col_vectors) + column;
  for (; e < edge_end; ++e) {
    prefetch_lines<kBlockBytes>(reinterpret_cast<const char*>(sources + col[e + args.prefetch] * args.col_stride));
    *out++ += dot<T, kLanes, kVectors>(target, sources + col[e] * args.col_stride, columns);
  }
}

template <class T>
using SweepEdges = void (*)(const SddmmArgs&, int64_t, int64_t, int64_t, int64_t, int64_t, Acc<T>*);

template <class T>
struct PickSweep {
  template <int kLanes, int kVectors>
  SweepEdges<T> operator()() const {
    return sweep_edges<T, kLanes, kVectors>;
  }
};

template <class T, class Out>
void write_out(const SddmmArgs& args, const WorkItem& item, const Acc<T>* staged) {
  const Csr& csr = *args.csr;
  auto* out = static_cast<Out*>(args.out);
  for (int64_t e = item.edge_begin; e < item.edge_end; ++e) {
    store<Out, 1>(out + edge_number(csr, e) * args.out_stride, staged[e - item.edge_begin]);
  }
}

template <class T>
void run(const SddmmArgs& args) {
  using A = Acc<T>;
  const WorkList& work = *args.work;
  const int64_t* rowptr = args.csr->rowptr_data();
  const BlockCut<A, kMostVectors> blocks(args.width);
  const Block scratch(args.threads * work.most_edges * static_cast<int64_t>(sizeof(A)));
  for_items(work, args.threads, [&](const WorkItem& item, int thread) {
    A* staged = scratch.as<A>() + thread * work.most_edges;
    std::memset(staged, 0, static_cast<size_t>(item.edge_end - item.edge_begin) * sizeof(A));
    const SweepEdges<T> inner = with_block<A, kMostVectors>(blocks[0], PickSweep<T>{});
    const ColumnBlock last = blocks[blocks.blocks - 1];
    const SweepEdges<T> outer = with_block<A, kMostVectors>(last, PickSweep<T>{});
    for (int64_t row = item.row_begin; row < item.row_end; ++row) {
      const int64_t begin = larger(rowptr[row], item.edge_begin);
      const int64_t end = smaller(rowptr[row + 1], item.edge_end);
      A* sums = staged + (begin - item.edge_begin);
      for (int64_t b = 0; b + 1 < blocks.blocks; ++b) {
        inner(args, row, begin, end, b * blocks.step, blocks.step, sums);
      }
      outer(args, row, begin, end, last.begin, last.columns, sums);
    }
    if (sizeof(T) == 2 && !args.out_is_acc) {
      write_out<T, T>(args, item, staged);
    } else {
      write_out<T, A>(args, item, staged);
    }
  });
}

}  // namespace

void sddmm(const SddmmArgs& args) {
  with_type(args.dtype, [&]<class T>(T) { run<T>(args); });
}

}  // namespace ONEHOP_ISA
}  // namespace onehop
