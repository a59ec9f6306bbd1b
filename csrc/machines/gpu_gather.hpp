// The gathers of a GPU's kernel through its second cache. Raw pointers only.
#pragma once

#include <cstdint>

namespace onehop::gpu {

// A graph: rows are destinations, each of which a warp works on.
struct Rows {
  const int64_t* rowptr;  // [rows + 1]
  const int32_t* col;     // [edges]
  int64_t rows;
};

// How warps read the rows of their sources. All sectors together have numbers of 31 bits.
struct Kernel {
  int64_t resident;     // blocks that run side by side
  int32_t block_warps;  // of a block, which begin together
  int32_t sectors;      // of a source's row
  int32_t tile;         // sectors of a row that a warp reads before it turns to other rows; divides `sectors`
  int32_t lanes;        // rows that it reads side by side: sector by sector if there are several
  int32_t passes;       // times that it reads all that
};

// The number of sectors that miss an LRU cache of `sets` times `ways` sectors, whose sets are hashed. No sets: all.
int64_t missing_sectors(const Rows& rows, const Kernel& kernel, int64_t sets, int32_t ways);

}  // namespace onehop::gpu
