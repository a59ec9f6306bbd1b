#include "pim_partition.hpp"

#include "onehop/parallel.hpp"

namespace onehop::pim {
namespace {

constexpr int64_t kRowsPerTask = 2048;
constexpr int kMostParts = 4096;

struct Split {
  const int64_t* rowptr;
  const int32_t* col;
  int64_t rows;
  const uint16_t* part_of;
  int parts;
  const int32_t* first_column;
  int64_t* positions;
  int32_t* filled;
  const int64_t* read_positions;
  int32_t* part_col;
  int64_t* origin;
};

void count_rows(void* context, int64_t task, int) {
  const Split& s = *static_cast<Split*>(context);
  const int64_t end = (task + 1) * kRowsPerTask < s.rows ? (task + 1) * kRowsPerTask : s.rows;
  const int64_t stride = s.rows + 1;
  int64_t count[kMostParts];
  for (int64_t row = task * kRowsPerTask; row < end; ++row) {
    for (int p = 0; p < s.parts; ++p) count[p] = 0;
    for (int64_t e = s.rowptr[row]; e < s.rowptr[row + 1]; ++e) ++count[s.part_of[s.col[e]]];
    for (int p = 0; p < s.parts; ++p) s.positions[p * stride + row + 1] = count[p];
  }
}

void sum_rows(void* context, int64_t part, int) {
  const Split& s = *static_cast<Split*>(context);
  int64_t* position = s.positions + part * (s.rows + 1);
  int32_t* filled = s.filled + part * (s.rows + 1);
  position[0] = filled[0] = 0;
  for (int64_t row = 0; row < s.rows; ++row) {
    filled[row + 1] = filled[row] + (position[row + 1] > 0);
    position[row + 1] += position[row];
  }
}

void fill_rows(void* context, int64_t task, int) {
  const Split& s = *static_cast<Split*>(context);
  const int64_t end = (task + 1) * kRowsPerTask < s.rows ? (task + 1) * kRowsPerTask : s.rows;
  const int64_t stride = s.rows + 1;
  int64_t next[kMostParts];
  for (int64_t row = task * kRowsPerTask; row < end; ++row) {
    for (int p = 0; p < s.parts; ++p) next[p] = s.read_positions[p * stride + row];
    for (int64_t e = s.rowptr[row]; e < s.rowptr[row + 1]; ++e) {
      const int part = s.part_of[s.col[e]];
      const int64_t to = next[part]++;
      s.part_col[to] = s.col[e] - s.first_column[part];
      if (s.origin != nullptr) s.origin[to] = e;
    }
  }
}

// The edges of a part between two of its edges, as rows see them.
struct Window {
  const int64_t* positions;
  int64_t begin;
  int64_t end;

