#include "onehop/process_memory.hpp"

#if defined(__GLIBC__) || defined(__linux__)
#include <malloc.h>
#include <unistd.h>
#endif

#include <atomic>
#include <cstdint>
#include <cstdio>

namespace onehop {

#if defined(__linux__)

int64_t resident_bytes() {
  std::FILE* file = std::fopen("/proc/self/statm", "re");
  if (file == nullptr) return -1;
  long long total = 0;
  long long resident = -1;
  const int found = std::fscanf(file, "%lld %lld", &total, &resident);
  std::fclose(file);
  return found == 2 ? resident * sysconf(_SC_PAGESIZE) : -1;
}

// Not getrusage's ru_maxrss, which counts the parent's memory before exec as well.
int64_t peak_resident_bytes() {
  std::FILE* file = std::fopen("/proc/self/status", "re");
  if (file == nullptr) return -1;
  char line[256];
  long long kilobytes = -1;
  while (std::fgets(line, sizeof(line), file) != nullptr && std::sscanf(line, "VmHWM: %lld", &kilobytes) != 1) {
  }
  std::fclose(file);
  return kilobytes < 0 ? -1 : static_cast<int64_t>(kilobytes) << 10;
}

#else

int64_t resident_bytes() { return -1; }
int64_t peak_resident_bytes() { return -1; }

#endif

#if defined(__GLIBC__)

namespace {

std::atomic<bool> keeps{false};
std::atomic<bool> exceeded{false};
std::atomic<int64_t> allowed_bytes{0};

// glibc's adaptive threshold ends at 32 MiB, and it trims at twice that; see mallopt(3).
constexpr int kMaxThreshold = 32 << 20;
constexpr int kDefaultMappings = 65536;

}  // namespace

// By default glibc maps every block over a threshold separately and unmaps it when freed: each large tensor then
// faults all its pages in again. Without mappings and trimming they stay.
bool keep_freed_memory(int64_t most_bytes) {
  allowed_bytes = most_bytes;
  exceeded = false;
  bool done = mallopt(M_MMAP_MAX, 0) == 1;
  done = mallopt(M_TRIM_THRESHOLD, -1) == 1 && done;
  keeps = done;
  return done;
}

void pause_keeping() {
  keeps = false;
  mallopt(M_MMAP_MAX, kDefaultMappings);
  mallopt(M_MMAP_THRESHOLD, kMaxThreshold);
}

void give_back_memory() {
  pause_keeping();
  mallopt(M_TRIM_THRESHOLD, 2 * kMaxThreshold);
  trim_memory();
}

void trim_memory() { malloc_trim(0); }

// Blocks that fit no later request accumulate: of many sizes, and aligned ones as torch requests them, for which
// glibc before 2.38 needs a free block larger than the one that was freed.
void bound_kept_memory() {
  if (keeps && resident_bytes() > allowed_bytes) {
    exceeded = true;
    trim_memory();
  }
}

bool kept_memory_exceeded() { return exceeded.exchange(false); }

#else

bool keep_freed_memory(int64_t) { return false; }
void pause_keeping() {}
void give_back_memory() {}
void trim_memory() {}
void bound_kept_memory() {}
bool kept_memory_exceeded() { return false; }

#endif

}  // namespace onehop
