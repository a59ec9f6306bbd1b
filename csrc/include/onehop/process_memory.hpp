// Control of whether the C library returns freed memory to the system.
#pragma once

#include <cstdint>

namespace onehop {

// With `keep`, freed memory of any size stays with the process, so that the next large tensor has its pages already.
// Without, the C library's steady state returns and spare memory is released. False if the C library has no such
// control (it is glibc's mallopt).
bool keep_freed_memory(bool keep);

// Releases the memory that is currently free.
void trim_memory();

// If freed memory is kept: releases it if it is more than this.
void bound_kept_memory(int64_t most_bytes);

}  // namespace onehop
