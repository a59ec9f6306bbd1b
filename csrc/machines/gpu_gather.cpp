// Sectors that the second cache of a GPU fetches from memory: warps in lockstep, a step each in a turn.
#include "gpu_gather.hpp"

#include <algorithm>
#include <vector>

#include "cache.hpp"

namespace onehop::gpu {
namespace {

// Spreads neighbouring sectors over all sets: Fibonacci hashing, then a multiplication instead of a division.
int64_t set_of(int32_t sector, int64_t sets) {
  const uint64_t hash = (static_cast<uint64_t>(sector) * 0x9E3779B97F4A7C15U) >> 32;
  return static_cast<int64_t>((hash * static_cast<uint64_t>(sets)) >> 32);
}

// A warp at edge `edge` of its row, whose edges it goes through once for every tile and pass.
struct Warp {
  int64_t begin, end, edge;
  int32_t round;
};

class Run {
 public:
  Run(const Rows& rows, const Kernel& kernel, int64_t sets, int32_t ways)
      : rows_(rows), kernel_(kernel), tiles_(kernel.sectors / kernel.tile), sets_(sets), cache_(sets, ways) {}

  int64_t missing() {
    for (admit(); !warps_.empty(); admit()) {
      // Rows side by side are read sector by sector, in all warps; others as a whole.
      const int32_t together = kernel_.lanes > 1 ? 1 : kernel_.tile;
      for (int32_t sector = 0; sector < kernel_.tile; sector += together) {
        for (const Warp& warp : warps_) read(warp, sector, sector + together);
      }
      for (Warp& warp : warps_) step(warp);
      retire();
    }
    return missing_;
  }

 private:
  bool is_done(const Warp& warp) const { return warp.edge == warp.end; }

  // Whole blocks, in the order of their rows, as long as there is room. Blocks without an edge take no time.
  void admit() {
    const auto room = static_cast<size_t>(kernel_.resident * kernel_.block_warps);
    while (warps_.size() < room && next_ < rows_.rows) {
      const size_t first = warps_.size();
      for (int32_t warp = 0; warp < kernel_.block_warps; ++warp, ++next_) {
        const int64_t begin = rows_.rowptr[std::min(next_, rows_.rows)];
        const int64_t end = rows_.rowptr[std::min(next_ + 1, rows_.rows)];
        warps_.push_back({begin, end, begin, 0});
      }
      if (std::all_of(warps_.begin() + first, warps_.end(), [&](const Warp& warp) { return is_done(warp); })) {
        warps_.resize(first);
      }
    }
  }

  void read(const Warp& warp, int32_t begin, int32_t end) {
    const int64_t last = std::min(warp.edge + kernel_.lanes, warp.end);
    for (int64_t edge = warp.edge; edge < last; ++edge) {
      const int32_t first = rows_.col[edge] * kernel_.sectors + warp.round % tiles_ * kernel_.tile;
      for (int32_t sector = first + begin; sector < first + end; ++sector) {
        missing_ += cache_.misses(set_of(sector, sets_), sector);
      }
    }
  }

  void step(Warp& warp) const {
    if (is_done(warp)) return;
    warp.edge = std::min(warp.edge + kernel_.lanes, warp.end);
    if (is_done(warp) && warp.round < tiles_ * kernel_.passes - 1) {
      warp.edge = warp.begin;
      ++warp.round;
    }
  }

  // Blocks all of whose warps are done make room for others.
  void retire() {
    auto kept = warps_.begin();
    for (auto block = warps_.begin(); block != warps_.end(); block += kernel_.block_warps) {
      const auto end = block + kernel_.block_warps;
      if (std::all_of(block, end, [&](const Warp& warp) { return is_done(warp); })) continue;
      kept = std::move(block, end, kept);
    }
    warps_.erase(kept, warps_.end());
  }

  const Rows rows_;
  const Kernel kernel_;
  const int32_t tiles_;
  const int64_t sets_;
  Cache cache_;
  std::vector<Warp> warps_;  // of resident blocks, in the order of their rows
  int64_t next_ = 0;         // row of the next block
  int64_t missing_ = 0;
};

}  // namespace

int64_t missing_sectors(const Rows& rows, const Kernel& kernel, int64_t sets, int32_t ways) {
  if (sets == 0) return rows.rowptr[rows.rows] * kernel.sectors * kernel.passes;
  return Run(rows, kernel, sets, ways).missing();
}

}  // namespace onehop::gpu
