// Rows by their numbers, rows of chosen graphs, and rows under a mask.
#include "arguments.hpp"
#include "calls.hpp"
#include "onehop/joining.hpp"
#include "onehop/mapped_rows.hpp"
#include "onehop/masked.hpp"

namespace {

template <auto kKernel>
auto run(const onehop::RowsArgs& call) {
  return (onehop::kernels().*kKernel)(call);
}

}  // namespace

void bind_rows(nanobind::module_& m) {
  using onehop::ChosenGraphs;
  using onehop::GraphRows;
  using onehop::MaskedRows;
  using onehop::RowsArgs;
  Call<RowsArgs>(m, "RowsCall")
      .field<&RowsArgs::dtype>("dtype")
      .field<&RowsArgs::threads>("threads")
      .field<&RowsArgs::prefetch>("prefetch")
      .field<&RowsArgs::nontemporal>("nontemporal")
      .field<&RowsArgs::index>("index")
      .field<&RowsArgs::count>("count")
      .field<&RowsArgs::wide_index>("wide_index")
      .field<&RowsArgs::row_bytes>("row_bytes")
      .field<&RowsArgs::matrix>("matrix")
      .field<&RowsArgs::stride>("stride")
      .field<&RowsArgs::blocks>("blocks")
      .field<&RowsArgs::matrix_rows>("matrix_rows")
      .field<&RowsArgs::rows>("rows")
      .field<&RowsArgs::sources>("sources")
      .field<&RowsArgs::weights>("weights")
      .field<&RowsArgs::sources_rows>("sources_rows");
  m.def("copy_rows", &run<&onehop::KernelTable::copy_rows>, Released());
  m.def("request_rows", &onehop::request_rows, Released());
  m.def("add_rows", &run<&onehop::KernelTable::add_rows>, Released());
  Call<ChosenGraphs>(m, "ChosenGraphs").field<&ChosenGraphs::numbers>("numbers").field<&ChosenGraphs::count>("count");
  Call<GraphRows>(m, "GraphRows")
      .field<&GraphRows::values>("values")
      .field<&GraphRows::slices>("slices")
      .field<&GraphRows::blocks>("blocks")
      .field<&GraphRows::rows>("rows")
      .field<&GraphRows::row_bytes>("row_bytes");
  m.def("join_bounds", [](const ChosenGraphs& chosen, Address slices, Address bounds) {
    return onehop::join_bounds(chosen, static_cast<const int64_t*>(at(slices)), static_cast<int64_t*>(at(bounds)));
  });
  m.def(
      "join_rows",
      [](const ChosenGraphs& chosen, const GraphRows& all, Address bounds, Address added, Address out) {
        return onehop::join_rows(chosen, all, static_cast<const int64_t*>(at(bounds)),
                                 static_cast<const int64_t*>(at(added)), at(out));
      },
      Released());
  Call<MaskedRows>(m, "MaskedRows")
      .field<&MaskedRows::mask>("mask")
      .field<&MaskedRows::rows>("rows")
      .field<&MaskedRows::blocks>("blocks")
      .field<&MaskedRows::row_bytes>("row_bytes")
      .field<&MaskedRows::taken>("taken")
      .field<&MaskedRows::threads>("threads");
  m.def("count_true", &onehop::count_true, Released());
  m.def(
      "take_masked",
      [](const MaskedRows& masked, Address from, Address to) { return onehop::take_masked(masked, at(from), at(to)); },
      Released());
  m.def(
      "put_masked",
      [](const MaskedRows& masked, Address from, Address to) { return onehop::put_masked(masked, at(from), at(to)); },
      Released());
  m.def("write_graphs", [](Address bounds, int64_t count, Address graphs) {
    onehop::write_graphs(static_cast<const int64_t*>(at(bounds)), count, static_cast<int64_t*>(at(graphs)));
  });
}
