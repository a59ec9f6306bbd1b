// Sum, mean, max and min over rows, and the gradients of max and min.
#include "arguments.hpp"
#include "calls.hpp"

namespace nb = nanobind;

namespace {

struct AggregateCall : onehop::AggregateArgs {
  int64_t edges_per_item;
  int64_t heads;               // each has a `width` of columns, beside the one before, and a weight of its own
  int64_t weight_head_stride;  // between a head's weights and the next one's
};

struct ExtremumGradCall : onehop::ExtremumGradArgs {
  int64_t edges_per_item;
};

void aggregate(const AggregateCall& call, const onehop::Csr& csr) {
  AggregateCall args = call;
  const int64_t acc = acc_bytes(args.dtype), item = bytes_of(args.dtype);
  args.csr = &csr;
  args.work = &csr.work(call.edges_per_item);
  const auto slots = slots_for(*args.work, args.width * acc * (args.ties != nullptr ? 2 : 1));
  args.slots = slots.data();
  for (int64_t head = 0; head < call.heads; ++head) {
    onehop::kernels().aggregate(args);
    args.x = moved(args.x, args.width * item);
    args.out = moved(args.out, args.width * (args.out_is_acc ? acc : item));
    args.weight = moved(args.weight, call.weight_head_stride * acc);
  }
}

template <auto kKernel>
void extremum_grad(const ExtremumGradCall& call, const onehop::Csr& csr) {
  ExtremumGradCall args = call;
  args.csr = &csr;
  args.work = &csr.work(call.edges_per_item);
  const auto slots = slots_for(*args.work, args.width * acc_bytes(args.dtype));
  args.slots = slots.data();
  (onehop::kernels().*kKernel)(args);
}

}  // namespace

void bind_aggregate(nb::module_& m) {
  Call<AggregateCall>(m, "AggregateCall")
      .field<&AggregateCall::reduce>("reduce")
      .field<&AggregateCall::dtype>("dtype")
      .field<&AggregateCall::out_is_acc>("out_is_acc")
      .field<&AggregateCall::threads>("threads")
      .field<&AggregateCall::prefetch>("prefetch")
      .field<&AggregateCall::keeps_near>("keeps_near")
      .field<&AggregateCall::edges_per_item>("edges_per_item")
      .field<&AggregateCall::column_tile>("column_tile")
      .field<&AggregateCall::register_block>("register_block")
      .field<&AggregateCall::nontemporal>("nontemporal")
      .field<&AggregateCall::generated>("generated")
      .field<&AggregateCall::heads>("heads")
      .field<&AggregateCall::width>("width")
      .field<&AggregateCall::x>("x")
      .field<&AggregateCall::x_stride>("x_stride")
      .field<&AggregateCall::weight>("weight")
      .field<&AggregateCall::weight_stride>("weight_stride")
      .field<&AggregateCall::weight_head_stride>("weight_head_stride")
      .field<&AggregateCall::weight_in_graph_order>("weight_in_graph_order")
      .field<&AggregateCall::weight_adds>("weight_adds")
      .field<&AggregateCall::col_scale>("col_scale")
      .field<&AggregateCall::row_scale>("row_scale")
      .field<&AggregateCall::out>("out")
      .field<&AggregateCall::out_stride>("out_stride")
      .field<&AggregateCall::ties>("ties");
  m.def("aggregate", &aggregate, Released());

  Call<ExtremumGradCall>(m, "ExtremumGradCall")
      .field<&ExtremumGradCall::dtype>("dtype")
      .field<&ExtremumGradCall::extremum_is_acc>("extremum_is_acc")
      .field<&ExtremumGradCall::threads>("threads")
      .field<&ExtremumGradCall::prefetch>("prefetch")
      .field<&ExtremumGradCall::edges_per_item>("edges_per_item")
      .field<&ExtremumGradCall::width>("width")
      .field<&ExtremumGradCall::x>("x")
      .field<&ExtremumGradCall::x_stride>("x_stride")
      .field<&ExtremumGradCall::extremum>("extremum")
      .field<&ExtremumGradCall::extremum_stride>("extremum_stride")
      .field<&ExtremumGradCall::share>("share")
      .field<&ExtremumGradCall::weight>("weight")
      .field<&ExtremumGradCall::weight_stride>("weight_stride")
      .field<&ExtremumGradCall::weight_adds>("weight_adds")
      .field<&ExtremumGradCall::out>("out");
  m.def("extremum_grad_source", &extremum_grad<&onehop::KernelTable::extremum_grad_source>, Released());
  m.def("extremum_grad_weight", &extremum_grad<&onehop::KernelTable::extremum_grad_weight>, Released());
}
