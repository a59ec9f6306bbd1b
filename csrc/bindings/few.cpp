// Layers over few edges, without a graph.
#include "arguments.hpp"
#include "calls.hpp"
#include "onehop/few_edges.hpp"

namespace {

// Runs with as much scratch memory as any kind takes.
template <auto kKernel>
bool run(const onehop::FewArgs& call) {
  onehop::FewArgs args = call;
  const int64_t numbers = (2 * args.targets + args.edges) * args.heads + args.targets * args.heads * args.columns;
  const onehop::Block scratch(numbers * acc_bytes(args.dtype));
  if (!scratch) throw std::bad_alloc();
  args.scratch = scratch.data();
  return (onehop::kernels().*kKernel)(args);
}

onehop::FewList list_of(Address numbers, int64_t row_stride, int64_t edge_stride, int64_t edges) {
  return {static_cast<const int64_t*>(at(numbers)), row_stride, edge_stride, edges};
}

}  // namespace

void bind_few(nanobind::module_& m) {
  using onehop::FewArgs;
  using onehop::FewNorm;
  Call<FewArgs>(m, "FewCall")
      .field<&FewArgs::dtype>("dtype")
      .field<&FewArgs::kind>("kind")
      .field<&FewArgs::edges>("edges")
      .field<&FewArgs::sources>("sources")
      .field<&FewArgs::targets>("targets")
      .field<&FewArgs::source_ends>("source_ends")
      .field<&FewArgs::target_ends>("target_ends")
      .field<&FewArgs::stride>("stride")
      .field<&FewArgs::heads>("heads")
      .field<&FewArgs::columns>("columns")
      .field<&FewArgs::factor>("factor")
      .field<&FewArgs::values>("values")
      .field<&FewArgs::weight>("weight")
      .field<&FewArgs::of_source>("of_source")
      .field<&FewArgs::of_target>("of_target")
      .field<&FewArgs::att>("att")
      .field<&FewArgs::out>("out")
      .field<&FewArgs::alpha>("alpha")
      .field<&FewArgs::grad>("grad")
      .field<&FewArgs::grad_values>("grad_values")
      .field<&FewArgs::grad_weight>("grad_weight")
      .field<&FewArgs::grad_of_source>("grad_of_source")
      .field<&FewArgs::grad_of_target>("grad_of_target")
      .field<&FewArgs::grad_att>("grad_att");
  // With Python's lock: they take some microseconds, and releasing it one.
  m.def("few_edges", &run<&onehop::KernelTable::few_edges>);
  m.def("few_edges_grad", &run<&onehop::KernelTable::few_edges_grad>);
  m.def("count_unlooped", [](Address numbers, int64_t row_stride, int64_t edge_stride, int64_t edges) {
    return onehop::count_unlooped(list_of(numbers, row_stride, edge_stride, edges));
  });
  m.def("write_loops", [](Address numbers, int64_t row_stride, int64_t edge_stride, int64_t edges, bool removes,
                          int64_t nodes, int64_t most, Address out) {
    return onehop::write_loops(list_of(numbers, row_stride, edge_stride, edges), removes, nodes, most,
                               static_cast<int64_t*>(at(out)));
  });
  m.def("few_norm", [](int dtype, Address numbers, int64_t row_stride, int64_t edge_stride, int64_t edges,
                       Address weight, int64_t nodes, int64_t loops, double fill, int counted, Address edge_index,
                       int64_t count, Address degrees, Address out) {
    const auto list = list_of(numbers, row_stride, edge_stride, edges);
    return onehop::few_norm({static_cast<onehop::DType>(dtype), nodes, count, static_cast<int64_t*>(at(edge_index)),
                             counted, &list, at(weight), loops, fill, at(degrees), at(out)});
  });
}
