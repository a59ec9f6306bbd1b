// Softmax over edges, and its gradient.
#include "arguments.hpp"
#include "calls.hpp"

namespace {

struct EdgeSoftmaxCall : onehop::EdgeSoftmaxArgs {
  int64_t edges_per_item;
};

template <auto kKernel>
void run(const EdgeSoftmaxCall& call, const onehop::Csr& csr) {
  EdgeSoftmaxCall args = call;
  args.csr = &csr;
  args.work = &csr.work(call.edges_per_item);
  const auto slots = slots_for(*args.work, 2 * args.heads * acc_bytes(args.dtype));
  args.slots = slots.data();
  (onehop::kernels().*kKernel)(args);
}

}  // namespace

void bind_edge_softmax(nanobind::module_& m) {
  Call<EdgeSoftmaxCall>(m, "EdgeSoftmaxCall")
      .field<&EdgeSoftmaxCall::dtype>("dtype")
      .field<&EdgeSoftmaxCall::threads>("threads")
      .field<&EdgeSoftmaxCall::edges_per_item>("edges_per_item")
      .field<&EdgeSoftmaxCall::heads>("heads")
      .field<&EdgeSoftmaxCall::scores>("scores")
      .field<&EdgeSoftmaxCall::grad>("grad")
      .field<&EdgeSoftmaxCall::out>("out");
  m.def("edge_softmax", &run<&onehop::KernelTable::edge_softmax>, Released());
  m.def("edge_softmax_grad", &run<&onehop::KernelTable::edge_softmax_grad>, Released());
}
