// What onehop knows of torch's C++ side, without a header of torch: one build serves every release.
//
// Functions are found by their names in the loaded libraries. Of values that torch passes, their size, whether they are
// passed in memory, and what is read of them is written here; whatever can differ between releases is found out from
// torch itself (operators.hpp).
#pragma once

#include <cstdint>

namespace onehop::torch_side {

// at::Tensor: an owning pointer, which C++ passes and returns in memory because it has a destructor. Functions of
// torch's C interface (aoti_torch_*) take the address of one.
struct Tensor {
  void* object;
  explicit Tensor(void* owned) : object(owned) {}
  Tensor(const Tensor&) = delete;
  ~Tensor() {}  // NOLINT: what is held is torch's, which is handed over
};

// c10::DispatchKeySet.
using Keys = uint64_t;

// c10::string_view, or std::string_view, whose members are in another order.
struct Text {
  uint64_t words[2];
};

// std::optional<at::Tensor>.
struct MaybeTensor {
  void* object;
  bool is_there;
};

// std::optional<bool>.
struct MaybeBool {
  bool value, is_there;
};

// std::optional<int64_t>.
struct MaybeInteger {
  int64_t value;
  bool is_there;
};

// c10::SymInt: a number; a negative value is a symbol. Because it has a destructor, C++ passes its address.
struct Size {
  int64_t value;
};

// References to these are passed on, or read by operators.hpp.
struct Scalar;
struct MaybeScalar;
struct Tensors;  // c10::List<std::optional<at::Tensor>>

// A Scalar of an integer, which operators.hpp writes.
class IntegerScalar {
 public:
  explicit IntegerScalar(int64_t value);
  operator const Scalar&() const { return reinterpret_cast<const Scalar&>(bytes_); }

 private:
  alignas(16) char bytes_[48] = {};
};
// A MaybeScalar that is none.
class NoScalar {
 public:
  operator const MaybeScalar&() const { return reinterpret_cast<const MaybeScalar&>(bytes_); }

 private:
  alignas(16) char bytes_[48] = {};
};

// A Python object.
struct Object;

// Functions of torch's libraries.
struct Interface {
  int32_t (*get_numel)(const Tensor*, int64_t*);
  int32_t (*get_dim)(const Tensor*, int64_t*);
  int32_t (*get_size)(const Tensor*, int64_t, int64_t*);
  int32_t (*get_dtype)(const Tensor*, int32_t*);
  int32_t (*get_layout)(const Tensor*, int32_t*);     // null in torch 2.6
  int64_t (*get_entries)(const Tensor&);              // null if torch has no such function
  bool (*requires_grad)(const void* object);          // null if torch has no such function
  int32_t (*new_handle)(Tensor**);                    // of no tensor yet
  int32_t (*assign)(const Tensor* from, Tensor* to);  // with an owner more
  int32_t (*delete_handle)(Tensor*);
  bool (*grad_is_enabled)();
  void (*enable_grad)(bool);
  void* (*dispatcher)();
  void* find_operator;
  const char* (*registered)(const void* operator_entry, uint16_t key);  // the kernel of a dispatch key
  void* undefined;                                                      // the object of tensors that are none
  void* wrap;  // THPVariable_Wrap, whose argument is a reference or in memory: both are its address
};

// Finds them in libtorch_cpu and libtorch_python, whose paths are given. False if one is missing.
bool load_interface(const char* cpu, const char* python);

const Interface& interface();

inline int64_t numel(const Tensor& tensor) {
  int64_t count = 0;
  interface().get_numel(&tensor, &count);
  return count;
}

inline int64_t dim(const Tensor& tensor) {
  int64_t count = 0;
  interface().get_dim(&tensor, &count);
  return count;
}

// The extent of a dimension, which may be counted from the end; 1 if there is no such dimension.
inline int64_t size(const Tensor& tensor, int64_t place) {
  const int64_t dims = dim(tensor);
  if (place < 0) place += dims;
  int64_t extent = 1;
  if (place >= 0 && place < dims) interface().get_size(&tensor, place, &extent);
  return extent;
}

// Numbers of c10::ScalarType.
enum class Kind : int32_t { int32 = 3, int64 = 4, float16 = 5, float32 = 6, float64 = 7, boolean = 11, bfloat16 = 15 };

inline Kind kind(const Tensor& tensor) {
  int32_t number = -1;
  interface().get_dtype(&tensor, &number);
  return static_cast<Kind>(number);
}

// Numbers of c10::Layout.
enum class Layout : int32_t { unknown = -1, strided = 0, coo = 1, csr = 2, csc = 4 };

inline Layout layout(const Tensor& tensor) {
  int32_t number = -1;
  if (interface().get_layout != nullptr) interface().get_layout(&tensor, &number);
  return static_cast<Layout>(number);
}

// The number of entries of a sparse tensor; -1 if torch does not tell.
inline int64_t entries(const Tensor& sparse) {
  return interface().get_entries == nullptr ? -1 : interface().get_entries(sparse);
}

// Whether gradients to a tensor may be wanted; true if torch does not tell.
inline bool requires_grad(const Tensor& tensor) {
  return interface().requires_grad == nullptr || interface().requires_grad(tensor.object);
}

inline bool is_float(const Tensor& tensor) {
  const Kind of = kind(tensor);
  return of == Kind::float32 || of == Kind::float64 || of == Kind::bfloat16 || of == Kind::float16;
}

// A Python tensor of the same object; null where Python raised. Its caller has Python's lock.
Object* wrap(const Tensor& tensor);

// The same object as of torch's Python tensor with this `_cdata`, with an owner more.
void* share(uint64_t cdata);

}  // namespace onehop::torch_side
