// Partitioning of a matrix for a near-bank machine: blocks of columns, then rows or edges for cores and their threads.
#pragma once

#include <cstdint>

namespace onehop::pim {

// Counts the edges of every row in every part of the columns; replaces the counts, for each part, by rows + 1 positions
// into the arrays that fill_parts writes, and rows + 1 running counts of non-empty rows.
void count_parts(const int64_t* rowptr, const int32_t* col, int64_t rows, const uint16_t* part_of, int parts,
                 int threads, int64_t* positions, int32_t* filled);

// Writes each part's columns, counted from the part's first, and, unless null, each edge's original position.
void fill_parts(const int64_t* rowptr, const int32_t* col, int64_t rows, const uint16_t* part_of, int parts,
                const int32_t* first_column, int threads, const int64_t* positions, int32_t* part_col, int64_t* origin);

// For each of `count` ranges of edges, the number of marked columns.
void count_marked(const int32_t* col, const uint8_t* marks, const int64_t* begins, const int64_t* ends, int64_t count,
                  int threads, int64_t* out);

struct Cut {
  int cores;
  int tasklets;
  bool coo;              // else CSR
  bool cores_by_edge;    // else by rows (CSR), or by edges between rows (COO)
  bool threads_by_edge;  // likewise
  int64_t row_granule;   // CSR: threads' rows are cut at its multiples
};

// Cuts one part: for every core its rows (begin, end: two arrays of `cores`), and for every tasklet its edges,
// its rows and how many of these are not empty (five arrays of `cores * tasklets`: edge begin, edge end, row
// begin, row end, filled).
void cut_part(const int64_t* positions, const int32_t* filled, int64_t rows, const Cut& cut, int64_t* core_rows,
              int64_t* tasklets);

}  // namespace onehop::pim
