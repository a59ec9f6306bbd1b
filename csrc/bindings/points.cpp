// Searches among points.
#include "onehop/points.hpp"

#include "arguments.hpp"
#include "calls.hpp"
#include "onehop/periodic.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

void bind_periodic(nb::module_& m) {
  using onehop::PeriodicAtoms;
  using onehop::PeriodicOut;
  using onehop::PeriodicRows;
  using onehop::PeriodicSearch;
  Call<PeriodicAtoms>(m, "PeriodicAtoms")
      .field<&PeriodicAtoms::positions>("positions")
      .field<&PeriodicAtoms::bounds>("bounds")
      .field<&PeriodicAtoms::cells>("cells")
      .field<&PeriodicAtoms::periodic>("periodic")
      .field<&PeriodicAtoms::structures>("structures")
      .field<&PeriodicAtoms::radius>("radius");
  Call<PeriodicRows>(m, "PeriodicRows")
      .field<&PeriodicRows::rowptr>("rowptr")
      .field<&PeriodicRows::col>("col")
      .field<&PeriodicRows::shifts>("shifts");
  Call<PeriodicOut>(m, "PeriodicOut")
      .field<&PeriodicOut::rowptr>("rowptr")
      .field<&PeriodicOut::col>("col")
      .field<&PeriodicOut::shifts>("shifts");
  nb::class_<PeriodicSearch>(m, "PeriodicSearch")
      .def(nb::init<>())
      .def(
          "prepare",
          [](PeriodicSearch& search, const PeriodicAtoms& atoms, int64_t most_images, int threads) {
            return static_cast<int>(search.prepare(atoms, most_images, threads));
          },
          "atoms"_a, "most_images"_a, "threads"_a, Released())
      .def_prop_ro("wrong_structure", &PeriodicSearch::wrong_structure)
      .def(
          "count",
          [](const PeriodicSearch& search, Address rowptr, int64_t most_edges, int threads) {
            return search.count(at<int64_t>(rowptr), most_edges, threads);
          },
          "rowptr"_a, "most_edges"_a, "threads"_a, Released())
      .def("write", &PeriodicSearch::write, "out"_a, "threads"_a, Released());
  m.def(
      "count_nearer",
      [](const PeriodicAtoms& atoms, const PeriodicRows& rows, Address near, Address rowptr, int threads) {
        return onehop::count_nearer(atoms, rows, at<bool>(near), at<int64_t>(rowptr), threads);
      },
      "atoms"_a, "rows"_a, "near"_a, "rowptr"_a, "threads"_a, Released());
  m.def(
      "write_nearer",
      [](int64_t atoms, const PeriodicRows& rows, Address near, const PeriodicOut& out, int threads) {
        onehop::write_nearer(atoms, rows, at<bool>(near), out, threads);
      },
      "atoms"_a, "rows"_a, "near"_a, "out"_a, "threads"_a, Released());
}

}  // namespace

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

  bind_periodic(m);
}
