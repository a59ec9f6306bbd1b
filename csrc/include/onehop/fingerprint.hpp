// A number that stands for the contents of memory.
#pragma once

#include <cstdint>

namespace onehop {

// Equal contents give equal numbers. Every change of one 8-byte word changes the number for certain, because
// each step is a bijection of the state; changes of several words go unseen with a chance of about 2^-64.
// Not meant to withstand somebody who looks for collisions. Does not depend on the number of threads.
uint64_t fingerprint(const void* data, int64_t bytes, int threads);

// The same of a part: all of an array of up to 256 KiB, and 256 places of 64 bytes, from the first to the last
// at even distances, of a larger one. Constant time; for arrays whose changes are as a rule counted elsewhere.
uint64_t sampled_fingerprint(const void* data, int64_t bytes);

}  // namespace onehop
