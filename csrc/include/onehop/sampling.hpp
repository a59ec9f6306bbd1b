// Neighbours drawn around seeds, hop by hop: the edges of a mini-batch, sorted by destination.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "onehop/csr.hpp"

namespace onehop {

// The edges of one relation in compressed sparse rows of destinations. The arrays belong to the caller, who keeps them
// as long as the relation is in use; their contents are checked where they are read.
struct SampledRelation {
  const int64_t* rowptr = nullptr;  // [rows + 1]
  const void* col = nullptr;        // [edges], int32, or int64 with `wide_col`
  int64_t rows = 0, cols = 0, edges = 0;
  bool wide_col = false;
  int src_type = 0, dst_type = 0;      // numbers of the node types of columns and rows
  const double* weight = nullptr;      // [edges]; null: every edge is as likely
  const double* running = nullptr;     // [edges], sums of `weight` from the first edge of each row on; for replacement
  const int64_t* edge_time = nullptr;  // [edges], ascending in every row
  const int64_t* src_time = nullptr;   // [cols], ascending along every row's columns
  std::vector<int64_t> fan_out;        // for each hop: how many edges of a row; -1: all
};

// Fills `running` of a relation whose rows are known to be sound.
void running_sums(const int64_t* rowptr, int64_t rows, const double* weight, double* running, int threads);

// The seeds of one node type.
struct Seeds {
  const int64_t* node = nullptr;  // [count]
  int64_t count = 0;
  int64_t num_nodes = 0;          // of this type in the whole graph
  const int64_t* time = nullptr;  // [count]: no later neighbour is drawn; null without times
  int64_t first_tree = 0;         // number of the first seed's tree; trees of all types are numbered together
};

struct DrawOptions {
  uint64_t key = 0;  // what all random numbers of the batch depend on
  int hops = 0;
  int threads = 1;
  bool replace = false;
  bool disjoint = false;  // every seed is the root of a tree of its own
  bool last = false;      // with times: the latest neighbours, not any of them
  bool induced = false;   // at the end: all edges between the nodes found, in place of those drawn
  bool shared = false;    // rows draw the same sources where they can; without weights and replacement
};

// What keeps a batch from being drawn; `where` in the result says of which entry.
enum class DrawProblem {
  none,
  seed_out_of_range,  // relation: the type; where: the number of the seed
  damaged_rows,       // where: the row
  col_out_of_range,   // where: the edge
  unsorted_times,     // where: the row
  no_weight,          // where: the row
  too_many_nodes,
};

struct DrawResult {
  DrawProblem problem = DrawProblem::none;
  int64_t relation = 0, where = 0;
};

// A batch that is being drawn, and the memory for it, which is kept for the next one. Not for two threads at once.
class Drawing {
 public:
  Drawing(int types, std::vector<SampledRelation> relations);
  ~Drawing();
  Drawing(const Drawing&) = delete;
  Drawing& operator=(const Drawing&) = delete;

  DrawResult draw(const std::vector<Seeds>& seeds, const DrawOptions& options);

  // Of the last batch. Nodes of a type, the seeds first, then hop by hop; edges of a relation, sorted by destination.
  int64_t nodes(int type) const;
  int64_t edges(int relation) const;
  const std::vector<int64_t>& nodes_per_hop(int type) const;       // [hops + 1]
  const std::vector<int64_t>& edges_per_hop(int relation) const;   // [hops]; empty for induced ones
  void write_nodes(int type, int64_t* node, int64_t* tree) const;  // [nodes] each; `tree` may be null
  // The ends of the edges in the batch's numbers, and the numbers of the edges in the relation, [edges] each.
  void write_edges(int relation, int64_t* src, int64_t* dst, int64_t* edge, int threads) const;
  // The same edges as a graph with as many rows and columns as nodes of the types. Null when memory runs out.
  std::shared_ptr<Csr> csr(int relation) const;

  struct State;

 private:
  std::unique_ptr<State> state_;
};

}  // namespace onehop
