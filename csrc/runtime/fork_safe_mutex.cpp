#include "onehop/fork_safe_mutex.hpp"

#include <pthread.h>

#include "onehop/block.hpp"

namespace onehop {
namespace {

// Held shared with every lock, and exclusively over a fork.
class ForkGate {
 public:
  ForkGate() { renew(); }
  // For a forked process as well: the C library identifies the thread that closed the gate by its number, and the
  // thread has another number there. No other thread can be waiting.
  void renew() {
    pthread_rwlockattr_t attributes;
    pthread_rwlockattr_init(&attributes);
#if defined(__GLIBC__)
    // By default readers have priority, and threads that never pause would block a fork for ever.
    pthread_rwlockattr_setkind_np(&attributes, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
#endif
    pthread_rwlock_init(&lock_, &attributes);
    pthread_rwlockattr_destroy(&attributes);
  }
  void enter() { pthread_rwlock_rdlock(&lock_); }
  void close() { pthread_rwlock_wrlock(&lock_); }
  void leave() { pthread_rwlock_unlock(&lock_); }

 private:
  pthread_rwlock_t lock_;
};

// Never destroyed: locks may be used until the process ends.
ForkGate& fork_gate() {
  static ForkGate* instance = [] {
    // The holder of a lock may allocate memory. The handler registered last runs first before a fork, so the pool,
    // whose turn comes after this one, must be registered by now.
    pool_info();
    pthread_atfork([] { fork_gate().close(); }, [] { fork_gate().leave(); }, [] { fork_gate().renew(); });
    return new ForkGate;
  }();
  return *instance;
}

}  // namespace

void ForkSafeMutex::lock() {
  fork_gate().enter();
  mutex_.lock();
}

void ForkSafeMutex::unlock() {
  mutex_.unlock();
  fork_gate().leave();
}

}  // namespace onehop
