// Neighbours by columns: the images near an atom along its column and those around it are windows that move on with
// the atoms of the column.
#include "onehop/periodic.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <numeric>
#include <vector>

#include "../runtime/key_sort.hpp"
#include "columns.hpp"
#include "each.hpp"
#include "images.hpp"
#include "onehop/kernels.hpp"

namespace onehop {
namespace {

constexpr int64_t kImagesPerTask = 512;

// Images of a column that are near along it.
struct Window {
  int64_t begin, end, last;

  void move_to(double z, double reach, const double* along) {
    while (begin < last && along[begin] < z - reach) ++begin;
    end = std::max(begin, end);
    while (end < last && along[end] <= z + reach) ++end;
  }
};

}  // namespace

int64_t PeriodicAtoms::structure_of(int64_t atom) const {
  return std::upper_bound(bounds, bounds + structures + 1, atom) - bounds - 1;
}

struct PeriodicSearch::Grid {
  PeriodicAtoms atoms{};
  Images images;
  SortedImages sorted;
  std::vector<int64_t> tasks;  // the first columns of each, and the end
  int64_t wrong = 0;

  void divide();
  std::vector<Window> windows_of(int64_t column, const Columns& columns) const;
  template <class Body>
  void for_atoms(int64_t task, Body&& body) const;
  int64_t count_near(const Region& region, int64_t place, const std::vector<Window>& windows,
                     std::vector<int32_t>* near) const;
  int64_t collect(const Region& region, int64_t place, const std::vector<Window>& windows,
                  std::vector<int32_t>* near) const;
  void sort(int32_t* near, int64_t count, std::vector<uint64_t>* words) const;
};

// Cuts the columns into tasks of about as many images.
void PeriodicSearch::Grid::divide() {
  const auto columns = static_cast<int64_t>(sorted.begin.size()) - 1;
  tasks.assign(1, 0);
  for (int64_t column = 1; column < columns; ++column) {
    if (sorted.begin[column] - sorted.begin[tasks.back()] >= kImagesPerTask) tasks.push_back(column);
  }
  tasks.push_back(columns);
}

// A column and those around it: none is narrower than the reach.
std::vector<Window> PeriodicSearch::Grid::windows_of(int64_t column, const Columns& columns) const {
  std::vector<Window> windows;
  const int64_t row = (column - columns.first) / columns.wide[1], place = (column - columns.first) % columns.wide[1];
  for (int64_t r = std::max<int64_t>(row - 1, 0); r <= std::min(row + 1, columns.wide[0] - 1); ++r) {
    for (int64_t p = std::max<int64_t>(place - 1, 0); p <= std::min(place + 1, columns.wide[1] - 1); ++p) {
      const int64_t other = columns.first + r * columns.wide[1] + p;
      const int64_t begin = sorted.begin[other], end = sorted.begin[other + 1];
      if (begin < end) windows.push_back({begin, begin, end});
    }
  }
  return windows;
}

// Calls body(atom, place among the sorted images, region, windows) for each atom in the cell of the task's columns.
template <class Body>
void PeriodicSearch::Grid::for_atoms(int64_t task, Body&& body) const {
  for (int64_t column = tasks[task]; column < tasks[task + 1]; ++column) {
    std::vector<Window> windows;
    int64_t structure = -1;
    for (int64_t place = sorted.begin[column]; place < sorted.begin[column + 1]; ++place) {
      if (!sorted.is_home[place]) continue;
      const int64_t atom = sorted.copy[place].atom;
      if (structure < 0) {
        structure = atoms.structure_of(atom);
        windows = windows_of(column, sorted.structures[structure]);
      }
      for (Window& window : windows) window.move_to(sorted.z[place], images.region(structure).reach, sorted.z.get());
      body(atom, place, images.region(structure), windows);
    }
  }
}

// Counts the neighbours of one atom.
int64_t PeriodicSearch::Grid::count_near(const Region& region, int64_t place, const std::vector<Window>& windows,
                                         std::vector<int32_t>* near) const {
  const double x = sorted.x[place], y = sorted.y[place], z = sorted.z[place];
  int64_t sure = 0, possible = 0;
  for (const Window& window : windows) {
    for (int64_t i = window.begin; i < window.end; ++i) {
      const double dx = sorted.x[i] - x, dy = sorted.y[i] - y, dz = sorted.z[i] - z;
      const double squared = dx * dx + dy * dy + dz * dz;
      sure += squared < region.inner;
      possible += squared <= region.outer;
    }
  }
  // The atom itself is nearer than any radius that rounding does not reach.
  return sure == possible ? sure - 1 : collect(region, place, windows, near);
}

// Finds the places of the neighbours of one atom, and returns how many there are; `near` may be longer.
int64_t PeriodicSearch::Grid::collect(const Region& region, int64_t place, const std::vector<Window>& windows,
                                      std::vector<int32_t>* near) const {
  const double x = sorted.x[place], y = sorted.y[place], z = sorted.z[place];
  int64_t room = 0;
  for (const Window& window : windows) room += window.end - window.begin;
  if (static_cast<int64_t>(near->size()) <= room) near->resize(2 * room + 1);
  int32_t* out = near->data();
  int64_t count = 0, sure = 0;
  for (const Window& window : windows) {
    for (int64_t i = window.begin; i < window.end; ++i) {
      const double dx = sorted.x[i] - x, dy = sorted.y[i] - y, dz = sorted.z[i] - z;
      const double squared = dx * dx + dy * dy + dz * dz;
      out[count] = static_cast<int32_t>(i);
      count += squared <= region.outer;
      sure += squared < region.inner;
    }
  }
  const auto self = static_cast<int32_t>(place);
  if (sure == count) {
    std::swap(*std::find(out, out + count, self), out[count - 1]);
    return count - 1;
  }
  const Copy own = sorted.copy[place];
  const double* destination = atoms.positions + 3 * int64_t{own.atom};
  const double* cell = atoms.cells + 9 * atoms.structure_of(own.atom);
  const auto is_far = [&](int32_t i) {
    const Copy other = sorted.copy[i];
    int32_t shift[3];
    for (int d = 0; d < 3; ++d) shift[d] = other.shift[d] - own.shift[d];
    const double* source = atoms.positions + 3 * int64_t{other.atom};
    return i == self || !(squared_length(source, destination, shift, cell) < atoms.radius * atoms.radius);
  };
  return std::remove_if(out, out + count, is_far) - out;
}

// Sorts neighbours by the numbers of their images, which are in the order of their atoms and shifts.
void PeriodicSearch::Grid::sort(int32_t* near, int64_t count, std::vector<uint64_t>* words) const {
  if (count <= kRankedPoints) {
    double keys[kRankedPoints];
    int64_t places[kRankedPoints];
    for (int64_t i = 0; i < count; ++i) {
      keys[i] = static_cast<double>(sorted.image[near[i]]);
      places[i] = near[i];
    }
    kernels().rank_points(keys, places, count, count);
    std::copy_n(places, count, near);
    return;
  }
  words->resize(std::max<size_t>(words->size(), 2 * count));
  for (int64_t i = 0; i < count; ++i) {
    (*words)[i] = static_cast<uint64_t>(sorted.image[near[i]]) << 32 | static_cast<uint32_t>(near[i]);
  }
  sort_digits(words->data(), words->data() + count, count, 32, bits_below(images.count()));
  for (int64_t i = 0; i < count; ++i) near[i] = static_cast<int32_t>((*words)[i]);
}

PeriodicSearch::PeriodicSearch() : grid_(std::make_unique<Grid>()) {}
PeriodicSearch::~PeriodicSearch() = default;

int64_t PeriodicSearch::wrong_structure() const { return grid_->wrong; }

PeriodicError PeriodicSearch::prepare(const PeriodicAtoms& atoms, int64_t most_images, int threads) {
  grid_->atoms = atoms;
  const PeriodicError error = grid_->images.make(atoms, most_images, threads, &grid_->wrong);
  if (error == PeriodicError::none) {
    grid_->sorted.sort(atoms, grid_->images, threads);
    grid_->divide();
  }
  return error;
}

int64_t PeriodicSearch::count(int64_t* rowptr, int64_t most_edges, int threads) const {
  const Grid& grid = *grid_;
  std::atomic<int64_t> total{0};
  for_each(static_cast<int64_t>(grid.tasks.size()) - 1, threads, [&](int64_t task) {
    std::vector<int32_t> near;
    grid.for_atoms(task, [&](int64_t atom, int64_t place, const Region& region, const std::vector<Window>& windows) {
      if (total.load(std::memory_order_relaxed) > most_edges) return;
      rowptr[atom + 1] = grid.count_near(region, place, windows, &near);
      total.fetch_add(rowptr[atom + 1], std::memory_order_relaxed);
    });
  });
  if (total > most_edges) return -1;
  rowptr[0] = 0;
  std::partial_sum(rowptr, rowptr + grid.atoms.count() + 1, rowptr);
  return total;
}

void PeriodicSearch::write(const PeriodicOut& out, int threads) const {
  const Grid& grid = *grid_;
  for_each(static_cast<int64_t>(grid.tasks.size()) - 1, threads, [&](int64_t task) {
    std::vector<int32_t> near;
    std::vector<uint64_t> words;
    grid.for_atoms(task, [&](int64_t atom, int64_t place, const Region& region, const std::vector<Window>& windows) {
      const int64_t count = grid.collect(region, place, windows, &near);
      grid.sort(near.data(), count, &words);
      const Copy own = grid.sorted.copy[place];
      int32_t *col = out.col + out.rowptr[atom], *shifts = out.shifts + 3 * out.rowptr[atom];
      for (int64_t i = 0; i < count; ++i, shifts += 3) {
        const Copy& copy = grid.sorted.copy[near[i]];
        col[i] = copy.atom;
        for (int d = 0; d < 3; ++d) shifts[d] = copy.shift[d] - own.shift[d];
      }
    });
  });
}

}  // namespace onehop
