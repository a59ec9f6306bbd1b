// Neighbours of seeds, and walks.
#include "onehop/sampling.hpp"

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/vector.h>

#include "arguments.hpp"
#include "calls.hpp"
#include "onehop/walks.hpp"

namespace nb = nanobind;
using namespace nb::literals;

void bind_sampling(nb::module_& m) {
  using onehop::Drawing;
  using onehop::DrawOptions;
  using onehop::SampledRelation;
  using onehop::Seeds;
  using onehop::WalkedGraph;
  using onehop::WalkOptions;
  Call<SampledRelation>(m, "SampledRelation")
      .field<&SampledRelation::rowptr>("rowptr")
      .field<&SampledRelation::col>("col")
      .field<&SampledRelation::rows>("rows")
      .field<&SampledRelation::cols>("cols")
      .field<&SampledRelation::edges>("edges")
      .field<&SampledRelation::wide_col>("wide_col")
      .field<&SampledRelation::src_type>("src_type")
      .field<&SampledRelation::dst_type>("dst_type")
      .field<&SampledRelation::weight>("weight")
      .field<&SampledRelation::running>("running")
      .field<&SampledRelation::edge_time>("edge_time")
      .field<&SampledRelation::src_time>("src_time")
      .field<&SampledRelation::fan_out>("fan_out");
  Call<Seeds>(m, "Seeds")
      .field<&Seeds::node>("node")
      .field<&Seeds::count>("count")
      .field<&Seeds::num_nodes>("num_nodes")
      .field<&Seeds::time>("time")
      .field<&Seeds::first_tree>("first_tree");
  Call<DrawOptions>(m, "DrawOptions")
      .field<&DrawOptions::key>("key")
      .field<&DrawOptions::hops>("hops")
      .field<&DrawOptions::threads>("threads")
      .field<&DrawOptions::replace>("replace")
      .field<&DrawOptions::disjoint>("disjoint")
      .field<&DrawOptions::last>("last")
      .field<&DrawOptions::induced>("induced")
      .field<&DrawOptions::shared>("shared");
  m.def(
      "running_sums",
      [](Address rowptr, int64_t rows, Address weight, Address running, int threads) {
        onehop::running_sums(static_cast<const int64_t*>(at(rowptr)), rows, static_cast<const double*>(at(weight)),
                             static_cast<double*>(at(running)), threads);
      },
      "rowptr"_a, "rows"_a, "weight"_a, "running"_a, "threads"_a, Released());
  Call<WalkedGraph>(m, "WalkedGraph")
      .field<&WalkedGraph::rowptr>("rowptr")
      .field<&WalkedGraph::col>("col")
      .field<&WalkedGraph::sorted>("sorted")
      .field<&WalkedGraph::running>("running")
      .field<&WalkedGraph::nodes>("nodes")
      .field<&WalkedGraph::edges>("edges")
      .field<&WalkedGraph::narrow>("narrow");
  Call<WalkOptions>(m, "WalkOptions")
      .field<&WalkOptions::key>("key")
      .field<&WalkOptions::length>("length")
      .field<&WalkOptions::back>("back")
      .field<&WalkOptions::out>("out")
      .field<&WalkOptions::second>("second")
      .field<&WalkOptions::proposals>("proposals");
  m.def(
      "walk",
      [](const WalkedGraph& graph, const WalkOptions& options, int64_t count, Address walks, int threads) {
        return onehop::walk(graph, options, count, at(walks), threads);
      },
      "graph"_a, "options"_a, "count"_a, "walks"_a, "threads"_a, Released());
  nb::class_<Drawing>(m, "Drawing")
      .def(nb::init<int, std::vector<SampledRelation>>(), "types"_a, "relations"_a)
      // Returns (the problem's number: 0 for none, of the relation, or of the type for seeds, of the entry).
      .def(
          "draw",
          [](Drawing& drawing, const std::vector<Seeds>& seeds, const DrawOptions& options) {
            onehop::DrawResult result;
            {
              nb::gil_scoped_release release;
              result = drawing.draw(seeds, options);
            }
            return nb::make_tuple(static_cast<int>(result.problem), result.relation, result.where);
          },
          "seeds"_a, "options"_a)
      .def("nodes", &Drawing::nodes, "type"_a)
      .def("edges", &Drawing::edges, "relation"_a)
      .def("nodes_per_hop", &Drawing::nodes_per_hop, "type"_a)
      .def("edges_per_hop", &Drawing::edges_per_hop, "relation"_a)
      .def(
          "write_nodes",
          [](const Drawing& drawing, int type, Address node, Address tree) {
            drawing.write_nodes(type, static_cast<int64_t*>(at(node)), static_cast<int64_t*>(at(tree)));
          },
          "type"_a, "node"_a, "tree"_a, Released())
      .def(
          "write_edges",
          [](const Drawing& drawing, int relation, Address src, Address dst, Address edge, int threads) {
            drawing.write_edges(relation, static_cast<int64_t*>(at(src)), static_cast<int64_t*>(at(dst)),
                                static_cast<int64_t*>(at(edge)), threads);
          },
          "relation"_a, "src"_a, "dst"_a, "edge"_a, "threads"_a, Released())
      .def(
          "csr",
          [](const Drawing& drawing, int relation) {
            auto csr = drawing.csr(relation);
            if (csr == nullptr) throw std::bad_alloc();
            return csr;
          },
          "relation"_a, Released());
}
