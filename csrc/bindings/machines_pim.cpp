// Near-bank machines: cutting a matrix, and computing through the cut.
#include <nanobind/nanobind.h>
#include <nanobind/stl/vector.h>

#include <new>
#include <stdexcept>
#include <vector>

#include "pim_execute.hpp"
#include "pim_partition.hpp"

namespace nb = nanobind;
using namespace nb::literals;
using namespace onehop::pim;
using Address = uintptr_t;  // of an array's first element; 0 = omitted
using Released = nb::call_guard<nb::gil_scoped_release>;

namespace {

template <class T>
T* at(Address address) {
  return reinterpret_cast<T*>(address);
}

void count(Address rowptr, Address col, int64_t rows, Address part_of, int parts, int threads, Address positions,
           Address filled) {
  count_parts(at<int64_t>(rowptr), at<int32_t>(col), rows, at<uint16_t>(part_of), parts, threads,
              at<int64_t>(positions), at<int32_t>(filled));
}

void fill(Address rowptr, Address col, int64_t rows, Address part_of, int parts, Address first_column, int threads,
          Address positions, Address part_col, Address origin) {
  fill_parts(at<int64_t>(rowptr), at<int32_t>(col), rows, at<uint16_t>(part_of), parts, at<int32_t>(first_column),
             threads, at<int64_t>(positions), at<int32_t>(part_col), at<int64_t>(origin));
}

void count_hubs(Address col, Address marks, Address begins, Address ends, int64_t count, int threads, Address out) {
  count_marked(at<int32_t>(col), at<uint8_t>(marks), at<int64_t>(begins), at<int64_t>(ends), count, threads,
               at<int64_t>(out));
}

void cut(Address positions, Address filled, int64_t rows, int cores, int tasklets, bool coo, bool cores_by_edge,
         bool threads_by_edge, int64_t row_granule, Address core_rows, Address tasklet_table) {
  cut_part(at<int64_t>(positions), at<int32_t>(filled), rows,
           {cores, tasklets, coo, cores_by_edge, threads_by_edge, row_granule}, at<int64_t>(core_rows),
           at<int64_t>(tasklet_table));
}

void run(int x_type, int sum_type, Address positions, Address col, Address weight, Address x, int64_t columns,
         int64_t x_stride, Address out, int64_t out_stride, const std::vector<Address>& core_rows,
         const std::vector<Address>& tasklet_tables, const std::vector<int>& cores, int tasklets, Address chunks,
         int64_t num_chunks, int threads) {
  std::vector<Cores> cuts;
  for (size_t i = 0; i < cores.size(); ++i) {
    cuts.push_back({at<int64_t>(core_rows[i]), at<int64_t>(tasklet_tables[i]), cores[i], tasklets});
  }
  const Part part{at<int64_t>(positions), at<int32_t>(col), at<void>(weight), at<void>(x), columns, x_stride,
                  at<void>(out),          out_stride,       cuts.data()};
  if (!execute(static_cast<Number>(x_type), static_cast<Number>(sum_type), part, at<Chunk>(chunks), num_chunks,
               threads)) {
    throw std::bad_alloc();
  }
}

}  // namespace

void bind_pim(nb::module_& m) {
  m.def("pim_count_parts", &count, "rowptr"_a, "col"_a, "rows"_a, "part_of"_a, "parts"_a, "threads"_a, "positions"_a,
        "filled"_a, Released());
  m.def("pim_fill_parts", &fill, "rowptr"_a, "col"_a, "rows"_a, "part_of"_a, "parts"_a, "first_column"_a, "threads"_a,
        "positions"_a, "part_col"_a, "origin"_a, Released());
  m.def("pim_count_marked", &count_hubs, "col"_a, "marks"_a, "begins"_a, "ends"_a, "count"_a, "threads"_a, "out"_a,
        Released());
  m.def("pim_cut_part", &cut, "positions"_a, "filled"_a, "rows"_a, "cores"_a, "tasklets"_a, "coo"_a, "cores_by_edge"_a,
        "threads_by_edge"_a, "row_granule"_a, "core_rows"_a, "tasklet_table"_a, Released());
  m.def("pim_execute", &run, "x_type"_a, "sum_type"_a, "positions"_a, "col"_a, "weight"_a, "x"_a, "columns"_a,
        "x_stride"_a, "out"_a, "out_stride"_a, "core_rows"_a, "tasklet_tables"_a, "cores"_a, "tasklets"_a, "chunks"_a,
        "num_chunks"_a, "threads"_a, Released());
  m.attr("PIM_MOST_COLUMNS") = kMostColumns;
}
