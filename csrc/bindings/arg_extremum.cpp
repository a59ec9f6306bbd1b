// Max and min with the winner of every entry, and the gradient that goes to the winners.
#include "arguments.hpp"

void bind_arg_extremum(nanobind::module_& m) {
  m.def(
      "arg_extremum",
      [](const onehop::Csr& csr, int dtype, bool minimum, bool last, int threads, int prefetch, int64_t edges_per_item,
         int64_t width, Address x, int64_t x_stride, Address weight, int64_t weight_stride, Address out,
         int64_t out_stride, Address winner, int64_t winner_stride) {
        const auto& work = csr.work(edges_per_item);
        const auto slots = slots_for(work, width * acc_bytes(dtype));
        const auto winner_slots = slots_for(work, width * static_cast<int64_t>(sizeof(int32_t)));
        onehop::kernels().arg_extremum({&csr, &work, static_cast<onehop::DType>(dtype), minimum, last, threads,
                                        prefetch, width, at(x), x_stride, at(weight), weight_stride, at(out),
                                        out_stride, static_cast<int32_t*>(at(winner)), winner_stride, slots.data(),
                                        winner_slots.as<int32_t>()});
      },
      Released());
  const auto gradient = [](void (*onehop::KernelTable::*kernel)(const onehop::ArgExtremumGradArgs&)) {
    return [kernel](const onehop::Csr& csr, int dtype, int threads, int64_t width, Address grad, int64_t grad_stride,
                    Address winner, int64_t winner_stride, Address x, int64_t x_stride, Address weight,
                    int64_t weight_stride, Address out, int64_t out_stride) {
      (onehop::kernels().*kernel)({&csr, static_cast<onehop::DType>(dtype), threads, width, at(grad), grad_stride,
                                   static_cast<const int32_t*>(at(winner)), winner_stride, at(x), x_stride, at(weight),
                                   weight_stride, at(out), out_stride});
    };
  };
  m.def("arg_extremum_grad_source", gradient(&onehop::KernelTable::arg_extremum_grad_source), Released());
  m.def("arg_extremum_grad_weight", gradient(&onehop::KernelTable::arg_extremum_grad_weight), Released());
}
