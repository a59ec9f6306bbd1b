// Tables of the operators that are served, and the sizes from which on they are.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <atomic>
#include <string>
#include <vector>

#include "torch_served.hpp"

namespace onehop::torch_side {

// Calls below these are torch's: see onehop.thresholds.
struct Bounds {
  std::atomic<int64_t> entries, numbers, work, sparse, sorted;
};
inline Bounds bounds;

// How many numbers are gathered or scattered by an index of whole rows.
inline bool is_large(int64_t entries, int64_t numbers, double cost) {
  return entries >= bounds.entries.load(std::memory_order_relaxed) &&
         static_cast<double>(numbers) * cost >= static_cast<double>(bounds.numbers.load(std::memory_order_relaxed));
}

// The numbers of a row.
inline int64_t row_numbers(const Tensor& x, int64_t dim) {
  const int64_t extent = size(x, dim);
  return extent > 0 ? numel(x) / extent : 0;
}

inline bool is_one(const Scalar& scalar) {
  int64_t value = 0;
  return is_integer(scalar, value) && value == 1;
}

template <class... Ops>
struct All {
  static void prepare(const nb::list& functions) {
    size_t next = 0;
    (Ops::prepare(nb::borrow(functions[next++])), ...);
  }
  template <class... Where>
  static void install(const Where&... where) {
    (Ops::install(where...), ...);
  }
  static void remove() { (Ops::remove(), ...); }
  static std::vector<std::string> names() { return {Ops::kName...}; }
  static std::vector<std::string> installed() {
    std::vector<std::string> found;
    ((Ops::is_installed() ? found.push_back(Ops::kName) : void()), ...);
    return found;
  }
};

// `Where` is what its install() is told.
template <class Kernels, class... Where>
void bind_kernels(nb::module_& m, const char* name) {
  nb::class_<Kernels>(m, name)
      .def_static("names", &Kernels::names)
      .def_static("prepare", &Kernels::prepare)
      .def_static("installed", &Kernels::installed)
      .def_static("install", [](const Where&... where) { Kernels::install(where...); })
      .def_static("remove", &Kernels::remove);
}

}  // namespace onehop::torch_side
