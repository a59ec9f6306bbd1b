// Max and min with the winner of every entry, and the gradient that goes to the winners.
#include "arguments.hpp"
#include "calls.hpp"

namespace {

// Heads have `width` columns each, one after the other, and weights `weight_head_stride` apart.
struct ArgExtremumCall : onehop::ArgExtremumArgs {
  int64_t edges_per_item;
  int64_t heads, weight_head_stride;
};

struct ArgExtremumGradCall : onehop::ArgExtremumGradArgs {
  int64_t heads, weight_head_stride;
  int64_t out_head_stride;
};

void arg_extremum(const ArgExtremumCall& call, const onehop::Csr& csr) {
  ArgExtremumCall args = call;
  const int64_t item = bytes_of(args.dtype), index = sizeof(int32_t);
  args.csr = &csr;
  args.work = &csr.work(call.edges_per_item);
  const auto slots = slots_for(*args.work, args.width * item);
  const auto winner_slots = slots_for(*args.work, args.width * index);
  args.slots = slots.data();
  args.winner_slots = winner_slots.as<int32_t>();
  for (int64_t head = 0; head < call.heads; ++head) {
    onehop::kernels().arg_extremum(args);
    args.x = moved(args.x, args.width * item);
    args.weight = moved(args.weight, call.weight_head_stride * item);
    args.out = moved(args.out, args.width * item);
    args.winner = moved(args.winner, args.width * index);
  }
}

template <auto kKernel>
void arg_extremum_grad(const ArgExtremumGradCall& call, const onehop::Csr& csr) {
  ArgExtremumGradCall args = call;
  const int64_t item = bytes_of(args.dtype), index = sizeof(int32_t);
  args.csr = &csr;
  for (int64_t head = 0; head < call.heads; ++head) {
    (onehop::kernels().*kKernel)(args);
    args.grad = moved(args.grad, args.width * item);
    args.winner = moved(args.winner, args.width * index);
    args.x = moved(args.x, args.width * item);
    args.weight = moved(args.weight, call.weight_head_stride * item);
    args.out = moved(args.out, call.out_head_stride * item);
  }
}

}  // namespace

void bind_arg_extremum(nanobind::module_& m) {
  Call<ArgExtremumCall>(m, "ArgExtremumCall")
      .field<&ArgExtremumCall::dtype>("dtype")
      .field<&ArgExtremumCall::minimum>("minimum")
      .field<&ArgExtremumCall::last>("last")
      .field<&ArgExtremumCall::threads>("threads")
      .field<&ArgExtremumCall::prefetch>("prefetch")
      .field<&ArgExtremumCall::edges_per_item>("edges_per_item")
      .field<&ArgExtremumCall::heads>("heads")
      .field<&ArgExtremumCall::width>("width")
      .field<&ArgExtremumCall::x>("x")
      .field<&ArgExtremumCall::x_stride>("x_stride")
      .field<&ArgExtremumCall::weight>("weight")
      .field<&ArgExtremumCall::weight_stride>("weight_stride")
      .field<&ArgExtremumCall::weight_head_stride>("weight_head_stride")
      .field<&ArgExtremumCall::out>("out")
      .field<&ArgExtremumCall::out_stride>("out_stride")
      .field<&ArgExtremumCall::winner>("winner")
      .field<&ArgExtremumCall::winner_stride>("winner_stride");
  m.def("arg_extremum", &arg_extremum, Released());

  Call<ArgExtremumGradCall>(m, "ArgExtremumGradCall")
      .field<&ArgExtremumGradCall::dtype>("dtype")
      .field<&ArgExtremumGradCall::threads>("threads")
      .field<&ArgExtremumGradCall::heads>("heads")
      .field<&ArgExtremumGradCall::width>("width")
      .field<&ArgExtremumGradCall::grad>("grad")
      .field<&ArgExtremumGradCall::grad_stride>("grad_stride")
      .field<&ArgExtremumGradCall::winner>("winner")
      .field<&ArgExtremumGradCall::winner_stride>("winner_stride")
      .field<&ArgExtremumGradCall::x>("x")
      .field<&ArgExtremumGradCall::x_stride>("x_stride")
      .field<&ArgExtremumGradCall::weight>("weight")
      .field<&ArgExtremumGradCall::weight_stride>("weight_stride")
      .field<&ArgExtremumGradCall::weight_head_stride>("weight_head_stride")
      .field<&ArgExtremumGradCall::out>("out")
      .field<&ArgExtremumGradCall::out_stride>("out_stride")
      .field<&ArgExtremumGradCall::out_head_stride>("out_head_stride");
  m.def("arg_extremum_grad_source", &arg_extremum_grad<&onehop::KernelTable::arg_extremum_grad_source>, Released());
  m.def("arg_extremum_grad_weight", &arg_extremum_grad<&onehop::KernelTable::arg_extremum_grad_weight>, Released());
}
