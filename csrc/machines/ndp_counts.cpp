// Edges, distinct sources and touched rows, per block of rows and rank: all that the time of a mapping depends on.
#include <cstring>
#include <memory>
#include <new>

#include "cache.hpp"
#include "ndp.hpp"
#include "onehop/parallel.hpp"

namespace onehop::ndp {
namespace {

struct Job {
  const Work* work;
  const Counts* counts;
  int64_t blocks;
  int32_t* stamps;      // [threads, cols]: the last tile that read the source
  int32_t* row_counts;  // [threads, ranks]
};

void count_block(void* context, int64_t block, int thread) {
  const Job& job = *static_cast<Job*>(context);
  const Work& work = *job.work;
  const Counts& counts = *job.counts;
  int32_t* stamps = job.stamps + thread * work.cols;
  int32_t* in_row = job.row_counts + static_cast<int64_t>(thread) * work.ranks;
  int64_t* edges = counts.edges + block * work.ranks;
  int64_t* reads = counts.reads + block * work.ranks;
  int64_t* bursts = counts.row_bursts + block * work.ranks;
  int64_t* touched = counts.touched + block * counts.touched_stride;
  const int64_t begin = block * counts.block;
  const int64_t end = begin + counts.block < work.rows ? begin + counts.block : work.rows;
  for (int64_t at = begin; at < end; ++at) {
    const auto tile = static_cast<int32_t>(at / counts.tile);
    const int64_t row = work.order == nullptr ? at : work.order[at];
    memset(in_row, 0, static_cast<size_t>(work.ranks) * sizeof(int32_t));
    for (int64_t edge = work.rowptr[row]; edge < work.rowptr[row + 1]; ++edge) {
      const int32_t source = work.col[edge];
      const uint8_t rank = work.owner[source];
      ++in_row[rank];
      if (stamps[source] != tile) {
        stamps[source] = tile;
        ++reads[rank];
      }
    }
    for (int32_t rank = 0; rank < work.ranks; ++rank) {
      edges[rank] += in_row[rank];
      bursts[rank] += (in_row[rank] * counts.entry_bytes + counts.burst_bytes - 1) / counts.burst_bytes;
    }
    int64_t* of_level = touched;
    for (int32_t level = 0; level < counts.levels; ++level) {
      const int32_t pod = counts.pod[level];
      for (int32_t first = 0; first < work.ranks; first += pod) {
        int32_t any = 0;
        for (int32_t rank = first; rank < first + pod; ++rank) any |= in_row[rank];
        of_level[first / pod] += any != 0;
      }
      of_level += work.ranks / pod;
    }
  }
}

}  // namespace

bool count(const Work& work, const Counts& counts, int threads) {
  const int64_t blocks = (work.rows + counts.block - 1) / counts.block;
  const std::unique_ptr<int32_t[]> stamps(new (std::nothrow) int32_t[threads * work.cols]);
  const std::unique_ptr<int32_t[]> in_row(new (std::nothrow) int32_t[static_cast<int64_t>(threads) * work.ranks]);
  if (stamps == nullptr || in_row == nullptr) return false;
  memset(stamps.get(), 0xff, static_cast<size_t>(threads * work.cols) * sizeof(int32_t));
  Job job{&work, &counts, blocks, stamps.get(), in_row.get()};
  parallel_for(blocks, threads, count_block, &job);
  return true;
}

int64_t cache_misses(const Work& work, int64_t entries, int32_t ways) {
  const int64_t sets = entries / ways;
  if (sets == 0) return work.rowptr[work.rows];
  Cache cache(sets, ways);
  int64_t misses = 0;
  for (int64_t at = 0; at < work.rows; ++at) {
    const int64_t row = work.order == nullptr ? at : work.order[at];
    for (int64_t edge = work.rowptr[row]; edge < work.rowptr[row + 1]; ++edge) {
      misses += cache.misses(work.col[edge] % sets, work.col[edge]);
    }
  }
  return misses;
}

}  // namespace onehop::ndp
