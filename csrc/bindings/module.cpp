// The extension module: checks nothing but what it must to stay in memory; the Python above checks the rest.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <stdexcept>

#include "arguments.hpp"
#include "onehop/csr.hpp"
#include "onehop/denormals.hpp"
#include "onehop/fingerprint.hpp"
#include "onehop/index_rows.hpp"
#include "onehop/kernels.hpp"
#include "onehop/parallel.hpp"
#include "onehop/process_memory.hpp"
#include "onehop/tensor_memory.hpp"
#include "onehop/turn.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

nb::dlpack::dtype dlpack_of(onehop::DType dtype) {
  using nb::dlpack::dtype_code;
  const auto code = dtype == onehop::DType::bfloat16 ? dtype_code::Bfloat : dtype_code::Float;
  return {static_cast<uint8_t>(code), static_cast<uint8_t>(8 * bytes_of(dtype)), 1};
}

// A tensor of this shape, in memory that goes back to the pool when the tensor dies.
nb::ndarray<nb::pytorch> pool_empty(const std::vector<size_t>& shape, int dtype_number) {
  const auto dtype = static_cast<onehop::DType>(dtype_number);
  int64_t bytes = bytes_of(dtype);
  for (const size_t extent : shape) {
    if (__builtin_mul_overflow(bytes, extent, &bytes)) throw std::bad_alloc();
  }
  auto block = std::make_unique<onehop::Block>(bytes);
  if (!*block) throw std::bad_alloc();
  void* data = block->data();
  nb::capsule owner(block.release(), [](void* p) noexcept { delete static_cast<onehop::Block*>(p); });
  return nb::ndarray<nb::pytorch>(data, shape.size(), shape.data(), owner, nullptr, dlpack_of(dtype));
}

// A view of one of a graph's arrays; the graph lives as long as the view.
template <class T>
nb::object view(nb::handle owner, const onehop::Block& block, int64_t length) {
  const size_t shape[1] = {static_cast<size_t>(length)};
  return nb::cast(nb::ndarray<nb::pytorch, T>(block.as<T>(), 1, shape, owner));
}

const onehop::Csr& csr_of(nb::handle self) { return nb::cast<const onehop::Csr&>(self); }

}  // namespace

