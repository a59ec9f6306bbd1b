#include "onehop/process_memory.hpp"

#if defined(__GLIBC__) || defined(__linux__)
#include <malloc.h>
#include <unistd.h>
#endif

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
void trim_memory() { malloc_trim(0); }
#else
void trim_memory() {}
#endif

}  // namespace onehop
