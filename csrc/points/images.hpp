// The images of atoms that may be neighbours of atoms.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "lattice.hpp"
#include "onehop/periodic.hpp"

namespace onehop {

// Where the atoms of a structure are, once each is moved into the cell.
struct Region {
  Lattice lattice;
  double reach = 0;             // the radius, and as much as positions of images may be off by rounding
  double inner = 0, outer = 0;  // squared distances: images below and above need no exact vector
  double low[3], high[3];       // least and largest coordinates of atoms in the cell
  double first[3], last[3];     // the same along the vectors of the lattice
};

// An atom, and how often each vector of the cell is added to its position.
struct Copy {
  int32_t atom;
  int32_t shift[3];
};

// Images in the order of their atoms, and then of their shifts.
class Images {
 public:
  // Makes the images. At an error, `wrong` is the structure.
  PeriodicError make(const PeriodicAtoms& atoms, int64_t most, int threads, int64_t* wrong);

  int64_t count() const { return first_[atoms_.count()]; }
  int64_t first_of(int64_t atom) const { return first_[atom]; }
  const Region& region(int64_t structure) const { return regions_[structure]; }
  const double* at(int64_t image) const { return at_.get() + 3 * image; }
  const Copy& operator[](int64_t image) const { return copies_[image]; }
  // The image in the cell, which each atom has.
  int64_t home(int64_t atom) const { return home_[atom]; }

 private:
  struct Image;
  template <class T>
  using Array = std::unique_ptr<T[]>;

  PeriodicError enter_cell(int64_t structure);
  template <class Body>
  void visit(const Region& region, int64_t atom, Body&& body) const;
  template <class Body>
  void for_atoms(int threads, Body&& body) const;

  PeriodicAtoms atoms_{};
  std::vector<Region> regions_;
  Array<double> inside_;    // [atoms, 3]: positions in the cell
  Array<int32_t> entered_;  // [atoms, 3]: the shifts that led there
  Array<int64_t> first_;    // [atoms + 1]: the first image of each atom
  Array<int32_t> home_;     // [atoms]
  Array<double> at_;        // [images, 3]
  Array<Copy> copies_;      // [images]
};

}  // namespace onehop
