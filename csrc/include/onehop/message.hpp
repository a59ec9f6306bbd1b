// A message as a program over the rows of a tile of edges, and what running it over a graph takes. Raw pointers only.
//
// The values of a program are numbered: its operands first, then the results of its steps. A value has a row of
// `width` numbers for every edge of the tile.
#pragma once

#include <cstdint>

#include "onehop/csr.hpp"

namespace onehop {

enum class DType : int;

// Most edges of a tile, and most values of a program.
inline constexpr int64_t kMostTileEdges = 16;
inline constexpr int kMostMessageValues = 256;
inline constexpr int kMostMessageOperands = 64;
// Rows of a multiple of so many numbers are read where they lie; others are copied into the tile.
inline constexpr int64_t kWholeRow = 16;

// Which row of an operand belongs to an edge: of the edge's row, its column, or its number; the one row that there is;
// or none: the operand is a matrix.
enum class RowOf : int { row, col, edge, fixed, matrix };

// What a step does with rows a and b (and a gradient g in place of a), and numbers p and q.
enum class MessageOp : int {
  spread,           // each p numbers of a, over and over, side by side; p = 0 is p = 1
  collect,          // sums of so many consecutive p numbers of a, number by number; likewise
  largest,          // the largest of them, where NaN wins; likewise
  product,          // a times the matrix b
  add,              // a + b
  subtract,         // a - b
  multiply,         // a b
  divide,           // a / b
  shift,            // a + p
  scale,            // a p
  invert,           // p / a
  negate,           // -a
  absolute,         // |a|
  relu,             // a, but 0 where a < 0
  leaky_relu,       // a where a > 0, else a p
  sigmoid,          // 1 / (1 + exp(-a))
  tanh,             //
  erf,              // the error function: 2 / sqrt(pi) times the integral of exp(-t t) from 0 to a
  softplus,         // log(1 + exp(p a)) / p; a where p a > q
  elu,              // a where a > 0, else p (exp(a) - 1)
  exp,              //
  log,              //
  sqrt,             //
  clamp,            // a, but p where a < p and q where a > q
  absolute_grad,    // g times the sign of b
  relu_grad,        // g, but 0 where b <= 0
  leaky_relu_grad,  // g where b > 0, else g p
  sigmoid_grad,     // g (1 - b) b
  tanh_grad,        // g (1 - b b)
  softplus_grad,    // g sigmoid(p b); g where p b > q
  elu_grad,         // g where b > 0, else g p exp(b)
  clamp_grad,       // g where p <= b <= q, else 0
  equal,            // 1 where a = b, else 0
};

// Where a value goes: added up over each row of the graph, written for each edge by its number, added up over all
// edges; or the products of each number of a first value with each number of a second, added up over all edges; or the
// largest or smallest over each row, where NaN wins.
enum class Sink : int { row_sum, edge, total, outer, row_max, row_min };

struct MessageOperand {
  RowOf of;
  int64_t width;
  int64_t place;  // of its copy in the tile's memory, in numbers; -1 where rows are read where they lie
};

struct MessageStep {
  MessageOp op;
  int a, b;  // numbers of values; b is -1 where there is none
  int64_t width;
  int64_t place;  // of its result in the tile's memory, in numbers
  double p, q;
};

struct MessageResult {
  Sink sink;
  int value, other;  // `other`: the second value of an outer product
  int64_t width;     // numbers of the result for a row, an edge, or for all
  int64_t offset;    // in a slot, or in the sums over all edges
};

struct MessageArray {
  void* data;
  int64_t stride;  // between rows
};

// Sums over all edges are made in so many groups of consecutive items, at most, whatever the threads; their order is
// that of the groups.
inline constexpr int64_t kMostMessageGroups = 64;
inline int64_t message_groups(int64_t items, int64_t total_width) {
  return total_width > 0 && items > kMostMessageGroups ? kMostMessageGroups : items;
}

struct MessageArgs {
  const Csr* csr;
  const WorkList* work;
  DType dtype;  // float32 or float64
  int threads;
  int prefetch;          // how many edges ahead a row is asked for
  int64_t tile;          // edges
  int64_t memory_width;  // numbers of a tile's memory
  int64_t slot_width;    // numbers of all sums over a row
  int64_t total_width;   // numbers of all sums over all edges
  int operand_count, step_count, result_count;
  const MessageOperand* operands;
  const MessageStep* steps;
  const MessageResult* results;
  const MessageArray* inputs;   // of the operands
  const MessageArray* outputs;  // of the results
  void* memory;                 // [threads, memory]
  void* slots;                  // [work->slots, slot_width]: pieces of cut rows
  void* totals;                 // [message_groups, total_width]: what the edges of each group come to
};

}  // namespace onehop
