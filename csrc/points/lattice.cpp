// Shortest vectors of a lattice in up to three dimensions: I. Semaev, "A 3-dimensional lattice reduction algorithm",
// Cryptography and Lattices, 2001. Each step replaces the longest vector by its shortest sum with multiples of the
// others.
#include "lattice.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace onehop {
namespace {

constexpr double kEps = std::numeric_limits<double>::epsilon();
// A step that shortens a vector by less ends the reduction.
constexpr double kShorter = 1 - 1e-9;
// Numbers of cell vectors that shifts of 32 bits have room for, and more steps than any such lattice takes.
constexpr double kMostMultiples = 1 << 30;
constexpr int kMostSteps = 1000;
// Of three shortest vectors, the volume is at least 0.7 of the product of their lengths; of two, the area 0.86.
constexpr double kLeastVolume = 0.1;

double dot(const double* a, const double* b) { return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]; }
double length(const double* a) { return std::sqrt(dot(a, a)); }

void cross(const double* a, const double* b, double* out) {
  for (int d = 0; d < 3; ++d) out[d] = a[(d + 1) % 3] * b[(d + 2) % 3] - a[(d + 2) % 3] * b[(d + 1) % 3];
}

// A vector of the lattice, by its numbers of cell vectors: rounding errors do not add up from step to step.
struct Sum {
  double at[3], squared, magnitude;
  double of_cell[3];

  void add_up(const double* cell) {
    magnitude = 0;
    std::fill_n(at, 3, 0.0);
    for (int l = 0; l < 3; ++l) {
      if (of_cell[l] == 0) continue;
      for (int d = 0; d < 3; ++d) at[d] += of_cell[l] * cell[3 * l + d];
      magnitude += std::abs(of_cell[l]) * length(cell + 3 * l);
    }
    squared = dot(at, at);
  }
  bool is_sound() const {
    const double most = std::max({std::abs(of_cell[0]), std::abs(of_cell[1]), std::abs(of_cell[2])});
    // Comparisons with NaN are false.
    return most <= kMostMultiples && std::sqrt(squared) > 1e3 * kEps * magnitude;
  }
};

// Replaces `sum` by its shortest difference from multiples of the others, one or two. Returns whether it is shorter.
bool reduce_by(const Sum* others, int count, const double* cell, Sum* sum) {
  double near[2] = {0, 0};
  const double first = dot(others[0].at, sum->at);
  if (count == 1) {
    near[0] = first / others[0].squared;
  } else {
    const double second = dot(others[1].at, sum->at), mixed = dot(others[0].at, others[1].at);
    const double area = others[0].squared * others[1].squared - mixed * mixed;
    near[0] = (first * others[1].squared - second * mixed) / area;
    near[1] = (second * others[0].squared - first * mixed) / area;
  }
  Sum best = *sum;
  for (int corner = 0; corner < (count == 1 ? 2 : 4); ++corner) {
    Sum next = *sum;
    for (int o = 0; o < count; ++o) {
      const double times = std::floor(near[o]) + ((corner >> o) & 1);
      for (int l = 0; l < 3; ++l) next.of_cell[l] -= times * others[o].of_cell[l];
    }
    next.add_up(cell);
    if (next.squared < best.squared) best = next;
  }
  const bool shorter = best.squared < sum->squared * kShorter;
  if (shorter) *sum = best;
  return shorter;
}

}  // namespace

bool Lattice::reduce(const double* cell, const bool* repeats) {
  int which[3];
  periodic = 0;
  for (int l = 0; l < 3; ++l) {
    if (repeats[l]) which[periodic++] = l;
  }
  return shorten(cell, which) && complete();
}

bool Lattice::shorten(const double* cell, const int* which) {
  Sum sums[3];
  for (int k = 0; k < periodic; ++k) {
    std::fill_n(sums[k].of_cell, 3, 0.0);
    sums[k].of_cell[which[k]] = 1;
    sums[k].add_up(cell);
    if (!sums[k].is_sound()) return false;
  }
  bool shorter = true;
  for (int step = 0; shorter; ++step) {
    if (step == kMostSteps) return false;
    shorter = false;
    std::stable_sort(sums, sums + periodic, [](const Sum& a, const Sum& b) { return a.squared < b.squared; });
    for (int k = 1; k < periodic && !shorter; ++k) {
      shorter = reduce_by(sums, k, cell, sums + k);
      if (!sums[k].is_sound()) return false;
    }
  }
  for (int k = 0; k < 3; ++k) {
    for (int l = 0; l < 3; ++l) of_cell[k][l] = k < periodic ? static_cast<int64_t>(sums[k].of_cell[l]) : 0;
    magnitudes[k] = k < periodic ? sums[k].magnitude : 0;
    if (k < periodic) std::copy_n(sums[k].at, 3, vectors[k]);
  }
  return true;
}

bool Lattice::complete() {
  if (periodic == 0) {
    for (int k = 0; k < 3; ++k) {
      for (int d = 0; d < 3; ++d) vectors[k][d] = k == d;
    }
  }
  if (periodic == 1) {
    // The axis along which the vector is shortest is not parallel to it.
    int axis = 0;
    for (int d = 1; d < 3; ++d) {
      if (std::abs(vectors[0][d]) < std::abs(vectors[0][axis])) axis = d;
    }
    const double unit[3] = {double(axis == 0), double(axis == 1), double(axis == 2)};
    cross(vectors[0], unit, vectors[1]);
  }
  for (int k = std::max(periodic, 1); k < 3; ++k) {
    if (k == 2 && periodic > 0) cross(vectors[0], vectors[1], vectors[2]);
    const double size = length(vectors[k]);
    if (!(size > 0)) return false;
    for (double& each : vectors[k]) each /= size;
  }
  double lengths = 1;
  for (const auto& vector : vectors) lengths *= length(vector);
  double perpendicular[3];
  cross(vectors[1], vectors[2], perpendicular);
  const double volume = dot(vectors[0], perpendicular);
  if (!(std::abs(volume) > kLeastVolume * lengths) || !std::isfinite(lengths)) return false;
  for (int k = 0; k < 3; ++k) {
    cross(vectors[(k + 1) % 3], vectors[(k + 2) % 3], inverse[k]);
    for (double& each : inverse[k]) each /= volume;
    heights[k] = 1 / length(inverse[k]);
  }
  return true;
}

}  // namespace onehop
