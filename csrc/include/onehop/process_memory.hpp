// Whether the C library gives freed memory back to the system.
#pragma once

#include <cstdint>

namespace onehop {

// With `keep`, freed memory of any size stays with the process, so that the next large tensor finds its pages
// already there. Without, the C library's steady state returns and spare memory is given back.
// False where the C library has no such control (it is glibc's mallopt).
bool keep_freed_memory(bool keep);

// Gives back what is free at this moment.
void trim_memory();

// Where freed memory is kept: gives it back if it is more than this.
void bound_kept_memory(int64_t most_bytes);

}  // namespace onehop
