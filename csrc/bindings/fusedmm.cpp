// Sums over edges that are weighed by their two ends.
#include "arguments.hpp"
#include "calls.hpp"

namespace {

struct FusedmmCall : onehop::FusedmmArgs {
  int64_t edges_per_item;
};

void fusedmm(const FusedmmCall& call, const onehop::Csr& csr) {
  FusedmmCall args = call;
  args.csr = &csr;
  args.work = &csr.work(call.edges_per_item);
  const auto slots = slots_for(*args.work, args.width * acc_bytes(args.dtype));
  args.slots = slots.data();
  onehop::kernels().fusedmm(args);
}

}  // namespace

void bind_fusedmm(nanobind::module_& m) {
  Call<FusedmmCall>(m, "FusedmmCall")
      .field<&FusedmmCall::rule>("rule")
      .field<&FusedmmCall::dtype>("dtype")
      .field<&FusedmmCall::threads>("threads")
      .field<&FusedmmCall::prefetch>("prefetch")
      .field<&FusedmmCall::edges_per_item>("edges_per_item")
      .field<&FusedmmCall::factor>("factor")
      .field<&FusedmmCall::width>("width")
      .field<&FusedmmCall::row_vectors>("row_vectors")
      .field<&FusedmmCall::row_stride>("row_stride")
      .field<&FusedmmCall::col_vectors>("col_vectors")
      .field<&FusedmmCall::col_stride>("col_stride")
      .field<&FusedmmCall::out>("out");
  m.def("fusedmm", &fusedmm, Released());
}
