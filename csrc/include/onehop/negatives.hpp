// Pairs of nodes without an edge, drawn with the numbers of Python's generator.
#pragma once

#include <cstdint>

#include "onehop/block.hpp"

namespace onehop {

// The pairs that are drawn from. They are numbered row by row.
enum class PairKind : int {
  all,       // every pair
  no_loops,  // without the pairs of a node with itself
  upper,     // those whose column is greater than their row
};

// The edges of a graph as pairs; those that are not of the kind do not count.
struct EdgePairs {
  PairKind kind;
  int64_t population;  // pairs of the kind, fewer than 2^60
  int64_t rows, cols;  // nodes; equal numbers, except for PairKind::all
  bool loops;          // of PairKind::all: every pair of a node with itself counts as an edge
  const int64_t* row;
  const int64_t* col;
  int64_t row_stride, col_stride;
  int64_t edges;
};

// Samples of pairs, as Python's random.sample(range(population), size) draws them.
struct SampleArgs {
  int64_t size;    // of a sample, at most the population: then a sample is all pairs in order
  bool pool;       // draw from a list of the pairs that are left; else draw again what was drawn before
  int64_t wanted;  // pairs without an edge; up to three samples are drawn until there are so many
  int64_t* state;  // [625]: the generator's block, and the place in it; is moved on
  int64_t* pairs;  // [wanted]: the numbers of the pairs that were drawn
};

// Number of edges of the kind, with repetitions; -1 if a node is out of range.
int64_t count_pairs(const EdgePairs& edges);

// Draws pairs without an edge; returns their number. All nodes are in range.
int64_t draw_pairs(const EdgePairs& edges, const SampleArgs& sample);

// Writes both ends of pairs. Of PairKind::upper, rows and columns are [2 * count]: the other direction comes second.
void write_pairs(const EdgePairs& kind, const int64_t* pairs, int64_t count, int64_t* row, int64_t* col);

// What is known of pairs: a byte for each, or a hash table where that is smaller.
class PairTable {
 public:
  // The edges are marked, whose nodes are all in range; there is room for so many other pairs.
  PairTable(const EdgePairs& edges, int64_t room);

  // Calls body with the slots, as bytes or as a hash table.
  template <class Body>
  auto with_slots(const Body& body) const;

  // Gives other columns to some edges. Writes the numbers of those that are edges of the graph as well; returns how
  // many. `which`, [count], has the numbers of the edges; null means all in order.
  int64_t find(const EdgePairs& edges, const int64_t* which, const int64_t* col, int64_t count, int64_t* found) const;

 private:
  Block memory_;
  int hash_bits_ = 0;  // the hash table has 2^hash_bits_ slots; 0: there is a byte for each pair
};

}  // namespace onehop
