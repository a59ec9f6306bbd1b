// Integers: sorted, told apart, and looked up in others.
#include "onehop/integers.hpp"

#include <nanobind/nanobind.h>

#include "arguments.hpp"
#include "calls.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

int64_t* numbers_at(Address address) { return static_cast<int64_t*>(at(address)); }

// Writes an int64 for each key.
template <void (onehop::SortedKeys::*kWrite)(int64_t*, int) const>
void write(const onehop::SortedKeys& keys, Address out, int threads) {
  (keys.*kWrite)(numbers_at(out), threads);
}

}  // namespace

void bind_integers(nb::module_& m) {
  using onehop::DistinctIntegers;
  using onehop::IntegerLimits;
  using onehop::Integers;
  using onehop::SortedIntegers;
  using onehop::SortedKeys;
  nb::class_<SortedKeys>(m, "SortedKeys")
      .def_prop_ro("count", &SortedKeys::count)
      .def_prop_ro("distinct", &SortedKeys::distinct)
      .def("write_notes", &write<&SortedKeys::write_notes>, "note"_a, "threads"_a, Released())
      .def("write_groups", &write<&SortedKeys::write_groups>, "group"_a, "threads"_a, Released())
      .def("write_inverse", &write<&SortedKeys::write_inverse>, "group"_a, "threads"_a, Released())
      .def("write_counts", &write<&SortedKeys::write_counts>, "count"_a, "threads"_a, Released());
  Call<Integers>(m, "Integers")
      .field<&Integers::values>("values")
      .field<&Integers::count>("count")
      .field<&Integers::is_wide>("is_wide");
  nb::class_<IntegerLimits>(m, "IntegerLimits")
      .def_ro("ascends", &IntegerLimits::ascends)
      .def_prop_ro("span", &IntegerLimits::span);
  m.def("limits_of", &onehop::limits_of, "integers"_a, "threads"_a, Released());
  nb::class_<SortedIntegers>(m, "SortedIntegers")
      .def(nb::init<const Integers&, IntegerLimits, bool, bool>(), "integers"_a, "limits"_a, "descending"_a,
           "numbered"_a)
      .def_prop_ro("keys", &SortedIntegers::keys, nb::rv_policy::reference_internal)
      .def("sort", &SortedIntegers::sort, "threads"_a, Released())
      .def(
          "write_values",
          [](const SortedIntegers& sorted, Address values, bool once, int threads) {
            sorted.write_values(at(values), once, threads);
          },
          "values"_a, "once"_a, "threads"_a, Released());
  nb::class_<DistinctIntegers>(m, "DistinctIntegers")
      .def(nb::init<const Integers&, IntegerLimits, bool, int>(), "integers"_a, "limits"_a, "numbered"_a, "threads"_a,
           Released())
      .def_prop_ro("distinct", &DistinctIntegers::distinct)
      .def(
          "write_values",
          [](const DistinctIntegers& distinct, Address values, int threads) {
            distinct.write_values(at(values), threads);
          },
          "values"_a, "threads"_a, Released())
      .def(
          "write_inverse",
          [](const DistinctIntegers& distinct, const Integers& integers, Address inverse, int threads) {
            return distinct.write_inverse(integers, numbers_at(inverse), threads);
          },
          "integers"_a, "inverse"_a, "threads"_a, Released());
  m.def(
      "count_numbers",
      [](Address numbers, int64_t count, int64_t groups, Address counts, int threads) {
        onehop::count_numbers(numbers_at(numbers), count, groups, numbers_at(counts), threads);
      },
      "numbers"_a, "count"_a, "groups"_a, "counts"_a, "threads"_a, Released());
  m.def(
      "find_among",
      [](const Integers& integers, const Integers& others, IntegerLimits limits, bool inverted, Address found,
         int threads) {
        return onehop::find_among(integers, others, limits, inverted, static_cast<bool*>(at(found)), threads);
      },
      "integers"_a, "others"_a, "limits"_a, "inverted"_a, "found"_a, "threads"_a, Released());
}
