// Rows by their numbers.
#include "arguments.hpp"

void bind_rows(nanobind::module_& m) {
  const auto bound = [](void (*onehop::KernelTable::*kernel)(const onehop::RowsArgs&)) {
    return [kernel](int dtype, int threads, int prefetch, Address index, int64_t count, bool wide_index,
                    int64_t row_bytes, Address matrix, int64_t stride, Address rows) {
      (onehop::kernels().*kernel)({threads, prefetch, static_cast<onehop::DType>(dtype), count, at(index), wide_index,
                                   row_bytes, at(matrix), stride, at(rows)});
    };
  };
  m.def("copy_rows", bound(&onehop::KernelTable::copy_rows), Released());
  m.def("add_rows", bound(&onehop::KernelTable::add_rows), Released());
}
