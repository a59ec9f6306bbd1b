// Searches among points: the nearest, all within a distance, the farthest. They are exact: distances are Euclidean, of
// float64 coordinates, their squares added up in the order of the dimensions; of points at the same distance those
// with lower numbers come first.
#pragma once

#include <cstdint>
#include <vector>

namespace onehop {

// Points of clouds, one cloud after the other.
struct PointClouds {
  const double* points;   // [bounds[clouds], dims]
  const int64_t* bounds;  // [clouds + 1]
  int64_t clouds;
  int64_t dims;

  const double* at(int64_t point) const { return points + point * dims; }
  int64_t count() const { return bounds[clouds]; }
  int64_t count(int64_t cloud) const { return bounds[cloud + 1] - bounds[cloud]; }
};

// The neighbours that are wanted.
struct WantedPoints {
  int64_t most;    // how many of each point; below 0: all
  double squared;  // their squared distances are below it
  bool omit_self;  // point i of x is no neighbour of point i of y
};

// Pairs of a point of y and a neighbour of it among the points of x.
class FoundPoints {
 public:
  // The neighbours of some points of y, point after point, the nearest first.
  struct Part {
    std::vector<int64_t> rows, counts, numbers;
  };

  // Makes room for so many parts more; returns the first.
  Part* add(int64_t parts);
  int64_t pairs() const;

  // Writes the pairs in the order of the points of y: bounds[rows + 1], numbers[pairs], and, unless it is null, the
  // point of y of each pair.
  void write(int64_t rows, int64_t* bounds, int64_t* numbers, int64_t* of, int threads) const;

 private:
  std::vector<Part> parts_;
};

// A search by a k-d tree for each cloud.
void search_trees(const PointClouds& x, const PointClouds& y, const WantedPoints& wanted, FoundPoints* found,
                  int threads);

// Products of a block of points of y with all points of their cloud of x, both moved so that the products are small.
struct PointProducts {
  const double* products;  // [rows, x.count(cloud)]
  const double* norms_x;   // [x.count(cloud)], squared
  const double* norms_y;   // [rows], squared
  int64_t cloud;
  int64_t first;  // the first of the rows in y
  int64_t rows;
  double error;  // how far off a product is at most, as a share of the sum of its two squared norms
};

// A search among the points that their products admit; it adds to `found`.
void search_products(const PointClouds& x, const PointClouds& y, const PointProducts& block, const WantedPoints& wanted,
                     FoundPoints* found, int threads);

// Picks counts[b] points of each cloud, first starts[b], then the one farthest from those before; of several the
// first. `picked` holds the clouds' picks one after the other, as numbers of points.
void farthest_points(const PointClouds& x, const int64_t* starts, const int64_t* counts, int64_t* picked, int threads);

}  // namespace onehop
