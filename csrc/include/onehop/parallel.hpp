// Work sharing on the OpenMP runtime that torch already loaded; without a separate thread pool.
#pragma once

#include <cstdint>

namespace onehop {

// Runs body(context, task, thread) for every task in [0, tasks). Each thread starts with an even share of consecutive
// tasks, in order: data that one task leaves in the cache, or prefetched, are often the next one's. Idle threads steal
// tasks from others. `thread` lies in [0, threads). The assignment of tasks to threads is not fixed, so a task must
// write only to places that belong to it.
using TaskBody = void (*)(void* context, int64_t task, int thread);
void parallel_for(int64_t tasks, int threads, TaskBody body, void* context);

// Binds the runtime found in the shared library at `path` (torch's libtorch_cpu, or one it depends on).
// Returns false when that library offers no GOMP_parallel: every loop then runs on the calling thread.
bool bind_openmp(const char* path);
bool openmp_bound();

// True in a process that was forked after this library was loaded: the runtime's threads do not exist there, and waking
// them would block for ever, so loops run on the calling thread.
bool in_forked_child();

}  // namespace onehop
