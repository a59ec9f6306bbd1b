// The GPU's loop. Addresses come from onehop.machines.gpu, which has checked every array.
#include <nanobind/nanobind.h>

#include "../machines/gpu_gather.hpp"
#include "calls.hpp"

namespace nb = nanobind;

void bind_gpu(nb::module_& m) {
  using onehop::gpu::Kernel;
  Call<Kernel>(m, "GpuKernel")
      .field<&Kernel::resident>("resident")
      .field<&Kernel::block_warps>("block_warps")
      .field<&Kernel::sectors>("sectors")
      .field<&Kernel::tile>("tile")
      .field<&Kernel::lanes>("lanes")
      .field<&Kernel::passes>("passes");
  m.def(
      "gpu_missing_sectors",
      [](Address rowptr, Address col, int64_t rows, const Kernel& kernel, int64_t sets, int32_t ways) {
        return onehop::gpu::missing_sectors({at<const int64_t>(rowptr), at<const int32_t>(col), rows}, kernel, sets,
                                            ways);
      },
      Released());
}
