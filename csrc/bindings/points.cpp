// Searches among points.
#include "onehop/points.hpp"

#include "arguments.hpp"
#include "calls.hpp"

namespace nb = nanobind;
using namespace nb::literals;

void bind_points(nb::module_& m) {
  using onehop::FoundPoints;
  using onehop::PointClouds;
  using onehop::PointProducts;
  using onehop::WantedPoints;
  Call<PointClouds>(m, "PointClouds")
      .field<&PointClouds::points>("points")
      .field<&PointClouds::bounds>("bounds")
      .field<&PointClouds::clouds>("clouds")
      .field<&PointClouds::dims>("dims");
  Call<WantedPoints>(m, "WantedPoints")
      .field<&WantedPoints::most>("most")
      .field<&WantedPoints::squared>("squared")
      .field<&WantedPoints::omit_self>("omit_self");
  Call<PointProducts>(m, "PointProducts")
      .field<&PointProducts::products>("products")
      .field<&PointProducts::norms_x>("norms_x")
      .field<&PointProducts::norms_y>("norms_y")
      .field<&PointProducts::cloud>("cloud")
      .field<&PointProducts::first>("first")
      .field<&PointProducts::rows>("rows")
      .field<&PointProducts::error>("error");
  nb::class_<FoundPoints>(m, "FoundPoints")
      .def(nb::init<>())
      .def_prop_ro("pairs", &FoundPoints::pairs)
      .def(
          "write",
          [](const FoundPoints& found, int64_t rows, Address bounds, Address numbers, Address of, int threads) {
            found.write(rows, static_cast<int64_t*>(at(bounds)), static_cast<int64_t*>(at(numbers)),
                        static_cast<int64_t*>(at(of)), threads);
          },
          "rows"_a, "bounds"_a, "numbers"_a, "of"_a, "threads"_a, Released());
  m.def("search_trees", &onehop::search_trees, "x"_a, "y"_a, "wanted"_a, "found"_a, "threads"_a, Released());
  m.def("search_products", &onehop::search_products, "x"_a, "y"_a, "block"_a, "wanted"_a, "found"_a, "threads"_a,
        Released());
  m.def(
      "farthest_points",
      [](const PointClouds& x, Address starts, Address counts, Address picked, int threads) {
        onehop::farthest_points(x, static_cast<const int64_t*>(at(starts)), static_cast<const int64_t*>(at(counts)),
                                static_cast<int64_t*>(at(picked)), threads);
      },
      "x"_a, "starts"_a, "counts"_a, "picked"_a, "threads"_a, Released());
}
