// Attention, its weights, and the two sweeps of its gradient: one structure for all four.
#include "arguments.hpp"
#include "calls.hpp"

namespace {

struct AttentionCall : onehop::AttendArgs {
  int64_t edges_per_item;
};

template <auto kKernel>
void run(const AttentionCall& call, const onehop::Csr& csr) {
  AttentionCall args = call;
  args.csr = &csr;
  args.work = &csr.work(call.edges_per_item);
  const int64_t width = onehop::attend_slot_width(args.heads, args.key_width, args.value_width);
  const auto slots = slots_for(*args.work, width * acc_bytes(args.dtype));
  args.slots = slots.data();
  (onehop::kernels().*kKernel)(args);
}

}  // namespace

void bind_attention(nanobind::module_& m) {
  Call<AttentionCall>(m, "AttentionCall")
      .field<&AttentionCall::rule>("rule")
      .field<&AttentionCall::dtype>("dtype")
      .field<&AttentionCall::threads>("threads")
      .field<&AttentionCall::prefetch>("prefetch")
      .field<&AttentionCall::edges_per_item>("edges_per_item")
      .field<&AttentionCall::heads>("heads")
      .field<&AttentionCall::key_width>("key_width")
      .field<&AttentionCall::value_width>("value_width")
      .field<&AttentionCall::value>("value")
      .field<&AttentionCall::value_stride>("value_stride")
      .field<&AttentionCall::key>("key")
      .field<&AttentionCall::key_stride>("key_stride")
      .field<&AttentionCall::query>("query")
      .field<&AttentionCall::query_stride>("query_stride")
      .field<&AttentionCall::att>("att")
      .field<&AttentionCall::edge>("edge")
      .field<&AttentionCall::edge_stride>("edge_stride")
      .field<&AttentionCall::edge_width>("edge_width")
      .field<&AttentionCall::edge_weight>("edge_weight")
      .field<&AttentionCall::mask>("mask")
      .field<&AttentionCall::factor>("factor")
      .field<&AttentionCall::dropout>("dropout")
      .field<&AttentionCall::seed>("seed")
      .field<&AttentionCall::out>("out")
      .field<&AttentionCall::softmax>("softmax")
      .field<&AttentionCall::weights>("weights")
      .field<&AttentionCall::grad>("grad")
      .field<&AttentionCall::grad_stride>("grad_stride")
      .field<&AttentionCall::grad_weights>("grad_weights")
      .field<&AttentionCall::weights_product>("weights_product")
      .field<&AttentionCall::weights_masked>("weights_masked")
      .field<&AttentionCall::statistics>("statistics")
      .field<&AttentionCall::grad_query>("grad_query")
      .field<&AttentionCall::grad_att>("grad_att")
      .field<&AttentionCall::grad_edge>("grad_edge")
      .field<&AttentionCall::grad_edge_weight>("grad_edge_weight")
      .field<&AttentionCall::grad_value>("grad_value")
      .field<&AttentionCall::grad_key>("grad_key");
  m.def("attention", &run<&onehop::KernelTable::attend>, Released());
  m.def("attention_weights", &run<&onehop::KernelTable::attend_weights>, Released());
  m.def("attention_grad_dst", &run<&onehop::KernelTable::attend_grad_dst>, Released());
  m.def("attention_grad_src", &run<&onehop::KernelTable::attend_grad_src>, Released());
}
