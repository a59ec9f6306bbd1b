// Re-tiling: the order of rows that results from the units' node lists.
#include <cstring>
#include <memory>
#include <new>

#include "ndp.hpp"

namespace onehop::ndp {
namespace {

// The lists of the units while a batch is open: the listed nodes in order of their rows, and each one's unit.
struct Batch {
  int32_t* nodes;
  int64_t size;
  int64_t* next;  // [ranks + 1]: scratch of the merge
  int32_t* sorted;
};

// Each unit's list in turn: a stable sort by unit.
void by_rank(const Work& work, Batch& batch) {
  memset(batch.next, 0, static_cast<size_t>(work.ranks + 1) * sizeof(int64_t));
  for (int64_t i = 0; i < batch.size; ++i) ++batch.next[work.owner[batch.nodes[i]] + 1];
  for (int32_t rank = 0; rank < work.ranks; ++rank) batch.next[rank + 1] += batch.next[rank];
  for (int64_t i = 0; i < batch.size; ++i) batch.sorted[batch.next[work.owner[batch.nodes[i]]]++] = batch.nodes[i];
}

int32_t* emit(const Work& work, Merge merge, Batch& batch, int32_t* out) {
  by_rank(work, batch);
  if (merge != Merge::round_robin) {
    memcpy(out, batch.sorted, static_cast<size_t>(batch.size) * sizeof(int32_t));
    out += batch.size;
  } else {
    // After by_rank, next[rank] is the end of the unit's list, and so the begin of the following one.
    for (int64_t turn = 0, left = batch.size; left > 0; ++turn) {
      for (int32_t rank = 0; rank < work.ranks; ++rank) {
        const int64_t at = (rank == 0 ? 0 : batch.next[rank - 1]) + turn;
        if (at >= batch.next[rank]) continue;
        *out++ = batch.sorted[at];
        --left;
      }
    }
  }
  batch.size = 0;
  return out;
}

}  // namespace

bool retile(const Work& work, Merge merge, const Batches& batches, int32_t* order) {
  const std::unique_ptr<uint8_t[]> listed(new (std::nothrow) uint8_t[work.rows]());
  const std::unique_ptr<int32_t[]> nodes(new (std::nothrow) int32_t[work.rows]);
  const std::unique_ptr<int32_t[]> sorted(new (std::nothrow) int32_t[work.rows]);
  const std::unique_ptr<int64_t[]> next(new (std::nothrow) int64_t[work.ranks + 1]);
  if (listed == nullptr || nodes == nullptr || sorted == nullptr || next == nullptr) return false;
  Batch batch{nodes.get(), 0, next.get(), sorted.get()};
  const int64_t last = (work.rows - 1) / batches.nodes;
  int64_t total = 0;
  for (int64_t row = 0; row < work.rows; ++row) {
    // Batches that are full; what is scanned after all nodes are listed counts for the last one.
    int64_t full = total / batches.nodes < last ? total / batches.nodes : last;
    ++batches.rows[full];
    for (int64_t edge = work.rowptr[row]; edge < work.rowptr[row + 1]; ++edge) {
      const int32_t source = work.col[edge];
      ++batches.edges[full * work.ranks + work.owner[source]];
      if (listed[source] != 0) continue;
      listed[source] = 1;
      batch.nodes[batch.size++] = source;
      ++total;
      if (merge == Merge::rows || batch.size < batches.nodes) continue;
      order = emit(work, merge, batch, order);
      if (full < last) ++full;
    }
    // A merge row by row goes rank by rank over the nodes of one row: the units process the rows in step.
    if (merge == Merge::rows) order = emit(work, merge, batch, order);
  }
  order = emit(work, merge, batch, order);
  // Nodes that are never read are in no list, and come last.
  for (int64_t row = 0; row < work.rows; ++row) {
    if (listed[row] == 0) *order++ = static_cast<int32_t>(row);
  }
  return true;
}

}  // namespace onehop::ndp
