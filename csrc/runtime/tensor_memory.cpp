#include "onehop/tensor_memory.hpp"

#include <dlfcn.h>

#include <atomic>
#include <cstddef>
#include <mutex>
#include <unordered_map>

#include "onehop/block.hpp"
#include "onehop/fork_safe_mutex.hpp"
#include "onehop/imports.hpp"

namespace onehop {
namespace {

// c10, torch's lowest library, is where tensors of the CPU are allocated and freed, by these functions of the C
// library. Its official hook, c10::SetCPUAllocator, is a C++ interface that differs from release to release.
constexpr const char* kLibrary = "libc10.so";
using Allocate = int (*)(void**, size_t, size_t);
using Release = void (*)(void*);
Allocate c_allocate = nullptr;
Release c_release = nullptr;

// The pool's blocks are huge pages, and smaller tensors would leave most of one empty.
constexpr size_t kSmallest = size_t{4} << 20;
// Where the pool's blocks of this size begin.
constexpr uintptr_t kBoundary = uintptr_t{2} << 20;
constexpr size_t kMostAlignment = kBoundary;
// glibc maps every block above a threshold by itself, and unmaps it when it is freed; each such block that is freed
// raises the threshold to its size, up to this one.
constexpr size_t kMostMapped = (size_t{32} << 20) - (size_t{64} << 10);

std::atomic<bool> keeps{false};

// Capacities of the blocks that tensors have, by address.
class Lent {
 public:
  void add(void* data, int64_t capacity) {
    const std::lock_guard<ForkSafeMutex> lock(mutex_);
    capacities_.emplace(data, capacity);
  }
  // 0 if the block is not the pool's.
  int64_t remove(void* data) {
    const std::lock_guard<ForkSafeMutex> lock(mutex_);
    const auto found = capacities_.find(data);
    if (found == capacities_.end()) return 0;
    const int64_t capacity = found->second;
    capacities_.erase(found);
    return capacity;
  }
  bool has(const void* data) {
    const std::lock_guard<ForkSafeMutex> lock(mutex_);
    return capacities_.count(const_cast<void*>(data)) != 0;
  }

 private:
  ForkSafeMutex mutex_;
  std::unordered_map<void*, int64_t> capacities_;
};

// Never destroyed: tensors may be freed until the process ends.
Lent& lent() {
  static auto* instance = new Lent;
  return *instance;
}

int allocate(void** out, size_t alignment, size_t bytes) {
  if (keeps.load(std::memory_order_relaxed) && bytes >= kSmallest && alignment <= kMostAlignment) {
    int64_t capacity = 0;
    if (void* data = pool_take(static_cast<int64_t>(bytes), &capacity)) {
      lent().add(data, capacity);
      *out = data;
      return 0;
    }
  }
  return c_allocate(out, alignment, bytes);
}

void release(void* data) {
  // Every tensor that torch frees comes by; hardly any other than the pool's lies on such a boundary.
  if (data != nullptr && reinterpret_cast<uintptr_t>(data) % kBoundary == 0) {
    if (const int64_t capacity = lent().remove(data); capacity != 0) return pool_give(data, capacity);
  }
  c_release(data);
}

// Raises the C library's threshold, as large tensors would that go to the pool now. Without it, tensors just below
// kSmallest would be mapped, or their pages given back, each time.
void raise_threshold() {
  void* data = nullptr;
  if (c_allocate(&data, 64, kMostMapped) == 0) c_release(data);
}

bool redirect() {
  c_allocate = reinterpret_cast<Allocate>(dlsym(RTLD_DEFAULT, "posix_memalign"));
  c_release = reinterpret_cast<Release>(dlsym(RTLD_DEFAULT, "free"));
  lent();
  raise_threshold();
  return redirect_imports(
      kLibrary, {{"free", reinterpret_cast<void*>(&release)}, {"posix_memalign", reinterpret_cast<void*>(&allocate)}});
}

}  // namespace

bool keep_tensor_memory() {
  static const bool redirected = redirect();
  keeps = redirected;
  return redirected;
}

void pause_keeping() { keeps = false; }

bool is_from_pool(const void* data) { return lent().has(data); }

}  // namespace onehop
