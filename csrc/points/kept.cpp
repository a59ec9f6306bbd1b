// Neighbours among neighbours that were found for a larger radius, while atoms move little.
#include <algorithm>
#include <cstdint>
#include <numeric>

#include "each.hpp"
#include "onehop/periodic.hpp"

namespace onehop {
namespace {

constexpr int64_t kAtomsPerTask = 256;

// Calls row(atom, is_near) for each atom, where is_near(edge) tells whether that neighbour is nearer than the radius.
template <class Row>
void for_rows(const PeriodicAtoms& atoms, const PeriodicRows& rows, int threads, Row&& row) {
  const double squared = atoms.radius * atoms.radius;
  for_each((atoms.count() + kAtomsPerTask - 1) / kAtomsPerTask, threads, [&](int64_t task) {
    const int64_t begin = task * kAtomsPerTask, end = std::min(begin + kAtomsPerTask, atoms.count());
    int64_t structure = atoms.structure_of(begin);
    for (int64_t atom = begin; atom < end; ++atom) {
      while (atom >= atoms.bounds[structure + 1]) ++structure;
      const double *destination = atoms.positions + 3 * atom, *cell = atoms.cells + 9 * structure;
      row(atom, [&](int64_t edge) {
        const double* source = atoms.positions + 3 * int64_t{rows.col[edge]};
        return squared_length(source, destination, rows.shifts + 3 * edge, cell) < squared;
      });
    }
  });
}

}  // namespace

int64_t count_nearer(const PeriodicAtoms& atoms, const PeriodicRows& rows, int64_t* rowptr, int threads) {
  rowptr[0] = 0;
  for_rows(atoms, rows, threads, [&](int64_t atom, auto is_near) {
    int64_t count = 0;
    for (int64_t edge = rows.rowptr[atom]; edge < rows.rowptr[atom + 1]; ++edge) count += is_near(edge);
    rowptr[atom + 1] = count;
  });
  std::partial_sum(rowptr, rowptr + atoms.count() + 1, rowptr);
  return rowptr[atoms.count()];
}

void write_nearer(const PeriodicAtoms& atoms, const PeriodicRows& rows, const PeriodicOut& out, int threads) {
  for_rows(atoms, rows, threads, [&](int64_t atom, auto is_near) {
    int64_t next = out.rowptr[atom];
    for (int64_t edge = rows.rowptr[atom]; edge < rows.rowptr[atom + 1]; ++edge) {
      if (!is_near(edge)) continue;
      out.col[next] = rows.col[edge];
      std::copy_n(rows.shifts + 3 * edge, 3, out.shifts + 3 * next);
      ++next;
    }
  });
}

}  // namespace onehop
