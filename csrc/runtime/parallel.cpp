#include "onehop/parallel.hpp"

#include <dlfcn.h>
#include <pthread.h>

#include <atomic>

namespace onehop {
namespace {

// The entry point behind `#pragma omp parallel` in GCC's runtime; LLVM's and Intel's export it too.
using GompParallel = void (*)(void (*body)(void*), void* data, unsigned threads, unsigned flags);
GompParallel gomp_parallel = nullptr;

std::atomic<bool> forked{false};
void mark_child() { forked.store(true, std::memory_order_relaxed); }

struct Region {
  int64_t tasks;
  TaskBody body;
  void* context;
  std::atomic<int64_t> next_task{0};
  std::atomic<int> next_thread{0};
};

void run_region(void* data) {
  auto& region = *static_cast<Region*>(data);
  const int thread = region.next_thread.fetch_add(1, std::memory_order_relaxed);
  for (;;) {
    const int64_t task = region.next_task.fetch_add(1, std::memory_order_relaxed);
    if (task >= region.tasks) return;
    region.body(region.context, task, thread);
  }
}

}  // namespace

void parallel_for(int64_t tasks, int threads, TaskBody body, void* context) {
  if (threads > tasks) threads = static_cast<int>(tasks);
  if (threads <= 1 || gomp_parallel == nullptr || in_forked_child()) {
    for (int64_t task = 0; task < tasks; ++task) body(context, task, 0);
    return;
  }
  Region region{tasks, body, context};
  gomp_parallel(run_region, &region, static_cast<unsigned>(threads), 0);
}

bool bind_openmp(const char* path) {
  // NOLOAD: the library must be in the process already, else a second runtime would come in.
  // dlsym on a handle also searches what that library depends on, which is how torch itself finds its runtime.
  void* library = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) return false;
  gomp_parallel = reinterpret_cast<GompParallel>(dlsym(library, "GOMP_parallel"));
  static const bool registered = pthread_atfork(nullptr, nullptr, mark_child) == 0;
  return registered && gomp_parallel != nullptr;
}

bool openmp_bound() { return gomp_parallel != nullptr; }

bool in_forked_child() { return forked.load(std::memory_order_relaxed); }

}  // namespace onehop
