// The memory of the process: how much is resident, and what the C library has free.
#pragma once

#include <cstdint>

namespace onehop {

// Releases the C library's memory that is currently free.
void trim_memory();

// Bytes of the process that are resident, and the most that ever were; -1 where the system does not say.
int64_t resident_bytes();
int64_t peak_resident_bytes();

}  // namespace onehop
