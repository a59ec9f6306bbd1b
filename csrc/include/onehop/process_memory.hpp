// Control of whether the C library returns freed memory to the system.
#pragma once

#include <cstdint>

namespace onehop {

// With this, freed memory of any size stays with the process, so that the next large tensor has its pages already,
// until more than `most_bytes` are resident. False if the C library has no such control (it is glibc's mallopt).
bool keep_freed_memory(int64_t most_bytes);

// Gives large blocks pages of their own again, as the C library does by default. What is kept stays, for later.
void pause_keeping();

// Restores the C library's steady state, and releases the memory that is free.
void give_back_memory();

// Releases the memory that is currently free.
void trim_memory();

// If freed memory is kept and more is resident than was allowed: releases what is free.
void bound_kept_memory();

// Whether it was more than allowed, since this was last asked.
bool kept_memory_exceeded();

// Bytes of the process that are resident, and the most that ever were; -1 where the system does not say.
int64_t resident_bytes();
int64_t peak_resident_bytes();

}  // namespace onehop
