#include "onehop/parallel.hpp"

#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <vector>

namespace onehop {
namespace {

// The entry point behind `#pragma omp parallel` in GCC's runtime; LLVM's and Intel's export it too.
using GompParallel = void (*)(void (*body)(void*), void* data, unsigned threads, unsigned flags);
GompParallel gomp_parallel = nullptr;
using OmpThreadNumber = int (*)();
OmpThreadNumber omp_thread_number = nullptr;

std::atomic<bool> forked{false};
void mark_child() { forked.store(true, std::memory_order_relaxed); }

// Tasks that one thread starts with: [next, end). On a separate cache line, since other threads rarely access it.
struct alignas(64) Share {
  std::atomic<int64_t> next;
  int64_t end;
};

struct Region {
  TaskBody body;
  void* context;
  int threads;
  Share* shares;  // [threads]
};

void run_region(void* data) {
  const auto& region = *static_cast<Region*>(data);
  const int thread = omp_thread_number();
  for (int passed = 0; passed < region.threads; ++passed) {
    Share& share = region.shares[(thread + passed) % region.threads];
    while (share.next.load(std::memory_order_relaxed) < share.end) {
      const int64_t task = share.next.fetch_add(1, std::memory_order_relaxed);
      if (task >= share.end) break;
      region.body(region.context, task, thread);
    }
  }
}

}  // namespace

void parallel_for(int64_t tasks, int threads, TaskBody body, void* context) {
  if (threads > tasks) threads = static_cast<int>(tasks);
  if (threads <= 1 || gomp_parallel == nullptr || in_forked_child()) {
    for (int64_t task = 0; task < tasks; ++task) body(context, task, 0);
    return;
  }
  std::vector<Share> shares(static_cast<size_t>(threads));
  for (int thread = 0; thread < threads; ++thread) {
    auto& share = shares[static_cast<size_t>(thread)];
    share.next.store(tasks * thread / threads, std::memory_order_relaxed);
    share.end = tasks * (thread + 1) / threads;
  }
  Region region{body, context, threads, shares.data()};
  gomp_parallel(run_region, &region, static_cast<unsigned>(threads), 0);
}

bool bind_openmp(const char* path) {
  // NOLOAD: the library must be in the process already, else a second runtime would be loaded. dlsym on a handle also
  // searches its dependencies, as torch itself does to find its runtime.
  void* library = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) return false;
  static const bool registered = pthread_atfork(nullptr, nullptr, mark_child) == 0;
  omp_thread_number = reinterpret_cast<OmpThreadNumber>(dlsym(library, "omp_get_thread_num"));
  if (!registered || omp_thread_number == nullptr) return false;
  gomp_parallel = reinterpret_cast<GompParallel>(dlsym(library, "GOMP_parallel"));
  return gomp_parallel != nullptr;
}

bool openmp_bound() { return gomp_parallel != nullptr; }

bool in_forked_child() { return forked.load(std::memory_order_relaxed); }

}  // namespace onehop
