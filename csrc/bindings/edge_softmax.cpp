// Softmax over edges, and its gradient.
#include "arguments.hpp"

void bind_edge_softmax(nanobind::module_& m) {
  m.def(
      "edge_softmax",
      [](const onehop::Csr& csr, int dtype, int threads, int64_t edges_per_item, int64_t heads, Address scores,
         Address out) {
        const auto& work = csr.work(edges_per_item);
        const auto slots = slots_for(work, 2 * heads * acc_bytes(dtype));
        onehop::kernels().edge_softmax({&csr, &work, static_cast<onehop::DType>(dtype), threads, heads, at(scores),
                                        nullptr, at(out), slots.data()});
      },
      Released());
  m.def(
      "edge_softmax_grad",
      [](const onehop::Csr& csr, int dtype, int threads, int64_t edges_per_item, int64_t heads, Address softmax,
         Address grad, Address out) {
        const auto& work = csr.work(edges_per_item);
        const auto slots = slots_for(work, heads * acc_bytes(dtype));
        onehop::kernels().edge_softmax_grad({&csr, &work, static_cast<onehop::DType>(dtype), threads, heads,
                                             at(softmax), at(grad), at(out), slots.data()});
      },
      Released());
}
