#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <map>
#include <mutex>

#include "onehop/block.hpp"
#include "poison.hpp"

namespace onehop {
namespace {

constexpr int64_t kHugePage = int64_t{2} << 20;
// Below this the C library recycles as well, and a huge page would be mostly empty.
constexpr int64_t kSmallest = int64_t{1} << 20;
// More than any machine has; sizes that are rounded up stay within 64 bits.
constexpr int64_t kLargest = int64_t{1} << 60;
// A kept block may exceed the requested size by this share (1/8), so that it remains usable for other sizes; all
// blocks together may exceed by it what was in use at once.
constexpr int64_t kSlack = 8;
// Where there is no room for another block, it may have this many times the requested size.
constexpr int64_t kLoose = 16;

struct Pool {
  std::mutex mutex;
  std::multimap<int64_t, void*> kept;  // by capacity
  PoolInfo info{0, 0, int64_t{8} << 30, 0, 0};
  int64_t most_bytes = 0;  // that were in use at once

  void use(int64_t capacity) {
    info.in_use_bytes += capacity;
    most_bytes = std::max(most_bytes, info.in_use_bytes);
  }

  // All blocks together never exceed by more than a share what was in use at once. Without the share, a small block
  // that comes when all is kept would have a large one unmapped, which is soon needed again.
  int64_t most_together() const { return most_bytes + most_bytes / kSlack; }

  void make_room(int64_t bytes) {
    const int64_t in_use = info.in_use_bytes + bytes;
    shrink_to(std::max(most_together() - in_use, int64_t{0}));
  }

  void* reuse(int64_t bytes, int64_t* capacity) {
    auto found = kept.lower_bound(bytes);
    // Where a new block would have others unmapped, a block that is much too large does as well.
    const bool is_full = info.in_use_bytes + info.kept_bytes + bytes > most_together();
    const int64_t largest = is_full ? kLoose * bytes : bytes + bytes / kSlack + kHugePage;
    if (found == kept.end() || found->first > largest) return nullptr;
    void* data = found->second;
    *capacity = found->first;
    info.kept_bytes -= found->first;
    info.reused += 1;
    kept.erase(found);
    return data;
  }

  void shrink_to(int64_t limit) {
    while (info.kept_bytes > limit) {
      auto largest = std::prev(kept.end());
      forget(largest->second, largest->first);
      munmap(largest->second, static_cast<size_t>(largest->first));
      info.kept_bytes -= largest->first;
      kept.erase(largest);
    }
  }
};

// Never destroyed: tensors that own a block may outlive every static object. The lock is held over a fork,
// so that the child does not inherit it locked by a thread it does not have.
Pool& pool() {
  static Pool* instance = [] {
    pthread_atfork([] { pool().mutex.lock(); }, [] { pool().mutex.unlock(); }, [] { pool().mutex.unlock(); });
    return new Pool;
  }();
  return *instance;
}

int64_t round_up(int64_t bytes, int64_t unit) { return (bytes + unit - 1) / unit * unit; }

// A mapping that starts at a huge page's boundary: map more, unmap both ends.
void* map_aligned(int64_t bytes) {
  const auto whole = static_cast<size_t>(bytes + kHugePage);
  void* raw = mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (raw == MAP_FAILED) return nullptr;
  const auto begin = reinterpret_cast<uintptr_t>(raw);
  const auto aligned = static_cast<uintptr_t>(round_up(static_cast<int64_t>(begin), kHugePage));
  const size_t before = aligned - begin;
  const size_t after = whole - before - static_cast<size_t>(bytes);
  if (before > 0) munmap(raw, before);
  if (after > 0) munmap(reinterpret_cast<void*>(aligned + static_cast<size_t>(bytes)), after);
  void* data = reinterpret_cast<void*>(aligned);
#ifdef MADV_HUGEPAGE
  madvise(data, static_cast<size_t>(bytes), MADV_HUGEPAGE);
#endif
  return data;
}

}  // namespace

void* pool_take(int64_t bytes, int64_t* capacity) {
  if (bytes < kSmallest) {
    *capacity = round_up(bytes > 0 ? bytes : 1, 64);
    void* data = std::aligned_alloc(64, static_cast<size_t>(*capacity));
    if (data != nullptr) own(data, bytes, *capacity);
    return data;
  }
  if (bytes > kLargest) return nullptr;
  const int64_t wanted = round_up(bytes, kHugePage);
  Pool& p = pool();
  {
    const std::lock_guard<std::mutex> lock(p.mutex);
    if (void* data = p.reuse(wanted, capacity)) {
      p.use(*capacity);
      own(data, bytes, *capacity);
      return data;
    }
    p.make_room(wanted);
  }
  void* data = map_aligned(wanted);
  if (data == nullptr) {  // the kept blocks may occupy the memory
    pool_clear();
    data = map_aligned(wanted);
    if (data == nullptr) return nullptr;
  }
  *capacity = wanted;
  own(data, bytes, wanted);
  const std::lock_guard<std::mutex> lock(p.mutex);
  p.use(wanted);
  p.info.mapped += 1;
  return data;
}

void pool_give(void* data, int64_t capacity) {
  if (capacity < kSmallest) {
    std::free(data);
    return;
  }
  Pool& p = pool();
  const std::lock_guard<std::mutex> lock(p.mutex);
  disown(data, capacity);
  p.kept.emplace(capacity, data);
  p.info.in_use_bytes -= capacity;
  p.info.kept_bytes += capacity;
  p.shrink_to(p.info.limit_bytes);
}

void pool_clear() {
  Pool& p = pool();
  const std::lock_guard<std::mutex> lock(p.mutex);
  p.shrink_to(0);
}

void pool_set_limit(int64_t bytes) {
  Pool& p = pool();
  const std::lock_guard<std::mutex> lock(p.mutex);
  p.info.limit_bytes = bytes;
  p.shrink_to(bytes);
}

PoolInfo pool_info() {
  Pool& p = pool();
  const std::lock_guard<std::mutex> lock(p.mutex);
  return p.info;
}

}  // namespace onehop
