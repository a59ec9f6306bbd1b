// A graph in compressed sparse rows, and its cut into work items.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "onehop/block.hpp"
#include "onehop/fork_safe_mutex.hpp"

namespace onehop {

// One piece of work: the edges [edge_begin, edge_end), which belong to the rows [row_begin, row_end).
// Only the first and the last of those rows may be cut; a cut row's piece goes to a slot of a side buffer
// and the pieces are added up, in order, afterwards. A slot of -1 means the row is whole.
struct WorkItem {
  int64_t row_begin, row_end;
  int64_t edge_begin, edge_end;
  int64_t head_slot, tail_slot;
};

// A row that several items share: its pieces lie in the slots [slot_begin, slot_end).
struct CutRow {
  int64_t row;
  int64_t slot_begin, slot_end;
};

struct WorkList {
  std::vector<WorkItem> items;
  std::vector<CutRow> cut_rows;
  int64_t slots = 0;
  int64_t most_edges = 0;  // of any item: the size of its scratch
};

// Rows cost about as much as this many edges, when work is cut into even pieces.
inline constexpr int64_t kEdgesPerRow = 2;

class Csr {
 public:
  int64_t rows = 0, cols = 0, edges = 0;
  Block rowptr;  // int64 [rows + 1]
  Block col;     // int32 [edges], and kPadding more that may be read ahead
  Block perm;    // int32 or int64 [edges], padded too: the caller's number of each edge; empty if the orders agree
  bool perm_is_wide = false;
  Block row_of;  // int32 [rows]: the graph's row of each row; empty if the rows are in the graph's order

  static constexpr int64_t kPadding = 64;

  const int64_t* rowptr_data() const { return rowptr.as<int64_t>(); }
  const int32_t* col_data() const { return col.as<int32_t>(); }

  // The cut into items of about `edges_per_item` edges; made once per size and cached. Rows longer than an item are
  // cut, shorter ones never. Depends only on the graph and the size, so sums keep their order.
  const WorkList& work(int64_t edges_per_item) const;
  int64_t bytes() const;

 private:
  mutable ForkSafeMutex mutex_;
  mutable std::unordered_map<int64_t, std::unique_ptr<WorkList>> work_;
};

enum class BuildError { none, row_out_of_range, col_out_of_range, out_of_memory };

struct BuildResult {
  std::shared_ptr<Csr> csr;
  BuildError error = BuildError::none;
  int64_t bad_edge = -1;
};

// Rows and columns of the edges, as int32 or int64, each with a stride in elements. Edges of a row keep the
// caller's order. Indices outside [0, rows) or [0, cols) are reported with the first such edge.
struct Coo {
  const void* row;
  const void* col;
  int64_t row_stride, col_stride;
  int64_t edges;
  bool is_wide;
  // If positive, a loop at each of the first nodes, so many, follows the edges; loops among the edges are omitted.
  int64_t loops = 0;
};
BuildResult csr_from_coo(const Coo& coo, int64_t rows, int64_t cols, bool wide_perm, int threads);

// Rows that are compressed already: `rowptr` [rows + 1] ascends from 0, and `col` is int32 or int64 with a stride in
// elements. Both are copied. Columns outside [0, cols) are reported with the first such edge.
struct CompressedRows {
  const int64_t* rowptr;
  const void* col;
  int64_t col_stride;
  bool is_wide;
};
BuildResult csr_from_rows(const CompressedRows& given, int64_t rows, int64_t cols, int threads);

// The same rows in another order, with unchanged edges: row r is the given graph's row order[r], which `row_of` stores.
// `order` is a permutation of the rows. Null when memory runs out.
std::shared_ptr<Csr> with_rows(const Csr& csr, const int32_t* order, bool wide_perm, int threads);

// Rows and columns swapped; inside a row the edges are ordered by column.
std::shared_ptr<Csr> transpose(const Csr& csr, bool wide_perm, int threads);

}  // namespace onehop
