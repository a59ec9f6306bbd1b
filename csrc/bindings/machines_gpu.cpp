// The GPU's loop. Addresses come from onehop.machines.gpu, which has checked every array.
#include <nanobind/nanobind.h>

#include "../machines/gpu_gather.hpp"

namespace nb = nanobind;

void bind_gpu(nb::module_& m) {
  m.def(
      "gpu_missing_sectors",
      [](uintptr_t rowptr, uintptr_t col, int64_t rows, int64_t resident, int32_t block_warps, int32_t sectors,
         int32_t tile, int32_t lanes, int32_t passes, int64_t sets, int32_t ways) {
        return onehop::gpu::missing_sectors(
            {reinterpret_cast<const int64_t*>(rowptr), reinterpret_cast<const int32_t*>(col), rows},
            {resident, block_warps, sectors, tile, lanes, passes}, sets, ways);
      },
      nb::call_guard<nb::gil_scoped_release>());
}
