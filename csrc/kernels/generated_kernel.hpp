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
struct FixedSweeps {
  // A tie counter doubles the registers of a column.
  static constexpr int kBlock = kTies ? (Fixed::kBlock + 1) / 2 : Fixed::kBlock;
  static constexpr BlockCut<Acc<T>, kBlock> kBlocks{Fixed::kColumns};
  static constexpr ColumnBlock kFirst = kBlocks[0], kLast = kBlocks[kBlocks.blocks - 1];

  static void rows(const void* opaque, int64_t row, int64_t row_end, int64_t column) {
    const auto& job = *static_cast<const Job<T>*>(opaque);
    if constexpr (kBlocks.blocks == 1) {
      sweep_rows<T, Fixed, kKind, kTies, kFactor, kLast.lanes, kLast.vectors>(job, row, row_end, column, kLast.columns);
    } else {
      // All blocks of a row before the next row, so its sources stay in the cache.
      for (; row < row_end; ++row) {
        for (int64_t begin = 0; begin < kLast.begin; begin += kBlocks.step) {
          sweep_rows<T, Fixed, kKind, kTies, kFactor, kFirst.lanes, kFirst.vectors>(job, row, row + 1, column + begin,
                                                                                    kFirst.columns);
        }
        sweep_rows<T, Fixed, kKind, kTies, kFactor, kLast.lanes, kLast.vectors>(job, row, row + 1, column + kLast.begin,
                                                                                kLast.columns);
      }
    }
  }

  static void part(const void* opaque, int64_t e, int64_t edge_end, int64_t column, int64_t slot) {
    const auto& job = *static_cast<const Job<T>*>(opaque);
    for (int64_t begin = 0; begin < kLast.begin; begin += kBlocks.step) {
      sweep_part<T, Fixed, kKind, kTies, kFactor, kFirst.lanes, kFirst.vectors>(job, e, edge_end, column + begin,
                                                                                kFirst.columns, slot);
    }
    sweep_part<T, Fixed, kKind, kTies, kFactor, kLast.lanes, kLast.vectors>(job, e, edge_end, column + kLast.begin,
                                                                            kLast.columns, slot);
  }

  static constexpr GeneratedSweeps sweeps() { return {rows, part}; }
};

template <class T, class Fixed>
constexpr Generated empty_table(int32_t dtype) {
  return {kGeneratedVersion, static_cast<int32_t>(sizeof(Job<T>)), dtype, Fixed::kColumns, Fixed::kStride, {}};
}

// Sums, of plain rows, times a weight, and times the source's scale.
template <class T, class Fixed>
constexpr Generated generated_sum(int32_t dtype) {
  Generated table = empty_table<T, Fixed>(dtype);
  auto& sums = table.sweeps[static_cast<int>(Kind::sum)][false];
  sums[static_cast<int>(Factor::none)] = FixedSweeps<T, Fixed, Kind::sum, false, Factor::none>::sweeps();
  sums[static_cast<int>(Factor::weight)] = FixedSweeps<T, Fixed, Kind::sum, false, Factor::weight>::sweeps();
  sums[static_cast<int>(Factor::scale)] = FixedSweeps<T, Fixed, Kind::sum, false, Factor::scale>::sweeps();
  return table;
}

template <class T, class Fixed, Kind kKind, bool kTies, Factor kFactor>
constexpr void add_extremum(Generated& table) {
  auto& sweeps = table.sweeps[static_cast<int>(kKind)][kTies];
  sweeps[static_cast<int>(kFactor)] = FixedSweeps<T, Fixed, kKind, kTies, kFactor>::sweeps();
}

// Max and min, with and without the number of tied edges, of plain rows and times a weight. With a weight the min is a
// max (Job::sign).
template <class T, class Fixed>
constexpr Generated generated_extremum(int32_t dtype) {
  Generated table = empty_table<T, Fixed>(dtype);
  add_extremum<T, Fixed, Kind::max, false, Factor::none>(table);
  add_extremum<T, Fixed, Kind::max, true, Factor::none>(table);
  add_extremum<T, Fixed, Kind::min, false, Factor::none>(table);
  add_extremum<T, Fixed, Kind::min, true, Factor::none>(table);
  add_extremum<T, Fixed, Kind::max, false, Factor::weight>(table);
  add_extremum<T, Fixed, Kind::max, true, Factor::weight>(table);
  return table;
}

}  // namespace ONEHOP_ISA
}  // namespace onehop
