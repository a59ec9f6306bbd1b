// Addresses as Python gives them, and calls without Python's lock.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>

using Address = uintptr_t;  // of an array's first element; 0 = omitted
using Released = nanobind::call_guard<nanobind::gil_scoped_release>;

inline void* at(Address address) { return reinterpret_cast<void*>(address); }

template <class T>
T* at(Address address) {
  return static_cast<T*>(at(address));
}
