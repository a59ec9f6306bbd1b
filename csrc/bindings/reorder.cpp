// Orders of a graph's rows, and pairs of its nodes.
#include <nanobind/nanobind.h>
#include <nanobind/stl/shared_ptr.h>

#include <new>

#include "arguments.hpp"
#include "calls.hpp"
#include "onehop/communities.hpp"
#include "onehop/csr.hpp"
#include "onehop/matching.hpp"

namespace nb = nanobind;
using namespace nb::literals;

void bind_reorder(nb::module_& m) {
  m.def(
      "with_rows",
      [](const onehop::Csr& csr, Address order, bool wide_perm, int threads) {
        auto result = onehop::with_rows(csr, static_cast<const int32_t*>(at(order)), wide_perm, threads);
        if (result == nullptr) throw std::bad_alloc();
        return result;
      },
      "csr"_a, "order"_a, "wide_perm"_a, "threads"_a, Released());
  m.def(
      "community_order",
      [](const onehop::Csr& csr, Address order) { onehop::community_order(csr, static_cast<int32_t*>(at(order))); },
      "csr"_a, "order"_a, Released());
  using onehop::MatchedGraph;
  Call<MatchedGraph>(m, "MatchedGraph")
      .field<&MatchedGraph::rowptr>("rowptr")
      .field<&MatchedGraph::col>("col")
      .field<&MatchedGraph::weight>("weight")
      .field<&MatchedGraph::nodes>("nodes");
  m.def(
      "match_neighbours",
      [](const MatchedGraph& graph, Address order, Address cluster) {
        return onehop::match_neighbours(graph, static_cast<const int64_t*>(at(order)),
                                        static_cast<int64_t*>(at(cluster)));
      },
      "graph"_a, "order"_a, "cluster"_a, Released());
}
