#include "onehop/process_memory.hpp"

#if defined(__GLIBC__) || defined(__linux__)
#include <malloc.h>
#endif

namespace onehop {

#if defined(__GLIBC__)

bool keep_freed_memory(bool keep) {
  // By default glibc maps every block over a threshold anew and unmaps it when freed: each large tensor then
  // faults all its pages in again. No mappings and no trimming keeps them. The threshold that glibc grows by
  // itself ends at 32 MiB (and trims at twice that), so this is what is restored; see mallopt(3).
  constexpr int kMaxThreshold = 32 << 20;
  constexpr int kDefaultMappings = 65536;
  bool done = mallopt(M_MMAP_MAX, keep ? 0 : kDefaultMappings) == 1;
  done = mallopt(M_TRIM_THRESHOLD, keep ? -1 : 2 * kMaxThreshold) == 1 && done;
  if (!keep) {
    done = mallopt(M_MMAP_THRESHOLD, kMaxThreshold) == 1 && done;
    trim_memory();
  }
  return done;
}

void trim_memory() { malloc_trim(0); }

#else

bool keep_freed_memory(bool) { return false; }
void trim_memory() {}

#endif

}  // namespace onehop
