// Sum, mean, max and min over the sources of every destination.
#include "aggregate.hpp"

#include <vector>

#include "aggregate_rows.hpp"
#include "sweep.hpp"
#include "tables.hpp"

namespace onehop {
inline namespace ONEHOP_ISA {
namespace {

template <class T>
using SweepRows = void (*)(const Job<T>&, int64_t, int64_t, int64_t, int64_t);
template <class T>
using SweepPart = void (*)(const Job<T>&, int64_t, int64_t, int64_t, int64_t, int64_t);

// The largest power of two that is not larger.
constexpr int64_t power_below(int64_t number) {
  int64_t power = 1;
  while (2 * power <= number) power *= 2;
  return power;
}

// Pieces of cut rows, and weights that are added, are few. They have loops for powers of two alone, which make a
// quarter of the code.
template <Factor kFactor>
inline constexpr bool kIsRare = kFactor == Factor::term;

template <class A>
ColumnBlock rare_block(int64_t begin, int64_t columns, int64_t most) {
  const ColumnBlock block = column_block<A>(begin, smaller(columns, most * kFullLanes<A>));
  const int64_t power = power_below(block.vectors);
  return block.lanes < kFullLanes<A> || power == block.vectors ? block : column_block<A>(begin, power * kFullLanes<A>);
}

template <class T, Kind kKind, bool kTies, Factor kFactor>
struct PickRows {
  template <int kLanes, int kVectors>
  SweepRows<T> operator()() const {
    constexpr int kHeld = kIsRare<kFactor> ? power_below(kVectors) : kVectors;
    return sweep_rows<T, Open, kKind, kTies, kFactor, kLanes, kHeld>;
  }
};

template <class T, Kind kKind, bool kTies, Factor kFactor>
struct PickPart {
  template <int kLanes, int kVectors>
  SweepPart<T> operator()() const {
    return sweep_part<T, Open, kKind, kTies, kFactor, kLanes, power_below(kVectors)>;
  }
};

template <class T>
struct RowsOfBlock {
  ColumnBlock block;
  SweepRows<T> sweep;
};

// Most vectors of a block. A tie counter doubles the registers of a column, and the loops of extrema are most of the
// code of this file: eight vectors hold 128 columns with AVX-512.
template <Kind kKind, bool kTies>
inline constexpr int kMostOf = kKind == Kind::sum ? kMostVectors
                               : kTies            ? kMostVectors / 2
                                                  : static_cast<int>(smaller(kMostVectors, 8));

// The loop of a kind, PickRows or PickPart, for a block of columns.
template <template <class, Kind, bool, Factor> class Pick, class T, Kind kKind, bool kTies, Factor kFactor>
auto sweep_of(const ColumnBlock& block) {
  return with_block<Acc<T>, kMostOf<kKind, kTies>>(block, Pick<T, kKind, kTies, kFactor>{});
}

template <class T, Kind kKind, bool kTies>
void combine_cut_row(const Job<T>& job, const CutRow& cut) {
  const RowEnd<T> end(job, cut.row);
  for (int64_t column = 0; column < job.width; ++column) {
    State<T, kKind, kTies, 1> state;
    state.clear();
    for (int64_t slot = cut.slot_begin; slot < cut.slot_end; ++slot) {
      const int64_t place = slot * job.width + column;
      state.take(job.slots[place], kTies ? job.tie_slots[place] : Acc<T>(1));
    }
    finish(job, end, column, state);
  }
}

// Stores past the caches are of use for whole lines only.
template <class A>
bool whole_lines(const AggregateArgs& args) {
  const auto bytes = [](int64_t columns) { return columns * static_cast<int64_t>(sizeof(A)); };
  return (reinterpret_cast<uintptr_t>(args.out) | static_cast<uintptr_t>(bytes(args.width)) |
          static_cast<uintptr_t>(bytes(args.out_stride)) | static_cast<uintptr_t>(bytes(args.column_tile))) %
             kLineBytes ==
         0;
}

// The generated kernel for this, where the plan has one that fits; else null pointers.
template <class T>
GeneratedSweeps generated_sweeps(const AggregateArgs& args, Kind kind, bool ties, Factor factor) {
  const Generated* made = args.generated;
  if (made == nullptr || made->dtype != static_cast<int>(args.dtype) || made->stride != args.x_stride ||
      made->job_bytes != static_cast<int>(sizeof(Job<T>))) {
    return {nullptr, nullptr};
  }
  return made->sweeps[static_cast<int>(kind)][ties][static_cast<int>(factor)];
}

template <class T, Kind kKind, bool kTies, Factor kFactor>
void run(const AggregateArgs& args) {
  using A = Acc<T>;
  constexpr int kVectors = kMostOf<kKind, kTies>;
  const Csr& csr = *args.csr;
  const WorkList& work = *args.work;
  auto* slots = static_cast<A*>(args.slots);
  // Weights that also have scales, or 64-bit numbers, are laid out in order for each piece of work.
  const bool permuted = static_cast<bool>(csr.perm) && !args.weight_in_graph_order;
  const bool staged = args.weight != nullptr && (args.col_scale != nullptr || (permuted && csr.perm_is_wide));
  const Block scratch(staged ? args.threads * work.most_edges * static_cast<int64_t>(sizeof(A)) : 0);
  const Job<T> whole_job{csr.rowptr_data(),
                         csr.col_data(),
                         static_cast<const T*>(args.x),
                         args.x_stride,
                         static_cast<const A*>(args.weight),
                         args.weight_stride,
                         permuted && !csr.perm_is_wide ? csr.perm.as<int32_t>() : nullptr,
                         static_cast<const A*>(args.col_scale),
                         args.out,
                         args.out_stride,
                         args.out_is_acc,
                         static_cast<A*>(args.ties),
                         slots,
                         slots + work.slots * args.width,
                         args.width,
                         csr.row_of ? csr.row_of.as<int32_t>() : nullptr,
                         static_cast<const A*>(args.row_scale),
                         args.reduce == Reduce::mean,
                         args.nontemporal && whole_lines<A>(args),
                         args.keeps_near,
                         args.prefetch,
                         kKind == Kind::max && args.reduce == Reduce::min ? A(-1) : A(1)};
  const GeneratedSweeps made = generated_sweeps<T>(args, kKind, kTies, kFactor);
  const int64_t most = args.register_block > 0 ? smaller(args.register_block, kVectors) : kVectors;
  const int64_t tile = args.column_tile > 0 ? args.column_tile : args.width;
  for (int64_t first = 0; first < args.width; first += tile) {
    const BlockCut<A, kVectors> blocks(smaller(tile, args.width - first), most);
    const bool generated = made.rows != nullptr && blocks.columns == args.generated->columns;
    std::vector<RowsOfBlock<T>> all;
    for (int64_t at = 0; at < blocks.columns;) {
      const ColumnBlock block =
          kIsRare<kFactor> ? rare_block<A>(at, blocks.columns - at, most) : blocks[at / blocks.step];
      all.push_back({block, sweep_of<PickRows, T, kKind, kTies, kFactor>(block)});
      at += block.columns;
    }
    for_items(work, args.threads, [&](const WorkItem& item, int thread) {
      Job<T> job = whole_job;
      if (staged) {
        A* laid_out = scratch.as<A>() + thread * work.most_edges;
        stage_weights(csr, item, args.weight, args.weight_stride, permuted, args.col_scale, laid_out);
        job.weight = laid_out - item.edge_begin;
        job.weight_stride = 1;
        job.perm = nullptr;
      }
      const auto whole = [&](int64_t begin, int64_t end) {
        if (generated) return made.rows(&job, begin, end, first);
        if (all.size() == 1) return all[0].sweep(job, begin, end, first, blocks.columns);
        // All blocks of a row before the next row: its sources are read as wholes.
        for (int64_t row = begin; row < end; ++row) {
          for (const auto& [block, sweep] : all) sweep(job, row, row + 1, first + block.begin, block.columns);
        }
      };
      const auto part = [&](int64_t, int64_t begin, int64_t end, int64_t slot) {
        if (generated) return made.part(&job, begin, end, first, slot);
        for (int64_t at = 0; at < blocks.columns;) {
          const ColumnBlock block = rare_block<A>(at, blocks.columns - at, kVectors);
          sweep_of<PickPart, T, kKind, kTies, kFactor>(block)(job, begin, end, first + at, block.columns, slot);
          at += block.columns;
        }
      };
      visit_rows(item, job.rowptr, whole, part);
      if (job.nontemporal) settle_stores();
    });
  }
  for_cut_rows(work, args.threads, [&](const CutRow& cut) { combine_cut_row<T, kKind, kTies>(whole_job, cut); });
}

template <class T, Kind kKind, bool kTies>
void run_factor(const AggregateArgs& args) {
  if constexpr (kKind != Kind::sum) {
    if (args.weight != nullptr && args.weight_adds) return run<T, kKind, kTies, Factor::term>(args);
  }
  if (args.weight != nullptr) return run<T, kKind, kTies, Factor::weight>(args);
  if constexpr (kKind == Kind::sum) {
    if (args.col_scale != nullptr) return run<T, kKind, kTies, Factor::scale>(args);
  }
  run<T, kKind, kTies, Factor::none>(args);
}

template <class T, bool kTies>
void run_extremum(const AggregateArgs& args) {
  const bool plain_min = args.reduce == Reduce::min && args.weight == nullptr;
  if (plain_min) return run<T, Kind::min, kTies, Factor::none>(args);
  // With a factor the min is the max of negated messages, negated: the factor takes the sign.
  run_factor<T, Kind::max, kTies>(args);
}

}  // namespace

template <class T>
void aggregate_as(const AggregateArgs& args) {
  switch (args.reduce) {
    case Reduce::sum:
    case Reduce::mean:
      return run_factor<T, Kind::sum, false>(args);
    case Reduce::max:
    case Reduce::min:
      return args.ties != nullptr ? run_extremum<T, true>(args) : run_extremum<T, false>(args);
  }
}

template void aggregate_as<ONEHOP_TYPE>(const AggregateArgs& args);

}  // namespace ONEHOP_ISA
}  // namespace onehop
