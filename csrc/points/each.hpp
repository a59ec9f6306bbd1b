// Tasks that may run out of memory.
#pragma once

#include <atomic>
#include <cstdint>
#include <new>

#include "onehop/parallel.hpp"

namespace onehop {

// Runs body(task) for every task on several threads. Throws std::bad_alloc here if one did there.
template <class Body>
void for_each(int64_t tasks, int threads, Body&& body) {
  struct Context {
    Body& body;
    std::atomic<bool> failed{false};
  } context{body};
  parallel_for(
      tasks, threads,
      [](void* pointer, int64_t task, int) {
        auto& run = *static_cast<Context*>(pointer);
        try {
          run.body(task);
        } catch (const std::bad_alloc&) {
          run.failed = true;
        }
      },
      &context);
  if (context.failed) throw std::bad_alloc();
}

}  // namespace onehop
