#include "columns.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "each.hpp"

namespace onehop {
namespace {

constexpr int64_t kColumnsPerTask = 64, kImagesPerTask = 4096;
// Places of images among columns are off by rounding by less than this share of a column.
constexpr double kSlack = 1e-5;

Columns columns_of(const Region& region, int64_t images, int64_t first) {
  Columns columns{{0, 1, 2}, 1, {0, 0}, first, {1, 1}};
  if (images == 0) return columns;
  const auto extent = [&](int axis) { return region.high[axis] - region.low[axis] + 2 * region.reach; };
  // Where atoms reach far, columns are long instead of many.
  std::stable_sort(columns.axes, columns.axes + 3, [&](int a, int b) { return extent(a) < extent(b); });
  // Columns of half the reach hold fewer images outside the ball of neighbours, but they took longer: 33 ms instead of
  // 22 with 50 neighbours, and 560 instead of 515 with 700.
  columns.width = region.reach * (1 + kSlack);
  const double most = 2.0 * static_cast<double>(images) + 16;
  const auto wide = [&](int side) { return std::floor(extent(columns.axes[side]) / columns.width) + 1; };
  while (wide(0) * wide(1) > most) columns.width *= 1.25;
  for (int side = 0; side < 2; ++side) {
    columns.wide[side] = static_cast<int64_t>(wide(side));
    columns.origin[side] = region.low[columns.axes[side]] - region.reach;
  }
  return columns;
}

}  // namespace

void SortedImages::sort(const PeriodicAtoms& atoms, const Images& images, int threads) {
  int64_t columns = 0;
  structures.clear();
  for (int64_t structure = 0; structure < atoms.structures; ++structure) {
    const int64_t own = images.first_of(atoms.bounds[structure + 1]) - images.first_of(atoms.bounds[structure]);
    structures.push_back(columns_of(images.region(structure), own, columns));
    columns += structures.back().wide[0] * structures.back().wide[1];
  }
  const auto count = static_cast<size_t>(images.count());
  const auto column = std::make_unique_for_overwrite<int64_t[]>(count);
  const int64_t tasks = (images.count() + kImagesPerTask - 1) / kImagesPerTask;
  for_each(tasks, threads, [&](int64_t task) {
    const int64_t end = std::min((task + 1) * kImagesPerTask, images.count());
    for (int64_t i = task * kImagesPerTask; i < end; ++i) {
      column[i] = structures[atoms.structure_of(images[i].atom)].column_of(images.at(i));
    }
  });
  begin.assign(columns + 1, 0);
  for (int64_t i = 0; i < images.count(); ++i) ++begin[column[i] + 1];
  std::partial_sum(begin.begin(), begin.end(), begin.begin());
  image = std::make_unique_for_overwrite<int32_t[]>(count);
  std::vector<int64_t> next(begin.begin(), begin.end() - 1);
  for (int64_t i = 0; i < images.count(); ++i) image[next[column[i]]++] = static_cast<int32_t>(i);
  x = std::make_unique_for_overwrite<double[]>(count);
  y = std::make_unique_for_overwrite<double[]>(count);
  z = std::make_unique_for_overwrite<double[]>(count);
  copy = std::make_unique_for_overwrite<Copy[]>(count);
  is_home = std::make_unique_for_overwrite<bool[]>(count);
  for_each((columns + kColumnsPerTask - 1) / kColumnsPerTask, threads, [&](int64_t task) {
    std::vector<std::pair<double, int32_t>> own;
    const int64_t end = std::min((task + 1) * kColumnsPerTask, columns);
    for (int64_t c = task * kColumnsPerTask; c < end; ++c) {
      if (begin[c] == begin[c + 1]) continue;
      const int* axes = structures[atoms.structure_of(images[image[begin[c]]].atom)].axes;
      own.clear();
      for (int64_t i = begin[c]; i < begin[c + 1]; ++i) own.emplace_back(images.at(image[i])[axes[2]], image[i]);
      std::sort(own.begin(), own.end());
      for (int64_t i = begin[c]; i < begin[c + 1]; ++i) {
        const auto [along, number] = own[i - begin[c]];
        image[i] = number;
        x[i] = images.at(number)[axes[0]];
        y[i] = images.at(number)[axes[1]];
        z[i] = along;
        copy[i] = images[number];
        is_home[i] = images.home(copy[i].atom) == number;
      }
    }
  });
}

}  // namespace onehop
