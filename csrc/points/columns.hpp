// Images in columns of space, sorted along each.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "images.hpp"

namespace onehop {

// The columns of one structure: rectangles of two axes, side by side.
struct Columns {
  int axes[3];   // of a column's place, and the one along which it is sorted
  double width;  // along both axes; neighbours are in the same column or in one beside it
  double origin[2];
  int64_t first;    // the number of the first column among those of all structures
  int64_t wide[2];  // numbers of columns along the two axes

  int64_t column_of(const double* at) const {
    int64_t place[2];
    for (int side = 0; side < 2; ++side) {
      const double steps = (at[axes[side]] - origin[side]) / width;
      place[side] = steps > 0 ? static_cast<int64_t>(steps) : 0;
      if (place[side] >= wide[side]) place[side] = wide[side] - 1;
    }
    return first + place[0] * wide[1] + place[1];
  }
};

// All images, column by column. What a search reads of neighbours is here, so that it is near in memory.
struct SortedImages {
  std::vector<Columns> structures;
  std::vector<int64_t> begin;         // [columns + 1]
  std::unique_ptr<double[]> x, y, z;  // along the axes of their columns
  std::unique_ptr<Copy[]> copy;
  std::unique_ptr<int32_t[]> image;  // the number of each, which tells the order of neighbours
  std::unique_ptr<bool[]> is_home;   // whether it is an atom in the cell

  void sort(const PeriodicAtoms& atoms, const Images& images, int threads);
};

}  // namespace onehop
