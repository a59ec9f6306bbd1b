// The extension module of the simulated machines: apart from the kernels, so that each builds without the other.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "onehop/parallel.hpp"

namespace nb = nanobind;
using namespace nb::literals;

void bind_datasets(nb::module_& m);

NB_MODULE(_machines, m) {
  nb::set_leak_warnings(false);
  m.doc() = "The inner loops of onehop.machines. Private: use the functions of onehop.machines.";
  m.def("bind_openmp", &onehop::bind_openmp, "path"_a);
  bind_datasets(m);
}
