// Pooled memory: large blocks come from a pool of huge-page mappings and return to it.
#pragma once

#include <cstdint>
#include <utility>

namespace onehop {

struct PoolInfo {
  int64_t in_use_bytes, kept_bytes, limit_bytes, reused, mapped;
};

// A block of at least `bytes` bytes, 64-byte aligned, or null. Its true size is returned through `capacity`.
void* pool_take(int64_t bytes, int64_t* capacity);
void pool_give(void* data, int64_t capacity);
void pool_clear();
void pool_set_limit(int64_t bytes);
PoolInfo pool_info();

// An owning block, movable.
class Block {
 public:
  Block() = default;
  explicit Block(int64_t bytes) : bytes_(bytes), data_(pool_take(bytes, &capacity_)) {}
  Block(Block&& other) noexcept { swap(other); }
  Block& operator=(Block&& other) noexcept {
    swap(other);
    return *this;
  }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  ~Block() {
    if (data_ != nullptr) pool_give(data_, capacity_);
  }

  void* data() const { return data_; }
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  int64_t bytes() const { return bytes_; }
  explicit operator bool() const { return data_ != nullptr; }

 private:
  void swap(Block& other) noexcept {
    std::swap(bytes_, other.bytes_);
    std::swap(capacity_, other.capacity_);
    std::swap(data_, other.data_);
  }
  int64_t bytes_ = 0;
  int64_t capacity_ = 0;
  void* data_ = nullptr;
};

}  // namespace onehop
