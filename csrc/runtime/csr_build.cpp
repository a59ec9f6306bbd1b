// Graphs from edges in any order, and from other graphs by sorting.

#include <algorithm>
#include <atomic>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "csr_arrays.hpp"
#include "onehop/index_rows.hpp"

namespace onehop {
namespace {

template <class Index>
struct Column {
  const Index* data;
  int64_t stride;
  Index operator[](int64_t edge) const { return data[edge * stride]; }
};

// Tests whether an index lies in [0, count); the unsigned comparison catches negative ones too.
template <class Index>
bool inside(Index index, int64_t count) {
  return static_cast<uint64_t>(static_cast<int64_t>(index)) < static_cast<uint64_t>(count);
}

// The first edge whose index is not in [0, count), or -1.
template <class Index>
int64_t first_outside(Column<Index> column, int64_t count, int64_t edges) {
  for (int64_t e = 0; e < edges; ++e) {
    if (!inside(column[e], count)) return e;
  }
  return -1;
}

// Fills the graph from edges that come row by row, in one pass that also checks them. False, with the arrays
// half written, as soon as a row number falls or an index is outside.
template <class Row, class Col>
bool fill_sorted(Csr& csr, const Row& row, const Col& col, Chunks chunks, int threads) {
  auto* rowptr = csr.rowptr.as<int64_t>();
  auto* out_col = csr.col.as<int32_t>();
  std::atomic<bool> good{true};
  for_tasks(chunks.chunks, threads, [&](int64_t chunk, int) {
    const int64_t begin = chunks.begin(chunk), end = chunks.begin(chunk + 1);
    // A row begins where the row number rises; the gap before it belongs to empty rows.
    int64_t previous = begin > 0 ? static_cast<int64_t>(row[begin - 1]) : -1;
    const int64_t last_col = csr.cols - 1;
    int64_t wrong_cols = 0;  // negative once a column was outside
    // The first row of all is checked itself, because -1 also precedes all rows.
    bool ordered = begin == end || inside(begin > 0 ? previous : static_cast<int64_t>(row[begin]), csr.rows);
    for (int64_t e = begin; e < end && ordered; ++e) {
      const auto c = static_cast<int64_t>(col[e]);
      wrong_cols |= c | (last_col - c);
      out_col[e] = static_cast<int32_t>(c);
      const auto r = static_cast<int64_t>(row[e]);
      if (r == previous) continue;
      ordered = r > previous && r < csr.rows;
      while (ordered && previous < r) rowptr[++previous] = e;
    }
    if (!ordered || wrong_cols < 0) {
      good.store(false, std::memory_order_relaxed);
      return;
    }
    if (end == csr.edges) {
      while (previous < csr.rows) rowptr[++previous] = csr.edges;
    }
  });
  return good.load();
}

// Replaces counts[chunk][row] by the position where each chunk writes its first edge of each row, and fills rowptr. Two
// passes over blocks of rows: sums of blocks, then the running sums inside them.
template <class Count>
void prefix_sums(Count* place, int64_t* rowptr, int64_t rows, int64_t chunks, int threads) {
  constexpr int64_t kRowsPerBlock = int64_t{1} << 14;
  const int64_t blocks = (rows + kRowsPerBlock - 1) / kRowsPerBlock;
  std::vector<int64_t> block_sum(static_cast<size_t>(blocks) + 1, 0);
  for_tasks(blocks, threads, [&](int64_t block, int) {
    int64_t sum = 0;
    const int64_t end = std::min(rows, (block + 1) * kRowsPerBlock);
    for (int64_t chunk = 0; chunk < chunks; ++chunk) {
      for (int64_t r = block * kRowsPerBlock; r < end; ++r) sum += place[chunk * rows + r];
    }
    block_sum[static_cast<size_t>(block) + 1] = sum;
  });
  for (size_t block = 0; block < static_cast<size_t>(blocks); ++block) block_sum[block + 1] += block_sum[block];
  for_tasks(blocks, threads, [&](int64_t block, int) {
    auto running = static_cast<Count>(block_sum[static_cast<size_t>(block)]);
    const int64_t end = std::min(rows, (block + 1) * kRowsPerBlock);
    for (int64_t r = block * kRowsPerBlock; r < end; ++r) {
      rowptr[r] = running;
      for (int64_t chunk = 0; chunk < chunks; ++chunk) {
        const Count count = place[chunk * rows + r];
        place[chunk * rows + r] = running;
        running += count;
      }
    }
  });
  rowptr[rows] = block_sum[static_cast<size_t>(blocks)];
}

// The edges' numbers as a column, and as what a graph without a permutation records for an edge.
struct Itself {
  int64_t operator[](int64_t edge) const { return edge; }
};
struct Nothing {};

// Stable counting sort by row. `edge_id(e)` is what the permutation records for edge e, in a type that counts
// the edges too. With kChecked, indices may be outside.
template <bool kChecked, class Perm, class Row, class Col, class EdgeId>
BuildError counting_sort_as(Csr& csr, const Row& row, const Col& col, const EdgeId& edge_id, Chunks chunks,
                            int threads) {
  const int64_t rows = csr.rows, last_col = csr.cols - 1;
  Block counts(chunks.chunks * rows * static_cast<int64_t>(sizeof(Perm)));
  if (!counts) return BuildError::out_of_memory;
  auto* place = counts.as<Perm>();
  std::atomic<bool> rows_good{true}, cols_good{true};
  for_tasks(chunks.chunks, threads, [&](int64_t chunk, int) {
    Perm* count = place + chunk * rows;
    std::fill_n(count, rows, Perm{0});
    int64_t wrong_cols = 0;  // negative once a column was outside
    for (int64_t e = chunks.begin(chunk); e < chunks.begin(chunk + 1); ++e) {
      const auto r = static_cast<int64_t>(row(e));
      if constexpr (kChecked) {
        const auto c = static_cast<int64_t>(col(e));
        wrong_cols |= c | (last_col - c);
        if (!inside(r, rows)) {
          rows_good.store(false, std::memory_order_relaxed);
          return;
        }
      }
      ++count[r];
    }
    if (wrong_cols < 0) cols_good.store(false, std::memory_order_relaxed);
  });
  if (!rows_good.load()) return BuildError::row_out_of_range;
  if (!cols_good.load()) return BuildError::col_out_of_range;
  prefix_sums(place, csr.rowptr.as<int64_t>(), rows, chunks.chunks, threads);
  auto* out_col = csr.col.as<int32_t>();
  [[maybe_unused]] auto* out_perm = csr.perm.as<Perm>();
  for_tasks(chunks.chunks, threads, [&](int64_t chunk, int) {
    Perm* next = place + chunk * rows;
    for (int64_t e = chunks.begin(chunk); e < chunks.begin(chunk + 1); ++e) {
      const Perm slot = next[row(e)]++;
      out_col[slot] = static_cast<int32_t>(col(e));
      if constexpr (!std::is_same_v<EdgeId, Nothing>) out_perm[slot] = static_cast<Perm>(edge_id(e));
    }
  });
  return BuildError::none;
}

template <bool kChecked, class Row, class Col, class EdgeId>
BuildError counting_sort(Csr& csr, const Row& row, const Col& col, const EdgeId& edge_id, int threads) {
  // Every chunk keeps one counter a row, so more chunks pay only while edges outnumber rows.
  const int64_t most = std::max<int64_t>(1, csr.edges / std::max<int64_t>(csr.rows, 1));
  const Chunks chunks{csr.edges, std::min(chunk_count(csr.edges, threads), most)};
  return csr.perm_is_wide ? counting_sort_as<kChecked, int64_t>(csr, row, col, edge_id, chunks, threads)
                          : counting_sort_as<kChecked, int32_t>(csr, row, col, edge_id, chunks, threads);
}

// The ends of the edges that are no loops, in their order: rows, then columns. An empty block when memory runs out.
template <class Index>
Block without_loops(Column<Index> row, Column<Index> col, int64_t edges, int64_t kept) {
  Block ends(2 * kept * static_cast<int64_t>(sizeof(Index)));
  if (!ends) return ends;
  auto* rows = ends.as<Index>();
  for (int64_t e = 0, next = 0; e < edges; ++e) {
    if (row[e] == col[e]) continue;
    rows[next] = row[e];
    rows[kept + next++] = col[e];
  }
  return ends;
}

template <class Index>
int64_t count_loops(Column<Index> row, Column<Index> col, int64_t edges) {
  int64_t loops = 0;
  for (int64_t e = 0; e < edges; ++e) loops += row[e] == col[e];
  return loops;
}

template <class Index>
BuildResult build(const Coo& coo, int64_t rows, int64_t cols, bool wide_perm, int threads) {
  Column<Index> row{static_cast<const Index*>(coo.row), coo.row_stride};
  Column<Index> col{static_cast<const Index*>(coo.col), coo.col_stride};
  BuildResult result;
  const auto out_of_memory = [&result] {
    result.error = BuildError::out_of_memory;
    return std::move(result);
  };
  const int64_t omitted = coo.loops > 0 ? count_loops(row, col, coo.edges) : 0, edges = coo.edges - omitted;
  Block kept;
  if (omitted > 0) {
    // Checked here, since what is omitted is not seen below.
    result.error = BuildError::row_out_of_range;
    result.bad_edge = first_outside(row, rows, coo.edges);
    if (result.bad_edge >= 0) return result;
    result.error = BuildError::col_out_of_range;
    result.bad_edge = first_outside(col, cols, coo.edges);
    if (result.bad_edge >= 0) return result;
    result.error = BuildError::none;
  }
  if (omitted > 0 && edges > 0) {
    kept = without_loops(row, col, coo.edges, edges);
    if (!kept) return out_of_memory();
    row = {kept.as<Index>(), 1};
    col = {kept.as<Index>() + edges, 1};
  }
  auto csr = std::make_shared<Csr>();
  csr->rows = rows;
  csr->cols = cols;
  csr->edges = edges + coo.loops;
  if (!allocate_rows(*csr)) return out_of_memory();
  const Chunks chunks{edges, chunk_count(edges, threads)};
  const bool sorted = csr->edges == 0 || (coo.loops == 0 && fill_sorted(*csr, row, col, chunks, threads));
  if (!sorted) {
    if (!allocate_perm(*csr, wide_perm)) return out_of_memory();
    const auto itself = [](int64_t e) { return e; };
    const auto end_of = [edges](Column<Index> ends) {
      return [ends, edges](int64_t e) { return e < edges ? static_cast<int64_t>(ends[e]) : e - edges; };
    };
    result.error = coo.loops > 0 ? counting_sort<true>(*csr, end_of(row), end_of(col), itself, threads)
                                 : counting_sort<true>(
                                       *csr, [&](int64_t e) { return row[e]; }, [&](int64_t e) { return col[e]; },
                                       itself, threads);
    if (result.error == BuildError::row_out_of_range) result.bad_edge = first_outside(row, rows, edges);
    if (result.error == BuildError::col_out_of_range) result.bad_edge = first_outside(col, cols, edges);
    if (result.error != BuildError::none) return result;
  }
  result.csr = std::move(csr);
  return result;
}

template <class Wide>
int64_t narrow(Column<Wide> index, int64_t count, int64_t rows, int32_t* out, int threads) {
  std::atomic<bool> good{true};
  const Chunks chunks{count, chunk_count(count, threads)};
  for_tasks(chunks.chunks, threads, [&](int64_t chunk, int) {
    int64_t wrong = 0;  // negative once an entry was outside
    for (int64_t e = chunks.begin(chunk); e < chunks.begin(chunk + 1); ++e) {
      const auto entry = static_cast<int64_t>(index[e]);
      wrong |= entry | (rows - 1 - entry);
      out[e] = static_cast<int32_t>(entry);
    }
    if (wrong < 0) good.store(false, std::memory_order_relaxed);
  });
  return good.load() ? -1 : first_outside(index, rows, count);
}

template <class Index>
BuildResult copy_of(const CompressedRows& given, int64_t rows, int64_t cols, int threads) {
  const Column<Index> col{static_cast<const Index*>(given.col), given.col_stride};
  BuildResult result;
  auto csr = std::make_shared<Csr>();
  csr->rows = rows;
  csr->cols = cols;
  csr->edges = given.rowptr[rows];
  if (!allocate_rows(*csr)) {
    result.error = BuildError::out_of_memory;
    return result;
  }
  std::copy_n(given.rowptr, rows + 1, csr->rowptr.as<int64_t>());
  result.bad_edge = narrow(col, csr->edges, cols, csr->col.as<int32_t>(), threads);
  if (result.bad_edge >= 0) {
    result.error = BuildError::col_out_of_range;
    return result;
  }
  result.csr = std::move(csr);
  return result;
}

}  // namespace

BuildResult csr_from_coo(const Coo& coo, int64_t rows, int64_t cols, bool wide_perm, int threads) {
  return coo.is_wide ? build<int64_t>(coo, rows, cols, wide_perm, threads)
                     : build<int32_t>(coo, rows, cols, wide_perm, threads);
}

BuildResult csr_from_rows(const CompressedRows& given, int64_t rows, int64_t cols, int threads) {
  return given.is_wide ? copy_of<int64_t>(given, rows, cols, threads) : copy_of<int32_t>(given, rows, cols, threads);
}

int64_t narrow_index(const Index& index, int64_t rows, int32_t* out, int threads) {
  if (index.is_wide) {
    return narrow(Column{static_cast<const int64_t*>(index.data), index.stride}, index.count, rows, out, threads);
  }
  return narrow(Column{static_cast<const int32_t*>(index.data), index.stride}, index.count, rows, out, threads);
}

std::shared_ptr<Csr> csr_from_index(const int32_t* index, int64_t count, int64_t rows, int threads) {
  auto csr = std::make_shared<Csr>();
  csr->rows = rows;
  csr->cols = csr->edges = count;
  if (!allocate_rows(*csr)) return nullptr;
  const Chunks chunks{count, chunk_count(count, threads)};
  if (count == 0 || fill_sorted(*csr, Column<int32_t>{index, 1}, Itself{}, chunks, threads)) return csr;
  const auto row = [index](int64_t e) { return static_cast<int64_t>(index[e]); };
  const auto itself = [](int64_t e) { return e; };
  return counting_sort<false>(*csr, row, itself, Nothing{}, threads) == BuildError::none ? csr : nullptr;
}

std::shared_ptr<Csr> transpose(const Csr& csr, bool wide_perm, int threads) {
  auto result = std::make_shared<Csr>();
  result->rows = csr.cols;
  result->cols = csr.rows;
  result->edges = csr.edges;
  if (!allocate_rows(*result)) return nullptr;
  if (csr.edges == 0) return result;
  if (!allocate_perm(*result, wide_perm)) return nullptr;
  // The row of every edge, expanded once: rows become columns.
  Block row_of(csr.edges * static_cast<int64_t>(sizeof(int32_t)));
  if (!row_of) return nullptr;
  const int64_t* rowptr = csr.rowptr_data();
  constexpr int64_t kRowsPerTask = 4096;
  for_tasks((csr.rows + kRowsPerTask - 1) / kRowsPerTask, threads, [&](int64_t task, int) {
    const int64_t end = std::min(csr.rows, (task + 1) * kRowsPerTask);
    for (int64_t r = task * kRowsPerTask; r < end; ++r) {
      std::fill(row_of.as<int32_t>() + rowptr[r], row_of.as<int32_t>() + rowptr[r + 1], static_cast<int32_t>(r));
    }
  });
  const int32_t* col = csr.col_data();
  const int32_t* rows = row_of.as<int32_t>();
  const auto new_row = [col](int64_t e) { return static_cast<int64_t>(col[e]); };
  const auto new_col = [rows](int64_t e) { return rows[e]; };
  const auto sort = [&](const auto& edge_id) {
    return counting_sort<false>(*result, new_row, new_col, edge_id, threads) == BuildError::none;
  };
  const auto* narrow = csr.perm.as<int32_t>();
  const auto* wide = csr.perm.as<int64_t>();
  const bool sorted = !csr.perm          ? sort([](int64_t e) { return e; })
                      : csr.perm_is_wide ? sort([wide](int64_t e) { return wide[e]; })
                                         : sort([narrow](int64_t e) { return narrow[e]; });
  return sorted ? result : nullptr;
}

}  // namespace onehop
