#include <pthread.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <map>
#include <mutex>
#include <unordered_map>

#include "onehop/block.hpp"
#include "pages.hpp"
#include "poison.hpp"

namespace onehop {
namespace {

// Below this the C library recycles as well.
constexpr int64_t kSmallest = int64_t{1} << 20;
// More than any machine has; sizes that are rounded up stay within 64 bits.
constexpr int64_t kLargest = int64_t{1} << 60;
// A kept block may exceed the requested size by this share (1/8), so that it remains usable for other sizes.
constexpr int64_t kSlack = 8;
// Where there is no room for another block, it may have this many times the requested size.
constexpr int64_t kLoose = 16;

// A mapping. Its pages are resident from its beginning on, as far as it has ever been used, or less far where the
// rest was discarded.
struct Mapped {
  int64_t capacity;   // bytes of addresses
  int64_t huge;       // bytes from the beginning on in huge pages
  int64_t resident;   // bytes from the beginning on that may have pages
  int64_t asked = 0;  // bytes that the tensor in it asked for, in pages; 0 while it is kept

  // Bytes that have pages once so many are used: a huge page comes whole.
  int64_t touched(int64_t bytes) const { return bytes <= huge ? round_up(bytes, kHugePage) : bytes; }
  // Bytes that have pages and that nobody uses.
  int64_t spare() const { return resident - (asked > 0 ? touched(asked) : 0); }
};

struct Pool {
  std::mutex mutex;
  std::unordered_map<void*, Mapped> blocks;
  std::multimap<int64_t, void*> kept;  // by capacity
  PoolInfo info{0, 0, int64_t{8} << 30, 0, 0};
  int64_t asked_bytes = 0;  // by the tensors that are alive
  int64_t most_bytes = 0;   // that tensors asked for at once

  // Takes a kept block that serves; the caller lends it.
  void* reuse(int64_t bytes) {
    auto found = kept.lower_bound(bytes);
    // Where a new block would have others discarded, a block that is much too large does as well: of it, too, no more
    // is used than is asked for.
    const bool is_full = info.in_use_bytes + info.kept_bytes + bytes > std::max(most_bytes, asked_bytes + bytes);
    const int64_t largest = is_full ? kLoose * bytes : bytes + bytes / kSlack + kHugePage;
    if (found == kept.end() || found->first > largest) return nullptr;
    void* data = found->second;
    info.kept_bytes -= blocks.at(data).resident;
    info.reused += 1;
    kept.erase(found);
    return data;
  }

  // Has pages discarded until all blocks together hold no more than tensors asked for at once, which is what a program
  // holds that keeps nothing. Pages go rather than blocks: a large block that lacks a few faults in just these.
  void make_room() {
    for (auto each = blocks.begin(); excess() > 0 && each != blocks.end(); ++each) {
      if (each->second.asked > 0) cut(each->first, each->second, excess());
    }
    if (excess() > 0) shrink_to(std::max(info.kept_bytes - excess(), int64_t{0}));
  }

  int64_t excess() const { return info.in_use_bytes + info.kept_bytes - most_bytes; }

  void lend(void* data, int64_t asked) {
    Mapped& block = blocks.at(data);
    const int64_t huge = std::max(block.huge, round_down(asked, kHugePage));
    want_huge_pages(data, block.huge, huge);
    block.huge = huge;
    block.asked = asked;
    block.resident = std::max(block.resident, block.touched(asked));
    info.in_use_bytes += block.resident;
    asked_bytes += asked;
    most_bytes = std::max(most_bytes, asked_bytes);
  }

  // Discards pages that nobody uses from the end of a block: as many bytes, and what is left of a huge page.
  void cut(void* data, Mapped& block, int64_t bytes) {
    const int64_t exact = block.resident - std::min(bytes, block.spare());
    const int64_t until = round_down(exact, exact < block.huge ? kHugePage : page_bytes());
    if (until >= block.resident || !discard(data, until, block.resident)) return;
    (block.asked > 0 ? info.in_use_bytes : info.kept_bytes) -= block.resident - until;
    block.resident = until;
  }

  // Has kept blocks give pages back, the largest first, until no more than this is kept.
  void shrink_to(int64_t limit) {
    while (info.kept_bytes > limit) {
      const auto largest = std::prev(kept.end());
      Mapped& block = blocks.at(largest->second);
      if (block.resident > info.kept_bytes - limit) cut(largest->second, block, info.kept_bytes - limit);
      if (block.resident == 0 || info.kept_bytes > limit) unmap(largest);
    }
  }

  void unmap(std::multimap<int64_t, void*>::iterator entry) {
    void* data = entry->second;
    forget(data, entry->first);
    munmap(data, static_cast<size_t>(entry->first));
    info.kept_bytes -= blocks.at(data).resident;
    blocks.erase(data);
    kept.erase(entry);
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

}  // namespace

void* pool_take(int64_t bytes, int64_t* capacity) {
  if (bytes < kSmallest) {
    *capacity = round_up(bytes > 0 ? bytes : 1, 64);
    void* data = std::aligned_alloc(64, static_cast<size_t>(*capacity));
    if (data != nullptr) own(data, bytes, *capacity);
    return data;
  }
  if (bytes > kLargest) return nullptr;
  const int64_t asked = round_up(bytes, page_bytes());
  Pool& p = pool();
  const std::lock_guard<std::mutex> lock(p.mutex);
  void* data = p.reuse(asked);
  if (data == nullptr) {
    const int64_t wanted = round_up(bytes, kHugePage);
    data = map_aligned(wanted);
    if (data == nullptr) {  // the kept blocks may occupy the memory
      p.shrink_to(0);
      data = map_aligned(wanted);
      if (data == nullptr) return nullptr;
    }
    p.blocks.emplace(data, Mapped{wanted, 0, 0});
    p.info.mapped += 1;
  }
  p.lend(data, asked);
  p.make_room();
  *capacity = p.blocks.at(data).capacity;
  own(data, bytes, *capacity);
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
  Mapped& block = p.blocks.at(data);
  p.asked_bytes -= block.asked;
  block.asked = 0;
  p.kept.emplace(capacity, data);
  p.info.in_use_bytes -= block.resident;
  p.info.kept_bytes += block.resident;
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
