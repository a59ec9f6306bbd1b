// Arrays that grow and keep their memory from batch to batch, without initialising what will be written anyway.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <type_traits>

namespace onehop {

template <class T>
class Buffer {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  int64_t size() const { return size_; }
  T* data() { return data_.get(); }
  const T* data() const { return data_.get(); }
  T& operator[](int64_t i) { return data_[static_cast<size_t>(i)]; }
  const T& operator[](int64_t i) const { return data_[static_cast<size_t>(i)]; }
  void clear() { size_ = 0; }

  // Makes the array longer by `count` entries without content; returns the first of them.
  T* extend(int64_t count) {
    reserve(size_ + count);
    T* first = data_.get() + size_;
    size_ += count;
    return first;
  }

  void push(T value) { *extend(1) = value; }

  void reserve(int64_t size) {
    if (size <= capacity_) return;
    const int64_t capacity = std::max<int64_t>({size, capacity_ + capacity_ / 2, 64});
    auto moved = std::make_unique_for_overwrite<T[]>(static_cast<size_t>(capacity));
    std::copy_n(data_.get(), size_, moved.get());
    data_ = std::move(moved);
    capacity_ = capacity;
  }

 private:
  std::unique_ptr<T[]> data_;
  int64_t size_ = 0, capacity_ = 0;
};

}  // namespace onehop
