#include "onehop/process_memory.hpp"

#if defined(__GLIBC__) || defined(__linux__)
#include <malloc.h>
#endif

#include <algorithm>
#include <atomic>
#include <cstddef>

namespace onehop {

#if defined(__GLIBC__)

namespace {

std::atomic<bool> keeps{false};
// Bytes of the free blocks that have no pages: the least that was free at any time since the last trim.
std::atomic<size_t> without_pages{0};

}  // namespace

bool keep_freed_memory(bool keep) {
  // By default glibc maps every block over a threshold separately and unmaps it when freed: each large tensor then
  // faults all its pages in again. Disabling mappings and trimming keeps them. glibc's adaptive threshold ends at 32
  // MiB (and trims at twice that), so these values are restored; see mallopt(3).
  constexpr int kMaxThreshold = 32 << 20;
  constexpr int kDefaultMappings = 65536;
  bool done = mallopt(M_MMAP_MAX, keep ? 0 : kDefaultMappings) == 1;
  done = mallopt(M_TRIM_THRESHOLD, keep ? -1 : 2 * kMaxThreshold) == 1 && done;
  keeps = keep;
  if (!keep) {
    done = mallopt(M_MMAP_THRESHOLD, kMaxThreshold) == 1 && done;
    trim_memory();
  }
  return done;
}

#if __GLIBC_PREREQ(2, 33)

void trim_memory() {
  malloc_trim(0);
  without_pages = mallinfo2().fordblks;
}

// Blocks that fit no later request would accumulate: torch requests aligned ones, for which glibc before 2.38 needs a
// free block larger than the one that was freed.
void bound_kept_memory(int64_t most_bytes) {
  if (!keeps) return;
  const size_t free_bytes = mallinfo2().fordblks;
  without_pages = std::min(without_pages.load(), free_bytes);
  if (free_bytes - without_pages > static_cast<size_t>(most_bytes)) trim_memory();
}

#else  // mallinfo counts in 32 bits

void trim_memory() { malloc_trim(0); }
void bound_kept_memory(int64_t) {}

#endif

#else

bool keep_freed_memory(bool) { return false; }
void trim_memory() {}
void bound_kept_memory(int64_t) {}

#endif

}  // namespace onehop
