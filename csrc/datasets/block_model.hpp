// A degree-corrected block model with many communities, in three steps: pairs inside communities, pairs between
// them, and the rows of the symmetric graph. Nodes are numbered community by community until the last step.
#pragma once

#include <cstdint>

namespace onehop {

// A pair of nodes: the smaller number in the upper half.
using NodePair = uint64_t;

// Pairs inside the communities [first, last). Community c holds the nodes [starts[c], starts[c + 1]); its nodes
// i < j are joined with chance min(1, demand[i] demand[j] / total demand of c). Adds to `degrees` what each node got.
// Returns the number of pairs, or -1 when there were more than `capacity`.
struct InsideCall {
  const int64_t* starts;
  const double* demand;
  int64_t first, last;
  uint64_t seed;
  NodePair* pairs;
  int64_t capacity;
  double* degrees;
  int threads;
};
int64_t draw_inside(const InsideCall& call);

// Table for draws in proportion to weights: entry i keeps i with chance threshold[i] / 2^32, else gives alias[i].
// Algorithm: M. Vose, "A linear algorithm for generating random numbers with a given distribution", IEEE TSE 17 (1991).
bool build_alias(const double* weights, int64_t count, uint32_t* threshold, int32_t* alias);

// Pairs between communities, repeats included: both ends drawn from the table. One stream for every kDrawsPerTask
// draws, numbered from `first_stream`. Returns the number of pairs, at most `draws`.
constexpr int64_t kDrawsPerTask = 1 << 16;
struct BetweenCall {
  const uint32_t* threshold;
  const int32_t* alias;
  const int32_t* community;  // of every node
  int64_t nodes;
  int64_t draws;  // a multiple of kDrawsPerTask
  uint64_t seed, first_stream;
  NodePair* pairs;
  int threads;
};
int64_t draw_between(const BetweenCall& call);

// Compressed sparse rows with both directions of every pair, columns ascending. Pairs are renumbered through
// `number`, in place: afterwards they hold the final numbers.
struct RowsCall {
  NodePair* pairs;
  int64_t count;
  const int32_t* number;
  int64_t nodes;
  int64_t* rowptr;
  int32_t* col;
  int threads;
};
void symmetric_rows(const RowsCall& call);

}  // namespace onehop
