// Memory that a block of the pool does not own, made known to AddressSanitizer, which watches only what malloc gave.
// In an ordinary build these are nothing.
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
// The block is nobody's: it is kept for later.
inline void disown(void* data, int64_t capacity) { ASAN_POISON_MEMORY_REGION(data, static_cast<size_t>(capacity)); }
// The block goes back to the system, which may give its addresses to anybody.
inline void forget(void* data, int64_t capacity) { ASAN_UNPOISON_MEMORY_REGION(data, static_cast<size_t>(capacity)); }

#else

inline void own(void*, int64_t, int64_t) {}
inline void disown(void*, int64_t) {}
inline void forget(void*, int64_t) {}

#endif

}  // namespace onehop
