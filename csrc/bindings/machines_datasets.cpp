// The generator of large twins; it shares the machines' extension, which needs no kernels.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "../datasets/block_model.hpp"
#include "../datasets/implicit_graph.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using Released = nb::call_guard<nb::gil_scoped_release>;

template <class T>
T* at(uintptr_t address) {
  return reinterpret_cast<T*>(address);
}

// A NumPy array that keeps the vector's memory.
template <class T>
nb::object array_of(std::vector<T>&& values) {
  auto kept = std::make_unique<std::vector<T>>(std::move(values));
  T* data = kept->data();
  const size_t shape[1] = {kept->size()};
  nb::capsule owner(kept.release(), [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
  return nb::cast(nb::ndarray<nb::numpy, T>(data, 1, shape, owner));
}

}  // namespace

void bind_datasets(nb::module_& m) {
  m.attr("DRAWS_PER_TASK") = onehop::kDrawsPerTask;
  m.def(
      "block_inside",
      [](uintptr_t starts, uintptr_t demand, int64_t first, int64_t last, uint64_t seed, uintptr_t pairs,
         int64_t capacity, uintptr_t degrees, int threads) {
        return onehop::draw_inside({at<const int64_t>(starts), at<const double>(demand), first, last, seed,
                                    at<onehop::NodePair>(pairs), capacity, at<double>(degrees), threads});
      },
      "starts"_a, "demand"_a, "first"_a, "last"_a, "seed"_a, "pairs"_a, "capacity"_a, "degrees"_a, "threads"_a,
      Released());
  m.def(
      "block_alias",
      [](uintptr_t weights, int64_t count, uintptr_t threshold, uintptr_t alias) {
        return onehop::build_alias(at<const double>(weights), count, at<uint32_t>(threshold), at<int32_t>(alias));
      },
      "weights"_a, "count"_a, "threshold"_a, "alias"_a, Released());
  m.def(
      "block_between",
      [](uintptr_t threshold, uintptr_t alias, uintptr_t community, int64_t nodes, int64_t draws, uint64_t seed,
         uint64_t first_stream, uintptr_t pairs, int threads) {
        return onehop::draw_between({at<const uint32_t>(threshold), at<const int32_t>(alias),
                                     at<const int32_t>(community), nodes, draws, seed, first_stream,
                                     at<onehop::NodePair>(pairs), threads});
      },
      "threshold"_a, "alias"_a, "community"_a, "nodes"_a, "draws"_a, "seed"_a, "first_stream"_a, "pairs"_a, "threads"_a,
      Released());
  m.def(
      "block_rows",
      [](uintptr_t pairs, int64_t count, uintptr_t number, int64_t nodes, uintptr_t rowptr, uintptr_t col,
         int threads) {
        onehop::symmetric_rows({at<onehop::NodePair>(pairs), count, at<const int32_t>(number), nodes,
                                at<int64_t>(rowptr), at<int32_t>(col), threads});
      },
      "pairs"_a, "count"_a, "number"_a, "nodes"_a, "rowptr"_a, "col"_a, "threads"_a, Released());

  nb::class_<onehop::ImplicitGraph>(m, "ImplicitGraph")
      .def(
          "__init__",
          [](onehop::ImplicitGraph* self, int64_t nodes, uint64_t seed, double offset, double shape, double beyond,
             double inside, double most_of_community, uintptr_t starts, int64_t communities, int threads) {
            const nb::gil_scoped_release release;
            new (self) onehop::ImplicitGraph({nodes, seed, offset, shape, beyond, inside, most_of_community},
                                             at<const int64_t>(starts), communities, threads);
          },
          "nodes"_a, "seed"_a, "offset"_a, "shape"_a, "beyond"_a, "inside"_a, "most_of_community"_a, "starts"_a,
          "communities"_a, "threads"_a)
      .def_prop_ro("bytes", &onehop::ImplicitGraph::bytes)
      .def(
          "rows",
          [](const onehop::ImplicitGraph& graph, uintptr_t wanted, int64_t count, int threads) {
            onehop::SampledRows rows;
            {
              const nb::gil_scoped_release release;
              rows = graph.rows(at<const int64_t>(wanted), count, threads);
            }
            return nb::make_tuple(array_of(std::move(rows.rowptr)), array_of(std::move(rows.col)));
          },
          "wanted"_a, "count"_a, "threads"_a);
}
