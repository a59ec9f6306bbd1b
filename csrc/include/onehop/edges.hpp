// Edges as two columns of numbers: sorted, and chosen by marks of their nodes.
#pragma once

#include <cstdint>

#include "onehop/sorted_keys.hpp"

namespace onehop {

// The rows and columns of `count` edges, as int32 or int64, without gaps.
struct EdgeColumns {
  const void* row;
  const void* col;
  int64_t count;
  bool is_wide;
};

// One more than the largest row and column, or -1 for both if a number is negative. Edges that are sorted need numbers
// below 2^31.
struct EdgeEnds {
  int64_t rows, cols;
};
EdgeEnds edge_ends(const EdgeColumns& edges, int threads);

// Edges sorted by row, then by column; equal edges keep their order. Of mirrored edges, the same edges with rows and
// columns swapped follow.
class SortedEdges {
 public:
  // `numbered`: whether the keys' notes are the edges' places in the given order. Throws std::bad_alloc, and
  // std::runtime_error where another thread changed the edges meanwhile.
  SortedEdges(const EdgeColumns& edges, EdgeEnds ends, bool mirrored, bool numbered, int threads);

  const SortedKeys& keys() const { return keys_; }

  // Writes rows and columns, of the width that the edges had; with `once`, of equal edges only the first.
  void write_ends(void* row, void* col, bool once, int threads) const;

  // Returns whether the edges, without loops, are as many times in one direction as in the other.
  static bool are_paired(const EdgeColumns& edges, EdgeEnds ends, int threads);

 private:
  SortedEdges(EdgeEnds ends, int64_t count, int note_bits);
  template <class KeyOf, class NoteOf>
  void sort(const KeyOf& key_of, const NoteOf& note_of, int threads);
  template <class Index>
  void write_ends_as(Index* row, Index* col, bool once, int threads) const;

  // A key is the row, then the column.
  int col_bits_;
  bool are_wide_ = true;
  SortedKeys keys_;
};

// Below, marks that are there already stay, except in mark_inner_edges(). Masks of nodes have `nodes` places.

// Marks the edges whose ends are both marked, and no others. Returns false if an end is not in [0, nodes); then the
// marks have no meaning.
bool mark_inner_edges(const EdgeColumns& edges, const bool* node_mask, int64_t nodes, bool* edge_mask, int threads);

// Marks the columns of edges whose rows are marked, and these edges. Returns false if a row, or one of these columns,
// is not in [0, nodes).
bool mark_reached(const EdgeColumns& edges, const bool* from, int64_t nodes, bool* reached, bool* edge_mask,
                  int threads);

// Marks both ends of all edges that are no loops. Returns false if an end is not in [0, nodes).
bool mark_ends(const EdgeColumns& edges, bool* node_mask, int64_t nodes, int threads);

// Writes rows and columns of marked edges. `mapping`, which may be null, has the number to write for each of `nodes`.
// Returns false if such an edge has an end without a number.
bool write_marked(const EdgeColumns& edges, const bool* edge_mask, const void* mapping, int64_t nodes, void* row,
                  void* col, int threads);

}  // namespace onehop
