// The lattice of a cell that repeats along some of its vectors.
#pragma once

#include <cstdint>

namespace onehop {

// The shortest vectors of a lattice, so that few images of a skewed cell are looked at, and directions that are
// perpendicular to the lattice instead of those cell vectors that do not repeat.
struct Lattice {
  int periodic = 0;       // the first so many vectors repeat
  double vectors[3][3];   // rows
  double inverse[3][3];   // the coordinate of p along vector k is the dot product of p and inverse[k]
  double heights[3];      // the distance between planes of equal coordinate
  int64_t of_cell[3][3];  // vector k is the sum of the cell's vectors, each so often; 0 where it does not repeat
  double magnitudes[3];   // the sum of the lengths that are added up to vector k: what bounds its rounding error

  // False if the vectors that repeat are linearly dependent up to rounding.
  bool reduce(const double* cell, const bool* repeats);

 private:
  bool shorten(const double* cell, const int* which);
  bool complete();
};

}  // namespace onehop
