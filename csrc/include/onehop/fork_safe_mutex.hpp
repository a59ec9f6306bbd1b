// A lock of one of many objects that no fork leaves locked.
#pragma once

#include <mutex>

namespace onehop {

// A process that is forked while another thread holds a plain lock has that lock held for ever: the thread did not
// come along. A fork waits until nobody holds a lock of this kind, and those who want one wait until it is done.
// A thread may hold one such lock at a time.
class ForkSafeMutex {
 public:
  void lock();
  void unlock();

 private:
  std::mutex mutex_;
};

}  // namespace onehop
