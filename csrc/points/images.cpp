#include "images.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "each.hpp"

namespace onehop {
namespace {

constexpr int64_t kAtomsPerTask = 1024;
constexpr double kEps = std::numeric_limits<double>::epsilon();
// Roundings of a position of an image, of its distance, and of the exact vector, each of at most half of eps of the
// magnitudes that were added up, are fewer.
constexpr double kRoundings = 64;
// Shifts of images and of the atoms that they are seen from have room in 32 bits, and so have their differences.
constexpr double kMostShift = 1 << 29;
// Coordinates along the vectors of the lattice are off by less.
constexpr double kSlack = 1e-9;

template <class T>
std::unique_ptr<T[]> array_of(int64_t count) {
  return std::make_unique_for_overwrite<T[]>(static_cast<size_t>(count));
}

double along(const double* point, const double* axis) {
  return point[0] * axis[0] + point[1] * axis[1] + point[2] * axis[2];
}

}  // namespace

struct Images::Image {
  std::array<int32_t, 3> shift;
  std::array<double, 3> at;
  bool home;
};

template <class Body>
void Images::for_atoms(int threads, Body&& body) const {
  const int64_t count = atoms_.count();
  for_each((count + kAtomsPerTask - 1) / kAtomsPerTask, threads, [&](int64_t task) {
    const int64_t begin = task * kAtomsPerTask, end = std::min(begin + kAtomsPerTask, count);
    std::vector<Image> images;
    int64_t structure = atoms_.structure_of(begin);
    for (int64_t atom = begin; atom < end; ++atom) {
      while (atom >= atoms_.bounds[structure + 1]) ++structure;
      images.clear();
      visit(regions_[structure], atom, [&](const Image& image) { images.push_back(image); });
      body(atom, images);
    }
  });
}

// Moves the atoms of a structure into its cell, and finds out how far images of them matter.
PeriodicError Images::enter_cell(int64_t structure) {
  Region& region = regions_[structure];
  Lattice& lattice = region.lattice;
  if (!lattice.reduce(atoms_.cells + 9 * structure, atoms_.periodic + 3 * structure)) {
    return PeriodicError::singular_cell;
  }
  const double infinity = std::numeric_limits<double>::infinity();
  for (int d = 0; d < 3; ++d) {
    region.low[d] = region.first[d] = infinity;
    region.high[d] = region.last[d] = -infinity;
  }
  double largest = 0, most_times[3] = {0, 0, 0};
  for (int64_t atom = atoms_.bounds[structure]; atom < atoms_.bounds[structure + 1]; ++atom) {
    const double* position = atoms_.positions + 3 * atom;
    double* inside = inside_.get() + 3 * atom;
    double shift[3] = {0, 0, 0};
    std::copy_n(position, 3, inside);
    for (int k = 0; k < lattice.periodic; ++k) {
      const double times = std::floor(along(position, lattice.inverse[k]));
      most_times[k] = std::max(most_times[k], std::abs(times));
      for (int d = 0; d < 3; ++d) {
        inside[d] -= times * lattice.vectors[k][d];
        shift[d] -= times * static_cast<double>(lattice.of_cell[k][d]);
      }
    }
    for (int d = 0; d < 3; ++d) {
      if (!(std::abs(shift[d]) <= kMostShift)) return PeriodicError::too_far;
      entered_[3 * atom + d] = static_cast<int32_t>(shift[d]);
      largest = std::max(largest, std::abs(position[d]));
      region.low[d] = std::min(region.low[d], inside[d]);
      region.high[d] = std::max(region.high[d], inside[d]);
      const double coordinate = along(inside, lattice.inverse[d]);
      region.first[d] = std::min(region.first[d], coordinate);
      region.last[d] = std::max(region.last[d], coordinate);
    }
  }
  double magnitude = 3 * largest + atoms_.radius;
  for (int k = 0; k < lattice.periodic; ++k) {
    magnitude += (2 * most_times[k] + atoms_.radius / lattice.heights[k] + 2) * lattice.magnitudes[k];
  }
  const double error = kRoundings * kEps * magnitude, least = std::max(atoms_.radius - error, 0.0);
  region.reach = atoms_.radius + error;
  region.outer = region.reach * region.reach * (1 + 4 * kEps);
  region.inner = least * least * (1 - 4 * kEps);
  return PeriodicError::none;
}

// Calls body(image) for all images of an atom that may be neighbours of atoms in the cell.
template <class Body>
void Images::visit(const Region& region, int64_t atom, Body&& body) const {
  const Lattice& lattice = region.lattice;
  const double* inside = inside_.get() + 3 * atom;
  int64_t from[3] = {0, 0, 0}, to[3] = {0, 0, 0};
  for (int k = 0; k < lattice.periodic; ++k) {
    const double coordinate = along(inside, lattice.inverse[k]);
    const double away = region.reach / lattice.heights[k] * (1 + kSlack) + kSlack;
    // The image in the cell is one of them, however large rounding errors are.
    from[k] = std::min<int64_t>(static_cast<int64_t>(std::ceil(region.first[k] - coordinate - away)), 0);
    to[k] = std::max<int64_t>(static_cast<int64_t>(std::floor(region.last[k] - coordinate + away)), 0);
  }
  int64_t times[3];
  for (times[0] = from[0]; times[0] <= to[0]; ++times[0]) {
    for (times[1] = from[1]; times[1] <= to[1]; ++times[1]) {
      for (times[2] = from[2]; times[2] <= to[2]; ++times[2]) {
        Image image;
        image.home = times[0] == 0 && times[1] == 0 && times[2] == 0;
        bool is_near = true;
        for (int d = 0; d < 3; ++d) {
          int64_t shift = entered_[3 * atom + d];
          image.at[d] = inside[d];
          for (int k = 0; k < 3; ++k) {
            image.at[d] += static_cast<double>(times[k]) * lattice.vectors[k][d];
            shift += times[k] * lattice.of_cell[k][d];
          }
          image.shift[d] = static_cast<int32_t>(shift);
          is_near =
              is_near && image.at[d] >= region.low[d] - region.reach && image.at[d] <= region.high[d] + region.reach;
        }
        if (is_near || image.home) body(image);
      }
    }
  }
}

PeriodicError Images::make(const PeriodicAtoms& atoms, int64_t most, int threads, int64_t* wrong) {
  atoms_ = atoms;
  const int64_t count = atoms.count();
  regions_.resize(atoms.structures);
  inside_ = array_of<double>(3 * count);
  entered_ = array_of<int32_t>(3 * count);
  first_ = array_of<int64_t>(count + 1);
  home_ = array_of<int32_t>(count);
  std::vector<PeriodicError> errors(atoms.structures, PeriodicError::none);
  for_each(atoms.structures, threads, [&](int64_t structure) { errors[structure] = enter_cell(structure); });
  double images = 0;
  for (int64_t structure = 0; structure < atoms.structures; ++structure) {
    *wrong = structure;
    if (errors[structure] != PeriodicError::none) return errors[structure];
    const Region& region = regions_[structure];
    double of_atom = 1;
    for (int k = 0; k < region.lattice.periodic; ++k) {
      const double away = region.reach / region.lattice.heights[k];
      of_atom *= std::max(region.last[k] - region.first[k] + 2 * away, 1.0);
      for (int d = 0; d < 3; ++d) {
        if (!((away + 2) * std::abs(static_cast<double>(region.lattice.of_cell[k][d])) <= kMostShift / 3)) {
          return away > kMostShift / 3 - 2 ? PeriodicError::too_many_images : PeriodicError::too_far;
        }
      }
    }
    const int64_t own = atoms.bounds[structure + 1] - atoms.bounds[structure];
    if (own > 0) images += static_cast<double>(own) * of_atom;
    if (!(images <= static_cast<double>(most))) return PeriodicError::too_many_images;
  }
  for_atoms(threads,
            [&](int64_t atom, const std::vector<Image>& own) { first_[atom + 1] = static_cast<int64_t>(own.size()); });
  first_[0] = 0;
  for (int64_t atom = 0; atom < count; ++atom) first_[atom + 1] += first_[atom];
  if (this->count() > std::min<int64_t>(most, std::numeric_limits<int32_t>::max())) {
    return PeriodicError::too_many_images;
  }
  at_ = array_of<double>(3 * this->count());
  copies_ = array_of<Copy>(this->count());
  for_atoms(threads, [&](int64_t atom, std::vector<Image>& own) {
    std::sort(own.begin(), own.end(), [](const Image& a, const Image& b) { return a.shift < b.shift; });
    int64_t next = first_[atom];
    for (const Image& image : own) {
      if (image.home) home_[atom] = static_cast<int32_t>(next);
      std::copy_n(image.at.data(), 3, at_.get() + 3 * next);
      copies_[next++] = {static_cast<int32_t>(atom), {image.shift[0], image.shift[1], image.shift[2]}};
    }
  });
  inside_.reset();
  entered_.reset();
  return PeriodicError::none;
}

}  // namespace onehop
