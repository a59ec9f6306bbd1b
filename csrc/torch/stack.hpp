// The arguments of a call that torch keeps on a stack: from torch.ops below autograd, from TorchScript in inference
// mode, and of operators of other libraries.
#pragma once

#include <concepts>

#include "interface.hpp"

namespace onehop::torch_side {

// c10::IValue: a number or an owning pointer, and a tag.
struct Value {
  void* payload;
  uint32_t tag;
  uint32_t padding;
};

// torch::jit::Stack, a std::vector of values. The arguments of a call are its last ones.
struct Stack {
  Value *begin, *end, *limit;
};

// A kernel whose arguments are on a stack. It replaces them by its results.
using Boxed = void(void* functor, const void* operation, Keys keys, Stack* stack);

// The tags of values: found out from torch (operators.hpp).
struct Tags {
  uint32_t none, tensor, integer, boolean;
};
const Tags& tags();

// The characters of a text on a stack, once it is known where it has them.
bool texts_are_known();
Text text(const Value& value);

inline bool is_none(const Value& value) { return value.tag == tags().none; }
inline bool is_tensor(const Value& value) { return value.tag == tags().tensor; }
inline bool is_integer(const Value& value) { return value.tag == tags().integer; }
inline bool is_boolean(const Value& value) { return value.tag == tags().boolean; }
inline int64_t integer(const Value& value) { return reinterpret_cast<int64_t>(value.payload); }
inline bool boolean(const Value& value) { return *reinterpret_cast<const char*>(&value.payload) != 0; }

// How a kernel's argument of a type is read from a value: `suits` says whether the value is one, and `get` returns it.
// A call with arguments of other types is torch's.
template <class Arg>
struct FromStack;

template <class Arg>
concept IsOnStack = requires(Value& value) {
  { FromStack<Arg>::suits(value) } -> std::same_as<bool>;
};

template <>
struct FromStack<const Tensor&> {
  static bool suits(const Value& value) { return is_tensor(value); }
  static const Tensor& get(const Value& value) { return reinterpret_cast<const Tensor&>(value.payload); }
};
template <>
struct FromStack<Tensor&> {
  static bool suits(const Value& value) { return is_tensor(value); }
  static Tensor& get(Value& value) { return reinterpret_cast<Tensor&>(value.payload); }
};
template <>
struct FromStack<const MaybeTensor&> {
  static bool suits(const Value& value) { return is_tensor(value) || is_none(value); }
  static MaybeTensor get(const Value& value) { return {value.payload, is_tensor(value)}; }
};
template <>
struct FromStack<const Tensors&> {
  static bool suits(const Value&) { return true; }  // the operator's schema says so
  static const Tensors& get(const Value& value) { return reinterpret_cast<const Tensors&>(value.payload); }
};
template <>
struct FromStack<int64_t> {
  static bool suits(const Value& value) { return is_integer(value); }
  static int64_t get(const Value& value) { return integer(value); }
};
template <>
struct FromStack<const Size&> {
  static bool suits(const Value& value) { return is_integer(value); }
  static Size get(const Value& value) { return {integer(value)}; }
};
template <>
struct FromStack<MaybeInteger> {
  static bool suits(const Value& value) { return is_integer(value) || is_none(value); }
  static MaybeInteger get(const Value& value) { return {integer(value), is_integer(value)}; }
};
template <>
struct FromStack<bool> {
  static bool suits(const Value& value) { return is_boolean(value); }
  static bool get(const Value& value) { return boolean(value); }
};
template <>
struct FromStack<MaybeBool> {
  static bool suits(const Value& value) { return is_boolean(value) || is_none(value); }
  static MaybeBool get(const Value& value) { return {is_boolean(value) && boolean(value), is_boolean(value)}; }
};
template <>
struct FromStack<const Scalar&> {
  static bool suits(const Value& value) { return is_integer(value); }
  static IntegerScalar get(const Value& value) { return IntegerScalar(integer(value)); }
};

template <>
struct FromStack<const MaybeScalar&> {
  static bool suits(const Value& value) { return is_none(value); }
  static NoScalar get(const Value&) { return {}; }
};
template <>
struct FromStack<Text> {
  static bool suits(const Value&) { return texts_are_known(); }
  static Text get(const Value& value) { return text(value); }
};

// Ends the ownership of a value that suits one of the types above.
inline void release(const Value& value) {
  if (is_none(value) || is_integer(value) || is_boolean(value)) return;
  Tensor* handle = nullptr;  // lists and texts have the same counter of owners as tensors
  interface().new_handle(&handle);
  handle->object = value.payload;
  interface().delete_handle(handle);
}

}  // namespace onehop::torch_side
