// The gathers of a GPU's kernel through its second cache. Raw pointers only.
#pragma once

#include <cstdint>

namespace onehop::gpu {

// Pieces of rows that warps read, in the order of time. Sector s of piece p has the number p * sectors + s.
struct Gathers {
  const int32_t* piece;  // [turn_end[turns - 1]]
  const int64_t* end;    // [turns]: the pieces of a turn end here, and are read side by side
  int64_t turns;
  int32_t sectors;  // of a piece; the last sector's number fits 31 bits
  bool whole;       // a step reads a whole piece, or one sector of it: then each sector of all pieces before the next
};

// The number of sectors that miss an LRU cache of `sets` times `ways` sectors, whose sets are hashed. No sets: all.
// Negative if memory runs out.
int64_t missing_sectors(const Gathers& gathers, int64_t sets, int32_t ways);

}  // namespace onehop::gpu
