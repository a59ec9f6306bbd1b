// Negative edges with the numbers of Python's generator.
#include "onehop/negatives.hpp"

#include "arguments.hpp"
#include "calls.hpp"

namespace nb = nanobind;
using namespace nb::literals;

void bind_negatives(nb::module_& m) {
  using onehop::EdgePairs;
  using onehop::PairTable;
  using onehop::SampleArgs;
  Call<EdgePairs>(m, "EdgePairs")
      .field<&EdgePairs::kind>("kind")
      .field<&EdgePairs::population>("population")
      .field<&EdgePairs::rows>("rows")
      .field<&EdgePairs::cols>("cols")
      .field<&EdgePairs::loops>("loops")
      .field<&EdgePairs::row>("row")
      .field<&EdgePairs::col>("col")
      .field<&EdgePairs::row_stride>("row_stride")
      .field<&EdgePairs::col_stride>("col_stride")
      .field<&EdgePairs::edges>("edges");
  Call<SampleArgs>(m, "SampleCall")
      .field<&SampleArgs::size>("size")
      .field<&SampleArgs::pool>("pool")
      .field<&SampleArgs::wanted>("wanted")
      .field<&SampleArgs::state>("state")
      .field<&SampleArgs::pairs>("pairs");
  m.def("count_pairs", &onehop::count_pairs, "edges"_a, Released());
  m.def("draw_pairs", &onehop::draw_pairs, "edges"_a, "sample"_a, Released());
  m.def(
      "write_pairs",
      [](const EdgePairs& kind, Address pairs, int64_t count, Address row, Address col) {
        onehop::write_pairs(kind, static_cast<const int64_t*>(at(pairs)), count, static_cast<int64_t*>(at(row)),
                            static_cast<int64_t*>(at(col)));
      },
      "kind"_a, "pairs"_a, "count"_a, "row"_a, "col"_a, Released());
  nb::class_<PairTable>(m, "PairTable")
      .def(nb::init<const EdgePairs&, int64_t>(), "edges"_a, "room"_a, Released())
      .def(
          "find",
          [](const PairTable& table, const EdgePairs& edges, Address which, Address col, int64_t count, Address found) {
            return table.find(edges, static_cast<const int64_t*>(at(which)), static_cast<const int64_t*>(at(col)),
                              count, static_cast<int64_t*>(at(found)));
          },
          "edges"_a, "which"_a, "col"_a, "count"_a, "found"_a, Released());
}
