// Work sharing on the OpenMP runtime that torch already loaded; no thread pool of our own.
#pragma once

#include <cstdint>

namespace onehop {

// Runs body(context, task, thread) for every task in [0, tasks). Each thread begins with an even share of
// successive tasks, in order: what one task leaves in its cache, or asked for ahead, is often the next one's.
// Who is done takes tasks of others. `thread` lies in [0, threads). Which thread gets which task is not fixed,
// so a task must write to places that belong to the task alone.
using TaskBody = void (*)(void* context, int64_t task, int thread);
void parallel_for(int64_t tasks, int threads, TaskBody body, void* context);

// Binds the runtime found in the shared library at `path` (torch's libtorch_cpu, or one it depends on).
// Returns false when that library offers no GOMP_parallel: every loop then runs on the calling thread.
bool bind_openmp(const char* path);
bool openmp_bound();

// True in a process that was forked after this library was loaded: the runtime's threads did not come along,
// and waking them would wait for ever, so loops run on the calling thread.
bool in_forked_child();

}  // namespace onehop
