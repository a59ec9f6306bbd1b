// Numerical execution of a near-bank machine, core by core and thread by thread, in its own number types.
#pragma once

#include <cstdint>

namespace onehop::pim {

enum class Number { int8, int16, int32, int64, float32, float64 };

// The cut of one part, as cut_part writes it.
struct Cores {
  const int64_t* core_rows;
  const int64_t* tasklets;
  int cores;
  int threads;
};

// One block of columns of the features, and the cut of the clusters that have it.
struct Chunk {
  int64_t begin;
  int64_t end;
  int64_t cut;
};

// The most columns of a chunk.
constexpr int kMostColumns = 16;

struct Part {
  const int64_t* positions;  // rows + 1
  const int32_t* col;        // by position, counted from the part's first column
  const void* weight;        // by position, of x's type; null: ones
  const void* x;             // row 0 is the part's first column
  int64_t columns;           // rows of x
  int64_t x_stride;
  void* out;  // of the sums' type; added to
  int64_t out_stride;
  const Cores* cuts;
};

// Aggregates one part in each chunk's clusters, and adds their results to `out`. Integers wrap as the machine's do.
// False if there is no kernel for the pair of types.
bool execute(Number x, Number sums, const Part& part, const Chunk* chunks, int64_t count, int threads);

}  // namespace onehop::pim
