// Batches of small graphs, joined from the rows that a data set has of all its graphs.
#pragma once

#include <cstdint>

namespace onehop {

// The graphs of a batch.
struct ChosenGraphs {
  const int64_t* numbers;  // [count]
  int64_t count;
};

// Writes where each chosen graph's rows begin in the batch, and where those of the last one end: bounds[count + 1].
// `slices` says the same of all graphs in the data set. Returns false if the slices do not ascend.
bool join_bounds(const ChosenGraphs& chosen, const int64_t* slices, int64_t* bounds);

// An attribute of all graphs: blocks of rows, such as the two rows of numbers of an edge_index.
struct GraphRows {
  const void* values;     // [blocks, rows], each of row_bytes
  const int64_t* slices;  // where each graph's rows begin, in every block
  int64_t blocks, rows, row_bytes;
};

// Copies the rows of chosen graphs, one graph after the other, in every block. `added`, which may be null, has a number
// for each of them, which is added to its rows; they must be int64 then. Returns false if a graph's rows are not there.
bool join_rows(const ChosenGraphs& chosen, const GraphRows& all, const int64_t* bounds, const int64_t* added,
               void* out);

// Writes each row's graph, by its place among the chosen ones.
void write_graphs(const int64_t* bounds, int64_t count, int64_t* graphs);

}  // namespace onehop
