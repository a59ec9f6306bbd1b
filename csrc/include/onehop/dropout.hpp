// Dropout with the numbers of torch's CPU generator.
#pragma once

#include <cstdint>

#include "onehop/kernels.hpp"
#include "onehop/mersenne.hpp"

namespace onehop {

// out = x * (scale where a number of the stream is below `bound`, else 0), element by element in memory order.
//
// An element's number is the low 53 bits of two words, the first of which is the upper half.
struct DropoutArgs {
  DType dtype;
  int threads;
  bool nontemporal;      // write out past the caches, where its lines allow
  int64_t count;         // elements
  int64_t share;         // fewest elements of a thread, for which jumping ahead in the stream pays
  uint64_t bound;        // up to 2^53
  double scale;          // exact in dtype
  const void* x;         // [count]; null stands for ones
  void* out;             // [count]; null: the mask alone is wanted
  uint64_t* kept;        // [ceil(count / 64)]: bit i % 64 of word i / 64 is 1 where element i is kept; may be null
  unsigned char* state;  // of the generator, as torch's get_state gives it; is moved on
  int64_t state_bytes;
};

// Draws the mask and multiplies. False, with nothing done, where the state has another layout than is known.
bool draw_dropout(const DropoutArgs& args);

// Multiplies by a mask that was drawn.
void apply_dropout(const DropoutArgs& args);

}  // namespace onehop
