// The extension module of the simulated machines: separate from the kernels, so that each builds without the other.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "onehop/parallel.hpp"

namespace nb = nanobind;
using namespace nb::literals;

// One function a machine, each in the file of its name.
void bind_ndp(nb::module_& m);
void bind_dram(nb::module_& m);
void bind_pim(nb::module_& m);
void bind_gpu(nb::module_& m);
void bind_datasets(nb::module_& m);

NB_MODULE(_machines, m) {
  nb::set_leak_warnings(false);
  m.doc() = "The inner loops of onehop.machines. Private: use the functions of onehop.machines.";
  m.def("bind_openmp", &onehop::bind_openmp, "path"_a);
  bind_ndp(m);
  bind_dram(m);
  bind_pim(m);
  bind_gpu(m);
  bind_datasets(m);
}