NB_MODULE(_native, m) {
  // Graphs may live in globals until the interpreter is gone; that is no leak.
  nb::set_leak_warnings(false);
  m.doc() = "Kernels on raw pointers. Private: use the functions of onehop.";

  nb::class_<onehop::Csr>(m, "Csr")
      .def_ro("rows", &onehop::Csr::rows)
      .def_ro("cols", &onehop::Csr::cols)
      .def_ro("edges", &onehop::Csr::edges)
      .def_prop_ro("bytes", &onehop::Csr::bytes)
      .def_prop_ro("rowptr",
                   [](nb::handle self) { return view<int64_t>(self, csr_of(self).rowptr, csr_of(self).rows + 1); })
      .def_prop_ro("col", [](nb::handle self) { return view<int32_t>(self, csr_of(self).col, csr_of(self).edges); })
      .def_prop_ro("perm",
                   [](nb::handle self) -> nb::object {
                     const auto& csr = csr_of(self);
                     if (!csr.perm) return nb::none();
                     return csr.perm_is_wide ? view<int64_t>(self, csr.perm, csr.edges)
                                             : view<int32_t>(self, csr.perm, csr.edges);
                   })
      .def(
          "work_items",
          [](const onehop::Csr& csr, int64_t edges_per_item) {
            const auto& work = csr.work(edges_per_item);
            std::vector<std::vector<int64_t>> items;
            for (const auto& i : work.items) {
              items.push_back({i.row_begin, i.row_end, i.edge_begin, i.edge_end, i.head_slot, i.tail_slot});
            }
            return items;
          },
          "edges_per_item"_a)
      .def(
          "transpose",
          [](const onehop::Csr& csr, bool wide_perm, int threads) {
            auto result = onehop::transpose(csr, wide_perm, threads);
            if (result == nullptr) throw std::bad_alloc();
            return result;
          },
          "wide_perm"_a, "threads"_a, Released());

  // Returns (graph or None, what is wrong: 0 nothing, 1 a row, 2 a column is out of range, number of that edge).
  m.def(
      "csr_from_coo",
      [](Address row, Address col, int64_t row_stride, int64_t col_stride, int64_t edges, bool wide_index, int64_t rows,
         int64_t cols, bool wide_perm, int threads, int64_t loops) {
        onehop::BuildResult result;
        {
          nb::gil_scoped_release release;
          result = onehop::csr_from_coo({at(row), at(col), row_stride, col_stride, edges, wide_index, loops}, rows,
                                        cols, wide_perm, threads);
        }
        if (result.error == onehop::BuildError::out_of_memory) throw std::bad_alloc();
        return nb::make_tuple(result.csr, static_cast<int>(result.error), result.bad_edge);
      },
      nb::kw_only(), "row"_a, "col"_a, "row_stride"_a, "col_stride"_a, "edges"_a, "wide_index"_a, "rows"_a, "cols"_a,
      "wide_perm"_a, "threads"_a, "loops"_a = 0);

  // The same of rows that are compressed already.
  m.def(
      "csr_from_rows",
      [](Address rowptr, Address col, int64_t col_stride, bool wide_index, int64_t rows, int64_t cols, int threads) {
        onehop::BuildResult result;
        {
          nb::gil_scoped_release release;
          result = onehop::csr_from_rows({static_cast<const int64_t*>(at(rowptr)), at(col), col_stride, wide_index},
                                         rows, cols, threads);
        }
        if (result.error == onehop::BuildError::out_of_memory) throw std::bad_alloc();
        return nb::make_tuple(result.csr, static_cast<int>(result.error), result.bad_edge);
      },
      "rowptr"_a, "col"_a, "col_stride"_a, "wide_index"_a, "rows"_a, "cols"_a, "threads"_a);

  // An index as rows: the copy of it that is checked, then the graph.
  m.def(
      "narrow_index",
      [](Address index, int64_t stride, int64_t count, bool wide_index, int64_t rows, Address out, int threads) {
        return onehop::narrow_index({at(index), stride, count, wide_index}, rows, static_cast<int32_t*>(at(out)),
                                    threads);
      },
      "index"_a, "stride"_a, "count"_a, "wide_index"_a, "rows"_a, "out"_a, "threads"_a, Released());
  m.def(
      "csr_from_index",
      [](Address index, int64_t count, int64_t rows, int threads) {
        auto csr = onehop::csr_from_index(static_cast<const int32_t*>(at(index)), count, rows, threads);
        if (csr == nullptr) throw std::bad_alloc();
        return csr;
      },
      "index"_a, "count"_a, "rows"_a, "threads"_a, Released());

  bind_aggregate(m);
  bind_arg_extremum(m);
  bind_attention(m);
  bind_dropout(m);
  bind_edge_softmax(m);
  bind_edges(m);
  bind_generated(m);
  bind_few(m);
  bind_fusedmm(m);
  bind_holders(m);
  bind_integers(m);
  bind_message(m);
  bind_negatives(m);
  bind_points(m);
  bind_rows(m);
  bind_sampling(m);
  bind_sddmm(m);
  bind_tensor_product(m);
  bind_torch_kernels(m);
  bind_torch_scatter_kernels(m);
  bind_torch_sparse_kernels(m);
  bind_torch_sparse_products(m);
  bind_reorder(m);

  m.def(
      "stream_read",
      [](Address from, int64_t bytes, int threads) {
        return onehop::kernels().stream_read(static_cast<const float*>(at(from)), bytes / 4, threads);
      },
      "address"_a, "bytes"_a, "threads"_a, Released());
  m.def(
      "gather_rows",
      [](Address x, int64_t row_floats, Address index, int64_t count, int prefetch, int threads) {
        if (row_floats <= 0 || row_floats % 16 != 0)
          throw std::invalid_argument("row_floats: expected a multiple of 16");
        return onehop::kernels().gather_rows(static_cast<const float*>(at(x)), row_floats,
                                             static_cast<const int32_t*>(at(index)), count, prefetch, threads);
      },
      "x"_a, "row_floats"_a, "index"_a, "count"_a, "prefetch"_a, "threads"_a, Released());

  m.def("available_isas", [] {
    std::vector<std::string> names;
    for (const char* const* name = onehop::available_isas(); *name != nullptr; ++name) names.emplace_back(*name);
    return names;
  });
  m.def("select_isa", &onehop::select_isa, "name"_a);
  m.def("selected_isa", [] { return std::string(onehop::kernels().name); });
  m.def("vector_bytes", [] { return onehop::kernels().vector_bytes; });

  m.def(
      "turn_rows",
      [](Address from, int64_t rows, int64_t columns, int64_t entry_bytes, Address out) {
        onehop::turn_rows(at(from), rows, columns, entry_bytes, at(out));
      },
      "from_"_a, "rows"_a, "columns"_a, "entry_bytes"_a, "out"_a, Released());

  m.def(
      "fingerprint",
      [](Address data, int64_t bytes, int threads) { return onehop::fingerprint(at(data), bytes, threads); }, "data"_a,
      "bytes"_a, "threads"_a, Released());
  m.def(
      "sampled_fingerprint", [](Address data, int64_t bytes) { return onehop::sampled_fingerprint(at(data), bytes); },
      "data"_a, "bytes"_a);

  m.def(
      "meets_denormals",
      [](Address x, int64_t count) { return onehop::meets_denormals(static_cast<const float*>(at(x)), count); }, "x"_a,
      "count"_a);
  m.def(
      "flush_denormals",
      [](Address x, int64_t count, Address out, int threads) {
        onehop::flush_denormals(static_cast<const float*>(at(x)), count, static_cast<float*>(at(out)), threads);
      },
      "x"_a, "count"_a, "out"_a, "threads"_a, Released());

  m.def("bind_openmp", &onehop::bind_openmp, "path"_a);
  m.def("openmp_bound", &onehop::openmp_bound);
  m.def("in_forked_child", &onehop::in_forked_child);

  m.def("pool_empty", &pool_empty, "shape"_a, "dtype"_a);
  m.def("pool_clear", &onehop::pool_clear);
  m.def("pool_set_limit", &onehop::pool_set_limit, "bytes"_a);
  m.def("pool_info", [] {
    const auto info = onehop::pool_info();
    nb::dict result;
    result["in_use_bytes"] = info.in_use_bytes;
    result["kept_bytes"] = info.kept_bytes;
    result["limit_bytes"] = info.limit_bytes;
    result["reused"] = info.reused;
    result["mapped"] = info.mapped;
    return result;
  });
  m.def("keep_tensor_memory", &onehop::keep_tensor_memory);
  m.def("pause_keeping", &onehop::pause_keeping);
  m.def("is_from_pool", [](uintptr_t data) { return onehop::is_from_pool(reinterpret_cast<const void*>(data)); });
  m.def("trim_memory", &onehop::trim_memory);
  m.def("resident_bytes", &onehop::resident_bytes);
  m.def("peak_resident_bytes", &onehop::peak_resident_bytes);
}
