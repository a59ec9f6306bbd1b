// The generator of large twins; it shares the machines' extension, which needs no kernels.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "../datasets/block_model.hpp"
#include "../datasets/implicit_graph.hpp"
#include "calls.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

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
  using onehop::BetweenCall;
  using onehop::InsideCall;
  m.attr("DRAWS_PER_TASK") = onehop::kDrawsPerTask;
  Call<InsideCall>(m, "BlockInsideCall")
      .field<&InsideCall::starts>("starts")
      .field<&InsideCall::demand>("demand")
      .field<&InsideCall::first>("first")
      .field<&InsideCall::last>("last")
      .field<&InsideCall::seed>("seed")
      .field<&InsideCall::pairs>("pairs")
      .field<&InsideCall::capacity>("capacity")
      .field<&InsideCall::degrees>("degrees")
      .field<&InsideCall::threads>("threads");
  m.def("block_inside", &onehop::draw_inside, Released());
  m.def(
      "block_alias",
      [](uintptr_t weights, int64_t count, uintptr_t threshold, uintptr_t alias) {
        return onehop::build_alias(at<const double>(weights), count, at<uint32_t>(threshold), at<int32_t>(alias));
      },
      "weights"_a, "count"_a, "threshold"_a, "alias"_a, Released());
  Call<BetweenCall>(m, "BlockBetweenCall")
      .field<&BetweenCall::threshold>("threshold")
      .field<&BetweenCall::alias>("alias")
      .field<&BetweenCall::community>("community")
      .field<&BetweenCall::nodes>("nodes")
      .field<&BetweenCall::draws>("draws")
      .field<&BetweenCall::seed>("seed")
      .field<&BetweenCall::first_stream>("first_stream")
      .field<&BetweenCall::pairs>("pairs")
      .field<&BetweenCall::threads>("threads");
  m.def("block_between", &onehop::draw_between, Released());
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
          nb::kw_only(), "nodes"_a, "seed"_a, "offset"_a, "shape"_a, "beyond"_a, "inside"_a, "most_of_community"_a,
          "starts"_a, "communities"_a, "threads"_a)
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
