// The GPU's loop. Addresses come from onehop.machines.gpu, which has checked every array.
#include <nanobind/nanobind.h>

#include <new>

#include "../machines/gpu_gather.hpp"

namespace nb = nanobind;

void bind_gpu(nb::module_& m) {
  m.def(
      "gpu_missing_sectors",
      [](uintptr_t piece, uintptr_t end, int64_t turns, int32_t sectors, bool whole, int64_t sets, int32_t ways) {
        const int64_t missing = onehop::gpu::missing_sectors(
            {reinterpret_cast<const int32_t*>(piece), reinterpret_cast<const int64_t*>(end), turns, sectors, whole},
            sets, ways);
        if (missing < 0) throw std::bad_alloc();
        return missing;
      },
      nb::call_guard<nb::gil_scoped_release>());
}
