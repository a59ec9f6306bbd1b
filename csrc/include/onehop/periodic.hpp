// Neighbours of atoms in cells that repeat: all images of all atoms that are nearer than a distance. The search is
// exact: an image is a neighbour if the squared length of its vector, as `squared_length` rounds it, is below the
// square of the radius.
#pragma once

#include <cstdint>
#include <memory>

namespace onehop {

// Atoms of structures, one structure after the other, each with a cell of its own.
struct PeriodicAtoms {
  const double* positions;  // [bounds[structures], 3]
  const int64_t* bounds;    // [structures + 1]
  const double* cells;      // [structures, 3, 3]; the vectors of a cell are its rows
  const bool* periodic;     // [structures, 3]: which vectors of a cell repeat
  int64_t structures;
  double radius;  // finite, above 0

  int64_t count() const { return bounds[structures]; }
  // The structure of an atom.
  int64_t structure_of(int64_t atom) const;
};

// Compressed rows of atoms: for each neighbour its number and how often each vector of the cell is added to it.
struct PeriodicRows {
  const int64_t* rowptr;  // [atoms + 1]
  const int32_t* col;     // [edges]
  const int32_t* shifts;  // [edges, 3]
};
struct PeriodicOut {
  int64_t* rowptr;
  int32_t* col;
  int32_t* shifts;
};

// The squared length of (source - destination) + (the sum of the vectors of the cell, each as often as it is added), in
// the order in which torch adds them up. Neighbours in both directions have the same length.
inline double squared_length(const double* source, const double* destination, const int32_t* shift,
                             const double* cell) {
  double total = 0;
  for (int d = 0; d < 3; ++d) {
    const double offset = (shift[0] * cell[d] + shift[1] * cell[3 + d]) + shift[2] * cell[6 + d];
    const double along = (source[d] - destination[d]) + offset;
    total += along * along;
  }
  return total;
}

// Why a search refused.
enum class PeriodicError { none, singular_cell, too_far, too_many_images };

class PeriodicSearch {
 public:
  PeriodicSearch();
  ~PeriodicSearch();

  // Makes the images of all atoms that any atom may have as neighbours, at most so many. The arrays of `atoms` must
  // exist, unchanged, while the search is used.
  PeriodicError prepare(const PeriodicAtoms& atoms, int64_t most_images, int threads);
  // The structure in which the last call met an error.
  int64_t wrong_structure() const;

  // Counts the neighbours of each atom: rowptr[atoms + 1]. Returns their number, or -1 if there are more than
  // `most_edges`: then the row pointers have no meaning.
  int64_t count(int64_t* rowptr, int64_t most_edges, int threads) const;
  // Writes the neighbours, by their numbers and then by their shifts, once `rowptr` was counted.
  void write(const PeriodicOut& out, int threads) const;

 private:
  struct Grid;
  std::unique_ptr<Grid> grid_;
};

// Tells which neighbours are nearer than the radius of `atoms`: near[edges], and the row pointers of these. Returns
// their number.
int64_t count_nearer(const PeriodicAtoms& atoms, const PeriodicRows& rows, bool* near, int64_t* rowptr, int threads);
// Writes the rows of these neighbours of so many atoms.
void write_nearer(int64_t atoms, const PeriodicRows& rows, const bool* near, const PeriodicOut& out, int threads);

}  // namespace onehop
