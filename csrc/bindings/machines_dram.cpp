// Binds the command level of onehop.machines.dram.
#include <nanobind/nanobind.h>

#include <algorithm>
#include <vector>

#include "../machines/dram.hpp"

namespace nb = nanobind;
using namespace nb::literals;
using namespace onehop;

namespace {

// The commands of a run, as rows of seven integers.
struct CommandLog {
  std::vector<dram::Issued> commands;
};

// Each argument that is an address is of int64, but writes of uint8; counts: the fields of dram::Counts.
void simulate(uintptr_t timing, uintptr_t slices, int64_t slice_count, uintptr_t widths, bool xor_column,
              uintptr_t controller, uintptr_t bursts, uintptr_t writes, int64_t requests, uintptr_t counts,
              CommandLog* log) {
  nb::gil_scoped_release released;
  const auto* width = reinterpret_cast<const int64_t*>(widths);
  const auto* shape = reinterpret_cast<const int64_t*>(controller);
  const dram::Layout layout{reinterpret_cast<const dram::Slice*>(slices),
                            slice_count,
                            {width[0], width[1], width[2], width[3], width[4]},
                            xor_column};
  const dram::Controller behind{shape[0], shape[1], shape[2], shape[3], shape[4], shape[5], shape[6], shape[7] != 0};
  *reinterpret_cast<dram::Counts*>(counts) = dram::simulate(
      *reinterpret_cast<const dram::Timing*>(timing), layout, behind, reinterpret_cast<const int64_t*>(bursts),
      reinterpret_cast<const uint8_t*>(writes), requests, log == nullptr ? nullptr : &log->commands);
}

}  // namespace

void bind_dram(nb::module_& m) {
  nb::class_<CommandLog>(m, "DramCommandLog")
      .def(nb::init<>())
      .def("__len__", [](const CommandLog& log) { return log.commands.size(); })
      .def("copy_to", [](const CommandLog& log, uintptr_t address) {
        std::copy(log.commands.begin(), log.commands.end(), reinterpret_cast<dram::Issued*>(address));
      });
  m.def("dram_simulate", &simulate, nb::kw_only(), "timing"_a, "slices"_a, "slice_count"_a, "widths"_a, "xor_column"_a,
        "controller"_a, "bursts"_a, "writes"_a, "requests"_a, "counts"_a, "log"_a.none());
}
