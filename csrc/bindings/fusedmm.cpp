// Sums over edges that are weighted by their two ends.
#include "arguments.hpp"

void bind_fusedmm(nanobind::module_& m) {
  m.def(
      "fusedmm",
      [](const onehop::Csr& csr, int rule, int dtype, int threads, int prefetch, int64_t edges_per_item, double factor,
         int64_t width, Address row_vectors, int64_t row_stride, Address col_vectors, int64_t col_stride, Address out) {
        const auto& work = csr.work(edges_per_item);
        const auto slots = slots_for(work, width * acc_bytes(dtype));
        onehop::kernels().fusedmm({&csr, &work, static_cast<onehop::PairRule>(rule), static_cast<onehop::DType>(dtype),
                                   threads, prefetch, factor, width, at(row_vectors), row_stride, at(col_vectors),
                                   col_stride, at(out), slots.data()});
      },
      Released());
}
