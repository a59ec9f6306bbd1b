// Rows by their numbers.
#include "calls.hpp"
#include "onehop/mapped_rows.hpp"

namespace {

template <auto kKernel>
void run(const onehop::RowsArgs& call) {
  (onehop::kernels().*kKernel)(call);
}

}  // namespace

void bind_rows(nanobind::module_& m) {
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
      .field<&RowsArgs::rows>("rows");
  m.def("copy_rows", &run<&onehop::KernelTable::copy_rows>, Released());
  m.def("request_rows", &onehop::request_rows, Released());
  m.def("add_rows", &run<&onehop::KernelTable::add_rows>, Released());
}
