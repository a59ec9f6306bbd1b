// Neighbours among neighbours that were found for a larger radius, while atoms move little.
#include <algorithm>
#include <cstdint>
#include <numeric>

#include "each.hpp"
#include "onehop/periodic.hpp"

namespace onehop {
namespace {

constexpr int64_t kAtomsPerTask = 256;

template <class Body>
void for_atoms(int64_t atoms, int threads, Body&& body) {
  for_each((atoms + kAtomsPerTask - 1) / kAtomsPerTask, threads, [&](int64_t task) {
    const int64_t end = std::min((task + 1) * kAtomsPerTask, atoms);
    for (int64_t atom = task * kAtomsPerTask; atom < end; ++atom) body(atom);
  });
}

}  // namespace

int64_t count_nearer(const PeriodicAtoms& atoms, const PeriodicRows& rows, bool* near, int64_t* rowptr, int threads) {
  const double squared = atoms.radius * atoms.radius;
  rowptr[0] = 0;
  for_atoms(atoms.count(), threads, [&](int64_t atom) {
    const double *destination = atoms.positions + 3 * atom, *cell = atoms.cells + 9 * atoms.structure_of(atom);
    int64_t count = 0;
    for (int64_t edge = rows.rowptr[atom]; edge < rows.rowptr[atom + 1]; ++edge) {
      const double* source = atoms.positions + 3 * int64_t{rows.col[edge]};
      near[edge] = squared_length(source, destination, rows.shifts + 3 * edge, cell) < squared;
      count += near[edge];
    }
    rowptr[atom + 1] = count;
  });
  std::partial_sum(rowptr, rowptr + atoms.count() + 1, rowptr);
  return rowptr[atoms.count()];
}

void write_nearer(int64_t atoms, const PeriodicRows& rows, const bool* near, const PeriodicOut& out, int threads) {
  for_atoms(atoms, threads, [&](int64_t atom) {
    int64_t next = out.rowptr[atom];
    for (int64_t edge = rows.rowptr[atom]; edge < rows.rowptr[atom + 1]; ++edge) {
      if (!near[edge]) continue;
      out.col[next] = rows.col[edge];
      std::copy_n(rows.shifts + 3 * edge, 3, out.shifts + 3 * next);
      ++next;
    }
  });
}

}  // namespace onehop
