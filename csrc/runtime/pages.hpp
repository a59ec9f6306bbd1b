// Memory of the system by pages: mapped at a huge page's boundary, and discarded in part.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>

namespace onehop {

constexpr int64_t kHugePage = int64_t{2} << 20;

inline int64_t round_up(int64_t bytes, int64_t unit) { return (bytes + unit - 1) / unit * unit; }
inline int64_t round_down(int64_t bytes, int64_t unit) { return bytes / unit * unit; }

// Bytes of the system's ordinary page.
inline int64_t page_bytes() {
  static const int64_t bytes = sysconf(_SC_PAGESIZE);
  return bytes;
}

// A mapping that starts at a huge page's boundary, or null: map more, unmap both ends.
inline void* map_aligned(int64_t bytes) {
  const auto whole = static_cast<size_t>(bytes + kHugePage);
  void* raw = mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (raw == MAP_FAILED) return nullptr;
  const auto begin = reinterpret_cast<uintptr_t>(raw);
  const auto aligned = static_cast<uintptr_t>(round_up(static_cast<int64_t>(begin), kHugePage));
  const size_t before = aligned - begin;
  const size_t after = whole - before - static_cast<size_t>(bytes);
  if (before > 0) munmap(raw, before);
  if (after > 0) munmap(reinterpret_cast<void*>(aligned + static_cast<size_t>(bytes)), after);
  return reinterpret_cast<void*>(aligned);
}

// Asks for huge pages in part of a mapping, from a huge page's boundary on.
inline void want_huge_pages([[maybe_unused]] void* data, [[maybe_unused]] int64_t from, [[maybe_unused]] int64_t to) {
#ifdef MADV_HUGEPAGE
  if (to > from) madvise(static_cast<char*>(data) + from, static_cast<size_t>(to - from), MADV_HUGEPAGE);
#endif
}

// Gives the pages of part of a mapping back; the next touch finds new ones there. False if the system refuses.
inline bool discard(void* data, int64_t from, int64_t to) {
  void* begin = static_cast<char*>(data) + from;
  const auto bytes = static_cast<size_t>(to - from);
#if defined(__linux__)
  return madvise(begin, bytes, MADV_DONTNEED) == 0;
#else  // elsewhere that advice may leave the pages where they are
  return mmap(begin, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED;
#endif
}

}  // namespace onehop
