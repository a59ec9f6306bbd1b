// What a batch consists of while it is drawn.
#pragma once

#include <atomic>
#include <vector>

#include "../runtime/csr_arrays.hpp"
#include "buffer.hpp"
#include "node_table.hpp"
#include "onehop/sampling.hpp"
#include "picks.hpp"

namespace onehop {

// Rows that one task draws from.
inline constexpr int64_t kRowsPerDraw = 256;
// So many entries before they are needed, memory that is read in any order is asked for.
inline constexpr int64_t kAhead = 16;

// Runs body(begin, end, thread) for consecutive rows, [0, rows) all in all.
template <class Body>
void over_rows(int64_t rows, int threads, const Body& body) {
  for_tasks((rows + kRowsPerDraw - 1) / kRowsPerDraw, threads, [&](int64_t task, int thread) {
    body(task * kRowsPerDraw, std::min(rows, (task + 1) * kRowsPerDraw), thread);
  });
}

// The first problem that any thread met, by the order of relations and entries, whoever found it first.
class Problems {
 public:
  void clear() { found_.store(kNone, std::memory_order_relaxed); }
  void note(DrawProblem problem, int64_t where) {
    const uint64_t mine = static_cast<uint64_t>(where) << 4 | static_cast<uint64_t>(problem);
    uint64_t seen = found_.load(std::memory_order_relaxed);
    while (mine < seen && !found_.compare_exchange_weak(seen, mine, std::memory_order_relaxed)) {
    }
  }
  bool any() const { return found_.load(std::memory_order_relaxed) != kNone; }
  DrawResult result(int64_t relation) const {
    const uint64_t found = found_.load(std::memory_order_relaxed);
    return {static_cast<DrawProblem>(found & 15), relation, static_cast<int64_t>(found >> 4)};
  }

 private:
  static constexpr uint64_t kNone = ~uint64_t{0};
  std::atomic<uint64_t> found_{kNone};
};

// The nodes of one type that are in the batch.
struct NodesOfType {
  Buffer<int32_t> node, tree;  // no trees unless disjoint
  NodeTable table;
  std::vector<int64_t> per_hop;
  int64_t begin = 0, end = 0;  // those that the hop before found
};

// The edges of one relation that are in the batch: CSR over the nodes of the destinations' type.
struct EdgesOfRelation {
  Buffer<int64_t> rowptr;  // of the rows drawn from so far, and one
  Buffer<int32_t> col;
  Buffer<int64_t> edge;  // numbers in the relation
  std::vector<int64_t> per_hop;
};

struct Drawing::State {
  std::vector<SampledRelation> relations;
  std::vector<NodesOfType> types;
  std::vector<EdgesOfRelation> edges;
  DrawOptions options;

  Buffer<int64_t> tree_time;  // of each tree
  std::vector<Picker> pickers;
  Buffer<Picks> picks;    // of the rows of a hop
  Buffer<uint64_t> keys;  // of the neighbours that a hop drew
  Problems problems;

  int64_t tree_of(const NodesOfType& type, int64_t i) const { return options.disjoint ? type.tree[i] : 0; }

  // An edge's source; -1, and a problem noted, if there is no such node.
  int64_t source(const SampledRelation& relation, int64_t edge) {
    const int64_t found = relation.wide_col ? static_cast<const int64_t*>(relation.col)[edge]
                                            : static_cast<const int32_t*>(relation.col)[edge];
    if (static_cast<uint64_t>(found) < static_cast<uint64_t>(relation.cols)) return found;
    problems.note(DrawProblem::col_out_of_range, edge);
    return -1;
  }

  void prefetch_col(const SampledRelation& relation, int64_t edge) const {
    __builtin_prefetch(static_cast<const char*>(relation.col) + edge * (relation.wide_col ? 8 : 4));
  }

  // The edges of a row; none, and a problem noted, if the row is damaged.
  Picks whole_row(const SampledRelation& relation, int64_t row) {
    const int64_t begin = relation.rowptr[row], end = relation.rowptr[row + 1];
    if (0 <= begin && begin <= end && end <= relation.edges) return {begin, end - begin, 0};
    problems.note(DrawProblem::damaged_rows, row);
    return {0, 0, 0};
  }

  // All edges between the nodes of the batch, in place of those that were drawn.
  DrawResult induce();
};

}  // namespace onehop
