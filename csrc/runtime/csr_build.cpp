// Graphs from edges in any order, and from other graphs by sorting.

#include <algorithm>
#include <atomic>
#include <limits>
#include <memory>
#include <numeric>
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

// The first of the edges [begin, end) whose index is not in [0, count), or -1.
template <class Index>
int64_t first_outside(Column<Index> column, int64_t count, int64_t begin, int64_t end) {
  for (int64_t e = begin; e < end; ++e) {
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
  // The row before each chunk, read once: the chunk begins after it, and the one before ends with it.
  std::vector<int64_t> before(static_cast<size_t>(chunks.chunks) + 1, -1);
  for (int64_t chunk = 1; chunk < chunks.chunks; ++chunk) {
    before[static_cast<size_t>(chunk)] = static_cast<int64_t>(row[chunks.begin(chunk) - 1]);
    if (!inside(before[static_cast<size_t>(chunk)], csr.rows)) return false;
  }
  for_tasks(chunks.chunks, threads, [&](int64_t chunk, int) {
    const int64_t begin = chunks.begin(chunk), end = chunks.begin(chunk + 1);
    // A row begins where the row number rises; the gap before it belongs to empty rows.
    int64_t previous = before[static_cast<size_t>(chunk)];
    const int64_t last_col = csr.cols - 1;
    int64_t wrong_cols = 0;  // negative once a column was outside
    bool ordered = true;
    for (int64_t e = begin; e < end && ordered; ++e) {
      const auto c = static_cast<int64_t>(col[e]);
      wrong_cols |= c | (last_col - c);
      out_col[e] = static_cast<int32_t>(c);
      const auto r = static_cast<int64_t>(row[e]);
      if (r == previous) continue;
      ordered = r > previous && r < csr.rows;
      while (ordered && previous < r) rowptr[++previous] = e;
    }
    // The number before the first row of all is -1, which an edge may have too.
    if (chunk == 0 && begin < end) ordered = ordered && previous >= 0 && rowptr[0] == 0;
    const bool is_last = chunk + 1 == chunks.chunks;
    if (!ordered || wrong_cols < 0 || (!is_last && previous != before[static_cast<size_t>(chunk) + 1])) {
      good.store(false, std::memory_order_relaxed);
      return;
    }
    if (is_last) {
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

// Copies a column to `out` and checks it: every entry is read once, and what is checked is what is copied, because
// another thread may write to a caller's column at any time. Returns the first entry that is not in [0, count), or -1.
template <class Index>
int64_t narrow(Column<Index> column, int64_t entries, int64_t count, int32_t* out, int threads) {
  const Chunks chunks{entries, chunk_count(entries, threads)};
  std::vector<int64_t> wrong(static_cast<size_t>(chunks.chunks), -1);
  for_tasks(chunks.chunks, threads, [&](int64_t chunk, int) {
    const int64_t begin = chunks.begin(chunk), end = chunks.begin(chunk + 1);
    int64_t outside;  // negative once an entry was
    do {
      outside = 0;
      for (int64_t e = begin; e < end; ++e) {
        const auto entry = static_cast<int64_t>(column[e]);
        outside |= entry | (count - 1 - entry);
        out[e] = static_cast<int32_t>(entry);
      }
      // Once more where what was outside is not found again.
    } while (outside < 0 && (wrong[static_cast<size_t>(chunk)] = first_outside(column, count, begin, end)) < 0);
  });
  const auto found = std::ranges::find_if(wrong, [](int64_t entry) { return entry >= 0; });
  return found == wrong.end() ? -1 : *found;
}

// Ends of edges in memory of ours, which were checked.
struct Checked {
  const int32_t* row;
  const int32_t* col;

  int64_t first_row(int64_t edge) const { return row[edge]; }
  int64_t row_again(int64_t edge) const { return row[edge]; }
  int64_t col_of(int64_t edge) const { return col[edge]; }
  static bool is_row(int64_t) { return true; }
  static bool is_col(int64_t) { return true; }
};

// Ends in memory of the caller's, who may write to it meanwhile: each is read once, and checked as it is used. Rows are
// used twice, and so copied.
template <class Index>
struct Given {
  Column<Index> row, col;
  int32_t* rows;
  int64_t row_count, col_count;

  int64_t first_row(int64_t edge) const {
    const auto found = static_cast<int64_t>(row[edge]);
    rows[edge] = static_cast<int32_t>(found);
    return found;
  }
  int64_t row_again(int64_t edge) const { return rows[edge]; }
  int64_t col_of(int64_t edge) const { return static_cast<int64_t>(col[edge]); }
  bool is_row(int64_t found) const { return inside(found, row_count); }
  bool is_col(int64_t found) const { return inside(found, col_count); }
};

// The first wrong edge that any thread met; -1 if none.
class FirstWrong {
 public:
  void note(int64_t edge) {
    int64_t seen = found_.load(std::memory_order_relaxed);
    while (edge < seen && !found_.compare_exchange_weak(seen, edge, std::memory_order_relaxed)) {
    }
  }
  int64_t edge() const { return found_.load() == kNone ? -1 : found_.load(); }

 private:
  static constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
  std::atomic<int64_t> found_{kNone};
};

// Stable counting sort by row. `edge_id(e)` is what the permutation records for edge e, in a type that counts the edges
// too. Fills in the result's error, and the number of the first wrong edge.
template <class Perm, class Ends, class EdgeId>
void counting_sort_as(Csr& csr, const Ends& ends, const EdgeId& edge_id, Chunks chunks, int threads,
                      BuildResult& result) {
  const int64_t rows = csr.rows;
  Block counts(chunks.chunks * rows * static_cast<int64_t>(sizeof(Perm)));
  if (!counts) {
    result.error = BuildError::out_of_memory;
    return;
  }
  auto* place = counts.as<Perm>();
  FirstWrong wrong_row, wrong_col;
  // What loops read is captured by value: what they write could be a pointer.
  for_tasks(chunks.chunks, threads, [=, &wrong_row](int64_t chunk, int) {
    Perm* count = place + chunk * rows;
    std::fill_n(count, rows, Perm{0});
    const int64_t end = chunks.begin(chunk + 1);
    for (int64_t e = chunks.begin(chunk); e < end; ++e) {
      const int64_t row = ends.first_row(e);
      if (!ends.is_row(row)) return wrong_row.note(e);
      ++count[row];
    }
  });
  result.bad_edge = wrong_row.edge();
  if (result.bad_edge >= 0) {
    result.error = BuildError::row_out_of_range;
    return;
  }
  prefix_sums(place, csr.rowptr.as<int64_t>(), rows, chunks.chunks, threads);
  auto* out_col = csr.col.as<int32_t>();
  [[maybe_unused]] auto* out_perm = csr.perm.as<Perm>();
  for_tasks(chunks.chunks, threads, [=, &wrong_col](int64_t chunk, int) {
    Perm* next = place + chunk * rows;
    const int64_t end = chunks.begin(chunk + 1);
    bool right = true;
    for (int64_t e = chunks.begin(chunk); e < end; ++e) {
      const int64_t col = ends.col_of(e);
      right &= ends.is_col(col);
      const Perm slot = next[ends.row_again(e)]++;
      out_col[slot] = static_cast<int32_t>(col);
      if constexpr (!std::is_same_v<EdgeId, Nothing>) out_perm[slot] = static_cast<Perm>(edge_id(e));
    }
    if (right) return;
    int64_t e = chunks.begin(chunk);
    while (e + 1 < end && ends.is_col(ends.col_of(e))) ++e;
    wrong_col.note(e);  // the last one if the wrong one was written to since
  });
  result.bad_edge = wrong_col.edge();
  if (result.bad_edge >= 0) result.error = BuildError::col_out_of_range;
}

template <class Ends, class EdgeId>
BuildResult counting_sort(std::shared_ptr<Csr> csr, const Ends& ends, const EdgeId& edge_id, int threads) {
  // Every chunk keeps one counter a row, so more chunks pay only while edges outnumber rows.
  const int64_t most = std::max<int64_t>(1, csr->edges / std::max<int64_t>(csr->rows, 1));
  const Chunks chunks{csr->edges, std::min(chunk_count(csr->edges, threads), most)};
  BuildResult result;
  csr->perm_is_wide ? counting_sort_as<int64_t>(*csr, ends, edge_id, chunks, threads, result)
                    : counting_sort_as<int32_t>(*csr, ends, edge_id, chunks, threads, result);
  if (result.error == BuildError::none) result.csr = std::move(csr);
  return result;
}

// Copies the ends of edges that are no loops, each read once, and a loop at each of the first nodes behind them.
// Returns how many edges there are then, or the error and the first wrong edge.
template <class Index>
BuildResult copy_with_loops(const Given<Index>& ends, int64_t edges, int64_t loops, int32_t* cols, int64_t& count) {
  count = 0;
  for (int64_t e = 0; e < edges; ++e) {
    const auto row = static_cast<int64_t>(ends.row[e]), col = static_cast<int64_t>(ends.col[e]);
    if (!ends.is_row(row)) return {nullptr, BuildError::row_out_of_range, e};
    if (!ends.is_col(col)) return {nullptr, BuildError::col_out_of_range, e};
    ends.rows[count] = static_cast<int32_t>(row);
    cols[count] = static_cast<int32_t>(col);
    count += row != col;
  }
  std::iota(ends.rows + count, ends.rows + count + loops, 0);
  std::iota(cols + count, cols + count + loops, 0);
  count += loops;
  return {};
}

template <class Index>
BuildResult build(const Coo& coo, int64_t rows, int64_t cols, bool wide_perm, int threads) {
  const Column<Index> row{static_cast<const Index*>(coo.row), coo.row_stride};
  const Column<Index> col{static_cast<const Index*>(coo.col), coo.col_stride};
  const BuildResult out_of_memory{nullptr, BuildError::out_of_memory, -1};
  const auto itself = [](int64_t e) { return e; };
  auto csr = std::make_shared<Csr>();
  csr->rows = rows;
  csr->cols = cols;
  csr->edges = coo.edges;
  const auto block_of = [](int64_t entries) { return Block(entries * static_cast<int64_t>(sizeof(int32_t))); };
  if (coo.loops > 0) {
    const Block own_rows = block_of(coo.edges + coo.loops), own_cols = block_of(coo.edges + coo.loops);
    if (!own_rows || !own_cols) return out_of_memory;
    const Given<Index> ends{row, col, own_rows.as<int32_t>(), rows, cols};
    const BuildResult copied = copy_with_loops(ends, coo.edges, coo.loops, own_cols.as<int32_t>(), csr->edges);
    if (copied.error != BuildError::none) return copied;
    if (!allocate_rows(*csr) || !allocate_perm(*csr, wide_perm)) return out_of_memory;
    return counting_sort(std::move(csr), Checked{own_rows.as<int32_t>(), own_cols.as<int32_t>()}, itself, threads);
  }
  if (!allocate_rows(*csr)) return out_of_memory;
  const Chunks chunks{coo.edges, chunk_count(coo.edges, threads)};
  if (coo.edges == 0 || fill_sorted(*csr, row, col, chunks, threads)) return {std::move(csr), BuildError::none, -1};
  const Block own_rows = block_of(coo.edges);
  if (!own_rows || !allocate_perm(*csr, wide_perm)) return out_of_memory;
  return counting_sort(std::move(csr), Given<Index>{row, col, own_rows.as<int32_t>(), rows, cols}, itself, threads);
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
  struct Entries {
    const int32_t* row;

    int64_t first_row(int64_t entry) const { return row[entry]; }
    int64_t row_again(int64_t entry) const { return row[entry]; }
    int64_t col_of(int64_t entry) const { return entry; }
    static bool is_row(int64_t) { return true; }
    static bool is_col(int64_t) { return true; }
  };
  return counting_sort(std::move(csr), Entries{index}, Nothing{}, threads).csr;
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
  const auto sort = [&](const auto& edge_id) {
    return counting_sort(std::move(result), Checked{col, rows}, edge_id, threads).csr;
  };
  const auto* narrow = csr.perm.as<int32_t>();
  const auto* wide = csr.perm.as<int64_t>();
  if (!csr.perm) return sort([](int64_t e) { return e; });
  return csr.perm_is_wide ? sort([wide](int64_t e) { return wide[e]; })
                          : sort([narrow](int64_t e) { return narrow[e]; });
}

}  // namespace onehop
