// Products of features and harmonics.
#include "onehop/tensor_product.hpp"

#include "arguments.hpp"
#include "calls.hpp"

namespace {

struct TensorProductCall : onehop::TensorProductArgs {
  int64_t edges_per_item;
};

TensorProductCall on(const TensorProductCall& call, const onehop::Csr& csr) {
  TensorProductCall args = call;
  args.csr = &csr;
  args.work = &csr.work(call.edges_per_item);
  return args;
}

void tensor_product(const TensorProductCall& call, const onehop::Csr& csr) {
  TensorProductCall args = on(call, csr);
  const auto slots = slots_for(*args.work, args.out_width * bytes_of(args.dtype));
  args.slots = slots.data();
  onehop::kernels().tensor_product(args);
}

void tensor_product_edges(const TensorProductCall& call, const onehop::Csr& csr) {
  TensorProductCall args = on(call, csr);
  const auto items = static_cast<int64_t>(args.work->items.size());
  const onehop::Block slots(args.sums_weights ? items * args.weights_width * bytes_of(args.dtype) : 0);
  if (!slots) throw std::bad_alloc();
  args.slots = slots.data();
  onehop::kernels().tensor_product_edges(args);
}

}  // namespace

void bind_tensor_product(nanobind::module_& m) {
  Call<TensorProductCall>(m, "TensorProductCall")
      .field<&TensorProductCall::dtype>("dtype")
      .field<&TensorProductCall::threads>("threads")
      .field<&TensorProductCall::edges_per_item>("edges_per_item")
      .field<&TensorProductCall::paths>("paths")
      .field<&TensorProductCall::path_count>("path_count")
      .field<&TensorProductCall::groups>("groups")
      .field<&TensorProductCall::pairs>("pairs")
      .field<&TensorProductCall::pair_count>("pair_count")
      .field<&TensorProductCall::term_columns>("term_columns")
      .field<&TensorProductCall::term_factors>("term_factors")
      .field<&TensorProductCall::x_width>("x_width")
      .field<&TensorProductCall::out_width>("out_width")
      .field<&TensorProductCall::harmonics_width>("harmonics_width")
      .field<&TensorProductCall::weights_width>("weights_width")
      .field<&TensorProductCall::x>("x")
      .field<&TensorProductCall::x_stride>("x_stride")
      .field<&TensorProductCall::harmonics>("harmonics")
      .field<&TensorProductCall::harmonics_stride>("harmonics_stride")
      .field<&TensorProductCall::weights>("weights")
      .field<&TensorProductCall::weights_stride>("weights_stride")
      .field<&TensorProductCall::out>("out")
      .field<&TensorProductCall::grad>("grad")
      .field<&TensorProductCall::grad_stride>("grad_stride")
      .field<&TensorProductCall::to_harmonics>("to_harmonics")
      .field<&TensorProductCall::to_weights>("to_weights")
      .field<&TensorProductCall::sums_weights>("sums_weights");
  m.def("tensor_product", &tensor_product, Released());
  m.def("tensor_product_edges", &tensor_product_edges, Released());
}
