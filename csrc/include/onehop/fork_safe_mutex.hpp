// A lock, one per object, that no fork leaves locked.
#pragma once

#include <mutex>

namespace onehop {

// In a process that is forked while another thread holds a plain lock, that lock stays locked for ever: the thread does
// not exist there. A fork waits until no thread holds a lock of this kind, and threads that want one wait until it is
// done. A thread may hold one such lock at a time.
class ForkSafeMutex {
 public:
  void lock();
  void unlock();

 private:
  std::mutex mutex_;
};

}  // namespace onehop
