// A dot product for every edge and head.
#include "arguments.hpp"
#include "calls.hpp"

namespace {

struct SddmmCall : onehop::SddmmArgs {
  int64_t edges_per_item;
  int64_t heads;
  int64_t row_head_stride, col_head_stride;  // between a head's columns and the next one's
};

void sddmm(const SddmmCall& call, const onehop::Csr& csr) {
  SddmmCall args = call;
  const int64_t item = bytes_of(args.dtype), out_item = args.out_is_acc ? acc_bytes(args.dtype) : item;
  args.csr = &csr;
  args.work = &csr.work(call.edges_per_item);
  for (int64_t head = 0; head < call.heads; ++head) {
    onehop::kernels().sddmm(args);
    args.row_vectors = moved(args.row_vectors, call.row_head_stride * item);
    args.col_vectors = moved(args.col_vectors, call.col_head_stride * item);
    args.out = moved(args.out, out_item);
  }
}

}  // namespace

void bind_sddmm(nanobind::module_& m) {
  Call<SddmmCall>(m, "SddmmCall")
      .field<&SddmmCall::dtype>("dtype")
      .field<&SddmmCall::out_is_acc>("out_is_acc")
      .field<&SddmmCall::threads>("threads")
      .field<&SddmmCall::prefetch>("prefetch")
      .field<&SddmmCall::edges_per_item>("edges_per_item")
      .field<&SddmmCall::heads>("heads")
      .field<&SddmmCall::width>("width")
      .field<&SddmmCall::row_vectors>("row_vectors")
      .field<&SddmmCall::row_stride>("row_stride")
      .field<&SddmmCall::row_head_stride>("row_head_stride")
      .field<&SddmmCall::col_vectors>("col_vectors")
      .field<&SddmmCall::col_stride>("col_stride")
      .field<&SddmmCall::col_head_stride>("col_head_stride")
      .field<&SddmmCall::out>("out")
      .field<&SddmmCall::out_stride>("out_stride");
  m.def("sddmm", &sddmm, Released());
}
