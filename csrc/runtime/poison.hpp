// Marks memory that no block owns for AddressSanitizer, which knows only malloc's blocks. No-ops in an ordinary build.
#pragma once

#include <cstdint>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace onehop {

#if defined(__SANITIZE_ADDRESS__)

// The first `bytes` bytes of a block may be used; the rest, up to its capacity, may not.
inline void own(void* data, int64_t bytes, int64_t capacity) {
  ASAN_UNPOISON_MEMORY_REGION(data, static_cast<size_t>(capacity));
  ASAN_POISON_MEMORY_REGION(static_cast<char*>(data) + bytes, static_cast<size_t>(capacity - bytes));
}
// The block has no owner: it is kept for later.
inline void disown(void* data, int64_t capacity) { ASAN_POISON_MEMORY_REGION(data, static_cast<size_t>(capacity)); }
// The block is released to the system, which may reuse its addresses.
inline void forget(void* data, int64_t capacity) { ASAN_UNPOISON_MEMORY_REGION(data, static_cast<size_t>(capacity)); }

#else

inline void own(void*, int64_t, int64_t) {}
inline void disown(void*, int64_t) {}
inline void forget(void*, int64_t) {}

#endif

}  // namespace onehop
