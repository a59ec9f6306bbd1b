// The places where torch's dispatcher keeps the CPU's kernels of its operators.
//
// An operator has a table of kernels, one for each dispatch key, made from those that were registered. A kernel has,
// among others, the address of a function with the operator's own C++ arguments, which torch's calls go to. Below
// autograd, autocast, functorch and modes, what is called is the CPU's kernel. Another function of the same type, put
// there, serves the operator wherever it is called from, and hands on what it does not serve at the cost of a call. It
// is put into the registered kernel too: torch makes tables anew, and compares both when it reports an error.
//
// Where the address is differs between releases. So it is looked for: of one operator that programs hardly use, each
// address of torch's code in its description is replaced in turn, until the replacement is the one that runs.
#pragma once

#include <array>
#include <functional>
#include <string_view>

#include "stack.hpp"

namespace onehop::torch_side {

using Run = std::function<void()>;

// The dispatch keys whose kernels are replaced: of dense tensors on the CPU, of sparse matrices there, in COO and in
// the compressed layouts, and autograd's of all of them.
enum class Key { cpu, sparse, sparse_compressed, autograd };
constexpr int kKeys = 4;

// Finds the place of the CPU's kernel in the description of an operator. `run` calls aten::trace of a tensor that was
// made in inference mode, whose calls pass no other kernel; `numbers` are those of the dispatch keys, by Key. False if
// it is not found.
bool find_place(const Run& run, const std::array<int, kKeys>& numbers);

// Finds the place of autograd's kernel for the CPU likewise: `run` calls aten::trace of an ordinary tensor.
bool find_autograd_place(const Run& run);

// The words with an address of an operator's kernel for one dispatch key.
struct Place {
  void** in_table = nullptr;
  void** registered = nullptr;

  void* now() const { return in_table == nullptr ? nullptr : __atomic_load_n(in_table, __ATOMIC_ACQUIRE); }
  // Puts a function in the place of another, wherever that is.
  void replace(void* before, void* after) const;
};

// Which of a kernel's functions: one whose sizes are numbers, the one behind it, whose sizes may be symbols, or the one
// before it, whose arguments are on a stack.
enum class Form { numbers, symbols, boxed };

// Null if there is no such operator, or its kernel is not torch's own: another library has registered one. For the
// CPU's key it has to be registered for that key; for others it may be a formula for all keys, whose registered kernel
// stays. Of a form with symbols, only after learn_sizes(); of one whose arguments are on a stack, only after
// learn_boxed().
Place place_of(const char* name, const char* overload, Form form = Form::numbers, Key key = Key::cpu);

// The words with the boxed functions of an operator that is one kernel for the CPU and for autograd: another library's,
// whose own formula records gradients. Null if they differ, or are not of the library whose path has this part.
struct Places {
  Place cpu, autograd;
};
Places places_of_library(const char* name, const char* library);

// Whether an address is of a function of a library whose path has this part; of torch's.
bool is_code_of(const void* address, const char* library);
inline bool is_torchs_code(const void* address) { return is_code_of(address, "libtorch_cpu"); }

// Finds how a list of optional tensors is laid out: `run` calls aten::index of a tensor by [None, index], and `index`
// is the object of that index. Likewise how a Scalar is: `run` calls aten::index_add with an alpha of 1, then of 7;
// and how a text is: it calls aten::scatter_reduce with "mean".
bool learn_lists(const Run& run, void* index);
bool learn_scalars(const Run& run);
bool learn_texts(const Run& run);
// Finds how values on a stack are tagged: `run` calls torch.ops.aten.gather of a tensor along dimension 1, whose
// arguments torch keeps on a stack in inference mode. `self` and `index` are the objects of its tensors.
bool learn_boxed(const Run& run, void* self, void* index);
// Finds where a text on a stack has its characters: `run` calls torch.ops.aten.scatter_reduce with "mean" likewise.
bool learn_boxed_texts(const Run& run);
// Whether sizes that may be symbols are passed as is expected: `run` calls aten::embedding_dense_backward of 5 rows.
bool learn_sizes(const Run& run);

// The one tensor of a list, and its place, behind elements that are None; null for any other list.
const Tensor* only_tensor(const Tensors& list, int64_t& place);

// Whether a Scalar is an integer, and which.
bool is_integer(const Scalar& scalar, int64_t& value);

// Whether an optional Scalar is there.
bool is_there(const MaybeScalar& scalar);

std::string_view characters_of(const Text& text);

}  // namespace onehop::torch_side
