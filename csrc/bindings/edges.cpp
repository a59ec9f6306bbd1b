// Functions of edges.
#include "onehop/edges.hpp"

#include <nanobind/nanobind.h>

#include "arguments.hpp"
#include "calls.hpp"

namespace nb = nanobind;
using namespace nb::literals;

void bind_edges(nb::module_& m) {
  using onehop::EdgeColumns;
  using onehop::EdgeEnds;
  using onehop::SortedEdges;
  Call<EdgeColumns>(m, "EdgeColumns")
      .field<&EdgeColumns::row>("row")
      .field<&EdgeColumns::col>("col")
      .field<&EdgeColumns::count>("count")
      .field<&EdgeColumns::is_wide>("is_wide");
  nb::class_<EdgeEnds>(m, "EdgeEnds").def_ro("rows", &EdgeEnds::rows).def_ro("cols", &EdgeEnds::cols);
  m.def("edge_ends", &onehop::edge_ends, "edges"_a, "threads"_a, Released());
  nb::class_<SortedEdges>(m, "SortedEdges")
      .def(nb::init<const EdgeColumns&, EdgeEnds, bool, bool, int>(), "edges"_a, "ends"_a, "mirrored"_a, "numbered"_a,
           "threads"_a, Released())
      .def_prop_ro("keys", &SortedEdges::keys, nb::rv_policy::reference_internal)
      .def(
          "write_ends",
          [](const SortedEdges& sorted, Address row, Address col, bool once, int threads) {
            sorted.write_ends(at(row), at(col), once, threads);
          },
          "row"_a, "col"_a, "once"_a, "threads"_a, Released());
  m.def("are_paired", &SortedEdges::are_paired, "edges"_a, "ends"_a, "threads"_a, Released());
  m.def(
      "mark_inner_edges",
      [](const EdgeColumns& edges, Address node_mask, int64_t nodes, Address edge_mask, int threads) {
        return onehop::mark_inner_edges(edges, static_cast<const bool*>(at(node_mask)), nodes,
                                        static_cast<bool*>(at(edge_mask)), threads);
      },
      "edges"_a, "node_mask"_a, "nodes"_a, "edge_mask"_a, "threads"_a, Released());
  m.def(
      "mark_reached",
      [](const EdgeColumns& edges, Address from, int64_t nodes, Address reached, Address edge_mask, int threads) {
        return onehop::mark_reached(edges, static_cast<const bool*>(at(from)), nodes, static_cast<bool*>(at(reached)),
                                    static_cast<bool*>(at(edge_mask)), threads);
      },
      "edges"_a, "from_"_a, "nodes"_a, "reached"_a, "edge_mask"_a, "threads"_a, Released());
  m.def(
      "mark_ends",
      [](const EdgeColumns& edges, Address node_mask, int64_t nodes, int threads) {
        return onehop::mark_ends(edges, static_cast<bool*>(at(node_mask)), nodes, threads);
      },
      "edges"_a, "node_mask"_a, "nodes"_a, "threads"_a, Released());
  m.def(
      "write_marked",
      [](const EdgeColumns& edges, Address edge_mask, Address mapping, int64_t nodes, Address row, Address col,
         int threads) {
        return onehop::write_marked(edges, static_cast<const bool*>(at(edge_mask)), at(mapping), nodes, at(row),
                                    at(col), threads);
      },
      "edges"_a, "edge_mask"_a, "mapping"_a, "nodes"_a, "row"_a, "col"_a, "threads"_a, Released());
}
