// Sectors that the second cache of a GPU fetches from memory.
#include "gpu_gather.hpp"

#include "cache.hpp"

namespace onehop::gpu {
namespace {

// Neighbouring sectors are spread over all sets: Fibonacci hashing, then a multiplication in place of a division.
int64_t set_of(int32_t sector, int64_t sets) {
  const uint64_t hash = (static_cast<uint64_t>(sector) * 0x9E3779B97F4A7C15U) >> 32;
  return static_cast<int64_t>((hash * static_cast<uint64_t>(sets)) >> 32);
}

}  // namespace

int64_t missing_sectors(const Gathers& gathers, int64_t sets, int32_t ways) {
  const int64_t pieces = gathers.turns == 0 ? 0 : gathers.end[gathers.turns - 1];
  if (sets == 0) return pieces * gathers.sectors;
  Cache cache(sets, ways);
  if (!cache.has_memory()) return -1;
  int64_t missing = 0;
  const auto read = [&](int64_t at, int32_t sector) {
    const int32_t number = gathers.piece[at] * gathers.sectors + sector;
    missing += cache.misses(set_of(number, sets), number);
  };
  int64_t begin = 0;
  for (int64_t turn = 0; turn < gathers.turns; ++turn) {
    const int64_t end = gathers.end[turn];
    if (gathers.whole) {
      for (int64_t at = begin; at < end; ++at) {
        for (int32_t sector = 0; sector < gathers.sectors; ++sector) read(at, sector);
      }
    } else {
      for (int32_t sector = 0; sector < gathers.sectors; ++sector) {
        for (int64_t at = begin; at < end; ++at) read(at, sector);
      }
    }
    begin = end;
  }
  return missing;
}

}  // namespace onehop::gpu
