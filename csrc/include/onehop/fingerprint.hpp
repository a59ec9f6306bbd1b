// A hash of the contents of memory.
#pragma once

#include <cstdint>

namespace onehop {

// Equal contents give equal numbers. Every change of one 8-byte word changes the number, because each step is a
// bijection of the state; changes of several words go undetected with a probability of about 2^-64. Not resistant to
// deliberate collisions. Does not depend on the number of threads. A tensor that torch keeps as zeros without memory
// has no address, and here no contents.
uint64_t fingerprint(const void* data, int64_t bytes, int threads);

// The same of a sample: all of an array of up to 256 KiB, and 256 evenly spaced places of 64 bytes of a larger one.
// Constant time; for arrays whose changes are usually counted elsewhere.
uint64_t sampled_fingerprint(const void* data, int64_t bytes);

}  // namespace onehop
