// Near-bank machines: cutting a matrix, and computing through the cut.
#include <nanobind/nanobind.h>
#include <nanobind/stl/vector.h>

#include <new>
#include <stdexcept>
#include <vector>

#include "calls.hpp"
#include "pim_execute.hpp"
#include "pim_partition.hpp"

namespace nb = nanobind;
using namespace nb::literals;
using namespace onehop::pim;

namespace {

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

void cut(const Cut& cut, Address positions, Address filled, int64_t rows, Address core_rows, Address tasklet_table) {
  cut_part(at<int64_t>(positions), at<int32_t>(filled), rows, cut, at<int64_t>(core_rows), at<int64_t>(tasklet_table));
}

void run(int x_type, int sum_type, Part part, const std::vector<Cores>& cuts, Address chunks, int64_t num_chunks,
         int threads) {
  part.cuts = cuts.data();
  if (!execute(static_cast<Number>(x_type), static_cast<Number>(sum_type), part, at<Chunk>(chunks), num_chunks,
               threads)) {
    throw std::bad_alloc();
  }
}

}  // namespace

void bind_pim(nb::module_& m) {
  m.def("pim_count_parts", &count, "rowptr"_a, "col"_a, "rows"_a, "part_of"_a, "parts"_a, "threads"_a, "positions"_a,
        "filled"_a, Released());
  m.def("pim_fill_parts", &fill, nb::kw_only(), "rowptr"_a, "col"_a, "rows"_a, "part_of"_a, "parts"_a, "first_column"_a,
        "threads"_a, "positions"_a, "part_col"_a, "origin"_a, Released());
  m.def("pim_count_marked", &count_hubs, "col"_a, "marks"_a, "begins"_a, "ends"_a, "count"_a, "threads"_a, "out"_a,
        Released());
  Call<Cut>(m, "PimCut")
      .field<&Cut::cores>("cores")
      .field<&Cut::tasklets>("tasklets")
      .field<&Cut::coo>("coo")
      .field<&Cut::cores_by_edge>("cores_by_edge")
      .field<&Cut::threads_by_edge>("threads_by_edge")
      .field<&Cut::row_granule>("row_granule");
  m.def("pim_cut_part", &cut, "cut"_a, "positions"_a, "filled"_a, "rows"_a, "core_rows"_a, "tasklet_table"_a,
        Released());
  Call<Cores>(m, "PimCores")
      .field<&Cores::core_rows>("core_rows")
      .field<&Cores::tasklets>("tasklets")
      .field<&Cores::cores>("cores")
      .field<&Cores::threads>("threads");
  Call<Part>(m, "PimPart")
      .field<&Part::positions>("positions")
      .field<&Part::col>("col")
      .field<&Part::weight>("weight")
      .field<&Part::x>("x")
      .field<&Part::columns>("columns")
      .field<&Part::x_stride>("x_stride")
      .field<&Part::out>("out")
      .field<&Part::out_stride>("out_stride");
  m.def("pim_execute", &run, "x_type"_a, "sum_type"_a, "part"_a, "cuts"_a, "chunks"_a, "num_chunks"_a, "threads"_a,
        Released());
  m.attr("PIM_MOST_COLUMNS") = kMostColumns;
}
