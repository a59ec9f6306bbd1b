// The table of a generated kernel: functions that are called through pointers, with all constants fixed.
//
// `Fixed` has what Open has (aggregate_rows.hpp), and
//   kColumns  columns of one pass
//   kBlock    most vectors of a row that are held in registers at a time
#pragma once

#include "aggregate_rows.hpp"

namespace onehop {
inline namespace ONEHOP_ISA {

template <class T, class Fixed, Kind kKind, bool kTies, Factor kFactor>
struct FixedSweep {
  // A tie counter doubles the registers of a column.
  static constexpr int kBlock = kTies ? (Fixed::kBlock + 1) / 2 : Fixed::kBlock;
  static constexpr BlockCut<Acc<T>, kBlock> kBlocks{Fixed::kColumns};
  static constexpr ColumnBlock kFirst = kBlocks[0], kLast = kBlocks[kBlocks.blocks - 1];

  static void sweep(const void* opaque, int64_t begin, int64_t end, int64_t column, int64_t slot) {
    const auto& job = *static_cast<const Job<T>*>(opaque);
    const auto blocks = [&](int64_t from, int64_t to) {
      for (int64_t first = 0; first < kLast.begin; first += kBlocks.step) {
        onehop::sweep<T, Fixed, kKind, kTies, kFactor, kFirst.lanes, kFirst.vectors>(job, from, to, column + first,
                                                                                     kFirst.columns, slot);
      }
      onehop::sweep<T, Fixed, kKind, kTies, kFactor, kLast.lanes, kLast.vectors>(job, from, to, column + kLast.begin,
                                                                                 kLast.columns, slot);
    };
    if (kBlocks.blocks == 1 || slot >= 0) return blocks(begin, end);
    // All blocks of a row before the next row, so its sources stay in the cache.
    for (int64_t row = begin; row < end; ++row) blocks(row, row + 1);
  }
};

template <class T, class Fixed>
constexpr Generated empty_table(int32_t dtype) {
  return {kGeneratedVersion,
          static_cast<int32_t>(sizeof(Job<T>)),
          dtype,
          sizeof(typename Fixed::Column),
          Fixed::kColumns,
          Fixed::kStride,
          {}};
}

// Sums, of plain rows, times a weight, and times the source's scale.
template <class T, class Fixed>
constexpr Generated generated_sum(int32_t dtype) {
  Generated table = empty_table<T, Fixed>(dtype);
  auto& sums = table.sweeps[static_cast<int>(Kind::sum)][false];
  sums[static_cast<int>(Factor::none)] = FixedSweep<T, Fixed, Kind::sum, false, Factor::none>::sweep;
  sums[static_cast<int>(Factor::weight)] = FixedSweep<T, Fixed, Kind::sum, false, Factor::weight>::sweep;
  sums[static_cast<int>(Factor::scale)] = FixedSweep<T, Fixed, Kind::sum, false, Factor::scale>::sweep;
  return table;
}

template <class T, class Fixed, bool kTies>
constexpr void add_extremum(Generated& table) {
  auto& sweeps = table.sweeps[static_cast<int>(Kind::extremum)][kTies];
  sweeps[static_cast<int>(Factor::none)] = FixedSweep<T, Fixed, Kind::extremum, kTies, Factor::none>::sweep;
  sweeps[static_cast<int>(Factor::weight)] = FixedSweep<T, Fixed, Kind::extremum, kTies, Factor::weight>::sweep;
}

// Max and min, with and without the number of tied edges, of plain rows and times a weight.
template <class T, class Fixed>
constexpr Generated generated_extremum(int32_t dtype) {
  Generated table = empty_table<T, Fixed>(dtype);
  add_extremum<T, Fixed, false>(table);
  add_extremum<T, Fixed, true>(table);
  return table;
}

}  // namespace ONEHOP_ISA
}  // namespace onehop
