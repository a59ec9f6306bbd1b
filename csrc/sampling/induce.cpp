// All edges between the nodes of a batch.
#include "state.hpp"

namespace onehop {

DrawResult Drawing::State::induce() {
  for (size_t r = 0; r < relations.size(); ++r) {
    const SampledRelation& relation = relations[r];
    const NodesOfType& to = types[static_cast<size_t>(relation.dst_type)];
    const NodeTable& from = types[static_cast<size_t>(relation.src_type)].table;
    EdgesOfRelation& found = edges[r];
    const int64_t rows = to.node.size();
    // Calls take(edge, source's number) for each edge of row i whose source is in the batch, in the row's tree. The
    // relation's owner may write to it between two such calls.
    const auto each = [&](int64_t i, const auto& take) {
      const Picks row = whole_row(relation, to.node[i]);
      const int64_t tree = tree_of(to, i);
      for (int64_t e = row.begin; e < row.begin + row.population; ++e) {
        const int64_t node = source(relation, e);
        const int32_t number = node < 0 ? -1 : from.find(NodeTable::key_of(tree, node));
        if (number >= 0) take(e, number);
      }
    };
    found.rowptr.clear();
    found.col.clear();
    found.edge.clear();
    found.per_hop.clear();
    int64_t* rowptr = found.rowptr.extend(rows + 1);
    rowptr[0] = 0;
    over_rows(rows, options.threads, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        int64_t count = 0;
        each(i, [&](int64_t, int32_t) { ++count; });
        rowptr[i + 1] = count;
      }
    });
    if (problems.any()) return problems.result(static_cast<int64_t>(r));
    for (int64_t i = 0; i < rows; ++i) rowptr[i + 1] += rowptr[i];
    int32_t* col = found.col.extend(rowptr[rows]);
    int64_t* edge = found.edge.extend(rowptr[rows]);
    over_rows(rows, options.threads, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        int64_t next = rowptr[i];
        each(i, [&](int64_t e, int32_t number) {
          if (next < rowptr[i + 1]) {
            col[next] = number;
            edge[next] = e;
          }
          ++next;
        });
        if (next != rowptr[i + 1]) problems.note(DrawProblem::damaged_rows, to.node[i]);
      }
    });
    if (problems.any()) return problems.result(static_cast<int64_t>(r));
  }
  return {};
}

}  // namespace onehop
