// Calls of native code as Python fills them in: one structure a call, each field by its name.
#pragma once

#include <cstdint>
#include <new>
#include <type_traits>
#include <utility>

#include "addresses.hpp"

// An array from so many bytes further on; a null pointer stays one.
template <class T>
T* moved(T* from, int64_t bytes) {
  using Byte = std::conditional_t<std::is_const_v<T>, const char, char>;
  return from == nullptr ? nullptr : reinterpret_cast<T*>(reinterpret_cast<Byte*>(from) + bytes);
}

// Declares a class of Python for the structure `Args`. Numbers and flags are what they are, enumerations their
// numbers, and pointers addresses. All fields begin at 0, which stands for "left out".
template <class Args>
class Call {
 public:
  Call(nanobind::module_& m, const char* name) : bound_(m, name) {
    bound_.def("__init__", [](Args* self) { new (self) Args{}; });
    bound_.def("copy", [](const Args& self) { return Args(self); });
  }

  template <auto kField>
  Call& field(const char* name) {
    using Type = std::remove_reference_t<decltype(std::declval<Args&>().*kField)>;
    if constexpr (std::is_pointer_v<Type>) {
      bound_.def_prop_rw(
          name, [](const Args& self) { return reinterpret_cast<Address>(self.*kField); },
          [](Args& self, Address address) { self.*kField = static_cast<Type>(at(address)); });
    } else if constexpr (std::is_enum_v<Type>) {
      bound_.def_prop_rw(
          name, [](const Args& self) { return static_cast<int>(self.*kField); },
          [](Args& self, int number) { self.*kField = static_cast<Type>(number); });
    } else {
      bound_.def_rw(name, kField);
    }
    return *this;
  }

 private:
  nanobind::class_<Args> bound_;
};