  int64_t before(int64_t row) const {
    const int64_t at = positions[row];
    return at < begin ? begin : at > end ? end : at;
  }
};

// The first row in (from, to] before which lie at least `edges` edges of the window.
int64_t row_after(const Window& window, int64_t from, int64_t to, int64_t edges) {
  int64_t low = from + 1, high = to;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (window.before(middle) >= edges) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

// Rows [first, last) in `parts` pieces: a piece ends where it has its share of the edges. Its excess is not charged to
// the next; the last piece takes the rest, and pieces may be empty.
void greedy(const Window& window, int64_t first, int64_t last, int parts, int64_t granule, int64_t* bounds) {
  const int64_t edges = window.before(last) - window.before(first);
  const int64_t share = edges / parts > 0 ? edges / parts : 1;
  bounds[0] = first;
  for (int part = 1; part < parts; ++part) {
    const int64_t from = bounds[part - 1];
    int64_t to = last;
    if (from < last) {
      to = row_after(window, from, last, window.before(from) + share);
      to = first + (to - first + granule - 1) / granule * granule;
      if (to > last) to = last;
    }
    bounds[part] = to;
  }
  bounds[parts] = last;
}

// Units of `granule` rows, shared out evenly; the first pieces get one more.
void even(int64_t first, int64_t last, int parts, int64_t granule, int64_t* bounds) {
  const int64_t units = (last - first + granule - 1) / granule;
  const int64_t least = units / parts, more = units % parts;
  int64_t unit = 0;
  for (int part = 0; part <= parts; ++part) {
    const int64_t row = first + unit * granule;
    bounds[part] = row < last ? row : last;
    unit += least + (part < more);
  }
}

// The row that holds an edge: the last row that begins at or before it and is not empty.
int64_t row_of(const int64_t* positions, int64_t rows, int64_t edge) {
  int64_t low = 0, high = rows;
  while (low + 1 < high) {
    const int64_t middle = low + (high - low) / 2;
    if (positions[middle] <= edge) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

struct Marked {
  const int32_t* col;
  const uint8_t* marks;
  const int64_t* begins;
  const int64_t* ends;
  int64_t* out;
};

void count_range(void* context, int64_t range, int) {
  const Marked& m = *static_cast<Marked*>(context);
  int64_t count = 0;
  for (int64_t e = m.begins[range]; e < m.ends[range]; ++e) count += m.marks[m.col[e]];
  m.out[range] = count;
}

struct Piece {
  int64_t edge_begin, edge_end, row_begin, row_end;
};

// Rows that hold the edges [begin, end), without empty ones at either side.
Piece tight(const int64_t* positions, int64_t rows, int64_t begin, int64_t end) {
  if (begin >= end) return {begin, begin, 0, 0};
  return {begin, end, row_of(positions, rows, begin), row_of(positions, rows, end - 1) + 1};
}

int64_t share_begin(int64_t edges, int parts, int64_t part) {
  const int64_t more = edges % parts;
  return part * (edges / parts) + (part < more ? part : more);
}

}  // namespace

void count_parts(const int64_t* rowptr, const int32_t* col, int64_t rows, const uint16_t* part_of, int parts,
                 int threads, int64_t* positions, int32_t* filled) {
  Split split{rowptr, col, rows, part_of, parts, nullptr, positions, filled, nullptr, nullptr, nullptr};
  parallel_for((rows + kRowsPerTask - 1) / kRowsPerTask, threads, count_rows, &split);
  parallel_for(parts, threads, sum_rows, &split);
  int64_t begin = 0;
  for (int part = 0; part < parts; ++part) {
    int64_t* position = positions + part * (rows + 1);
    const int64_t edges = position[rows];
    for (int64_t row = 0; row <= rows; ++row) position[row] += begin;
    begin += edges;
  }
}

void fill_parts(const int64_t* rowptr, const int32_t* col, int64_t rows, const uint16_t* part_of, int parts,
                const int32_t* first_column, int threads, const int64_t* positions, int32_t* part_col,
                int64_t* origin) {
  Split split{rowptr, col, rows, part_of, parts, first_column, nullptr, nullptr, positions, part_col, origin};
  parallel_for((rows + kRowsPerTask - 1) / kRowsPerTask, threads, fill_rows, &split);
}

void count_marked(const int32_t* col, const uint8_t* marks, const int64_t* begins, const int64_t* ends, int64_t count,
                  int threads, int64_t* out) {
  Marked marked{col, marks, begins, ends, out};
  parallel_for(count, threads, count_range, &marked);
}

void cut_part(const int64_t* positions, const int32_t* filled, int64_t rows, const Cut& cut, int64_t* core_rows,
              int64_t* tasklets) {
  const int64_t first_edge = positions[0], last_edge = positions[rows];
  const int64_t each = int64_t{cut.cores} * cut.tasklets;
  int64_t* const row_begin = core_rows;
  int64_t* const row_end = core_rows + cut.cores;
  int64_t* const bounds = new int64_t[(cut.cores > cut.tasklets ? cut.cores : cut.tasklets) + 1];

  const bool straddling = cut.coo && cut.cores_by_edge;
  if (straddling) {
    for (int core = 0; core < cut.cores; ++core) {
      const int64_t begin = first_edge + share_begin(last_edge - first_edge, cut.cores, core);
      const int64_t end = first_edge + share_begin(last_edge - first_edge, cut.cores, core + 1);
      const Piece piece = tight(positions, rows, begin, end);
      row_begin[core] = piece.row_begin;
      row_end[core] = piece.row_end;
    }
  } else {
    if (cut.coo || cut.cores_by_edge) {
      greedy({positions, first_edge, last_edge}, 0, rows, cut.cores, 1, bounds);
    } else {
      even(0, rows, cut.cores, 1, bounds);
    }
    for (int core = 0; core < cut.cores; ++core) {
      row_begin[core] = bounds[core];
      row_end[core] = bounds[core + 1];
    }
  }

  for (int core = 0; core < cut.cores; ++core) {
    const int64_t r0 = row_begin[core], r1 = row_end[core];
    int64_t e0 = positions[r0], e1 = positions[r1];
    if (straddling) {
      e0 = first_edge + share_begin(last_edge - first_edge, cut.cores, core);
      e1 = first_edge + share_begin(last_edge - first_edge, cut.cores, core + 1);
    }
    const bool exact = cut.coo && cut.threads_by_edge;
    const Window window{positions, e0, e1};
    if (!exact) {
      if (cut.coo || cut.threads_by_edge) {
        greedy(window, r0, r1, cut.tasklets, cut.coo ? 1 : cut.row_granule, bounds);
      } else {
        even(r0, r1, cut.tasklets, cut.row_granule, bounds);
      }
    }
    for (int t = 0; t < cut.tasklets; ++t) {
      Piece piece;
      if (exact) {
        piece = tight(positions, rows, e0 + share_begin(e1 - e0, cut.tasklets, t),
                      e0 + share_begin(e1 - e0, cut.tasklets, t + 1));
      } else {
        piece = {window.before(bounds[t]), window.before(bounds[t + 1]), bounds[t], bounds[t + 1]};
      }
      int64_t* const entry = tasklets + int64_t{core} * cut.tasklets + t;
      entry[0] = piece.edge_begin;
      entry[each] = piece.edge_end;
      entry[2 * each] = piece.row_begin;
      entry[3 * each] = piece.row_end;
      entry[4 * each] = filled[piece.row_end] - filled[piece.row_begin];
    }
  }
  delete[] bounds;
}

}  // namespace onehop::pim
