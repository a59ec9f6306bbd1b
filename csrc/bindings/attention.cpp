// Attention: a call's arguments are set field by field, then passed to one of the four kernels.
#include "arguments.hpp"

namespace nb = nanobind;

namespace {

using onehop::AttendArgs;

template <auto kField>
void address_field(nb::class_<AttendArgs>& call, const char* name) {
  call.def_prop_rw(
      name, [](const AttendArgs& self) { return reinterpret_cast<Address>(self.*kField); },
      [](AttendArgs& self, Address address) { self.*kField = at(address); });
}

template <auto kField>
void number_field(nb::class_<AttendArgs>& call, const char* name) {
  call.def_rw(name, kField);
}

template <auto kKernel>
void kernel(nb::module_& m, const char* name) {
  m.def(
      name,
      [](const AttendArgs& call, const onehop::Csr& csr, int rule, int dtype, int64_t edges_per_item) {
        AttendArgs args = call;
        args.csr = &csr;
        args.work = &csr.work(edges_per_item);
        args.rule = static_cast<onehop::ScoreRule>(rule);
        args.dtype = static_cast<onehop::DType>(dtype);
        const int64_t width = onehop::attend_slot_width(args.heads, args.key_width, args.value_width);
        const auto slots = slots_for(*args.work, width * acc_bytes(dtype));
        args.slots = slots.data();
        (onehop::kernels().*kKernel)(args);
      },
      Released());
}

}  // namespace

void bind_attention(nb::module_& m) {
  nb::class_<AttendArgs> call(m, "AttendCall");
  call.def("__init__", [](AttendArgs* self) { new (self) AttendArgs{}; });
  number_field<&AttendArgs::threads>(call, "threads");
  number_field<&AttendArgs::prefetch>(call, "prefetch");
  number_field<&AttendArgs::heads>(call, "heads");
  number_field<&AttendArgs::key_width>(call, "key_width");
  number_field<&AttendArgs::value_width>(call, "value_width");
  number_field<&AttendArgs::value_stride>(call, "value_stride");
  number_field<&AttendArgs::key_stride>(call, "key_stride");
  number_field<&AttendArgs::query_stride>(call, "query_stride");
  number_field<&AttendArgs::edge_stride>(call, "edge_stride");
  number_field<&AttendArgs::edge_width>(call, "edge_width");
  number_field<&AttendArgs::factor>(call, "factor");
  number_field<&AttendArgs::dropout>(call, "dropout");
  number_field<&AttendArgs::seed>(call, "seed");
  number_field<&AttendArgs::grad_stride>(call, "grad_stride");
  number_field<&AttendArgs::weights_masked>(call, "weights_masked");
  address_field<&AttendArgs::value>(call, "value");
  address_field<&AttendArgs::key>(call, "key");
  address_field<&AttendArgs::query>(call, "query");
  address_field<&AttendArgs::att>(call, "att");
  address_field<&AttendArgs::edge>(call, "edge");
  address_field<&AttendArgs::edge_weight>(call, "edge_weight");
  address_field<&AttendArgs::mask>(call, "mask");
  address_field<&AttendArgs::out>(call, "out");
  address_field<&AttendArgs::softmax>(call, "softmax");
  address_field<&AttendArgs::weights>(call, "weights");
  address_field<&AttendArgs::grad>(call, "grad");
  address_field<&AttendArgs::grad_weights>(call, "grad_weights");
  address_field<&AttendArgs::weights_product>(call, "weights_product");
  address_field<&AttendArgs::statistics>(call, "statistics");
  address_field<&AttendArgs::grad_query>(call, "grad_query");
  address_field<&AttendArgs::grad_att>(call, "grad_att");
  address_field<&AttendArgs::grad_edge>(call, "grad_edge");
  address_field<&AttendArgs::grad_edge_weight>(call, "grad_edge_weight");
  address_field<&AttendArgs::grad_value>(call, "grad_value");
  address_field<&AttendArgs::grad_key>(call, "grad_key");
  kernel<&onehop::KernelTable::attend>(m, "attend");
  kernel<&onehop::KernelTable::attend_weights>(m, "attend_weights");
  kernel<&onehop::KernelTable::attend_grad_dst>(m, "attend_grad_dst");
  kernel<&onehop::KernelTable::attend_grad_src>(m, "attend_grad_src");
}
