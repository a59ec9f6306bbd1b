// The two functions of OpenMP's runtime that the engine calls, on plain threads.
//
// ThreadSanitizer does not know how the runtimes of GCC and LLVM wait, and takes every loop for a race. It knows how
// std::thread waits.
#include <thread>
#include <vector>

namespace {
thread_local int number = 0;
}

extern "C" int omp_get_thread_num() { return number; }

extern "C" void GOMP_parallel(void (*body)(void*), void* data, unsigned threads, unsigned) {
  std::vector<std::thread> others;
  for (unsigned thread = 1; thread < threads; ++thread) {
    others.emplace_back([=] {
      number = static_cast<int>(thread);
      body(data);
    });
  }
  const int outer = number;
  number = 0;
  body(data);
  number = outer;
  for (std::thread& other : others) other.join();
}
