// The stream of torch's CPU generator, MT19937: its state, and its state so many words on.
#pragma once

#include <cstdint>

namespace onehop {

// Words of a block of the Mersenne Twister, which are its state too.
inline constexpr int64_t kMersenneWords = 624;

// A generator: a block, and the place in it of the word that comes next; kMersenneWords is the end of the block.
struct Mersenne {
  uint32_t words[kMersenneWords];
  int64_t position;
};

// Replaces a block by the block that begins `words` words on, a positive multiple of kMersenneWords. Takes some tenths
// of a millisecond however far that is, and a millisecond more for a distance that was not asked for lately.
void jump(uint32_t* block, int64_t words);

}  // namespace onehop
