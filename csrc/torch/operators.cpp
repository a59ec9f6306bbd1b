#include "operators.hpp"

#include <dlfcn.h>
#if defined(__APPLE__)
#include <malloc/malloc.h>
#else
#include <malloc.h>
#endif

#include <cstring>
#include <initializer_list>

namespace onehop::torch_side {
namespace {

// c10::OperatorHandle, which has a destructor: what it points to, and its place in the list of all operators.
struct Handle {
  char* description;
  void* place;
  ~Handle() {}  // NOLINT
};

// The description begins behind the two pointers of a list's node.
constexpr int64_t kNode = 2 * sizeof(void*);
constexpr int64_t kWord = sizeof(void*);

// Where the address is in a description, by Key, and in a kernel that was registered.
int64_t in_description[kKeys] = {-1, -1, -1, -1}, in_kernel = -1;
// Words of a registered kernel that are looked through.
constexpr int kWords = 6;
std::array<int, kKeys> numbers_of_keys;

int64_t& place_in_description(Key key) { return in_description[static_cast<int>(key)]; }

char* description_of(const char* name, const char* overload) {
  using Find = Handle (*)(void*, const char*, const char*);
  try {
    return reinterpret_cast<Find>(interface().find_operator)(interface().dispatcher(), name, overload).description;
  } catch (...) {  // there is no such operator
    return nullptr;
  }
}

// Bytes of a block of the C library's.
int64_t bytes_of(const void* block) {
#if defined(__APPLE__)
  return static_cast<int64_t>(malloc_size(block));
#else
  return static_cast<int64_t>(malloc_usable_size(const_cast<void*>(block)));
#endif
}

const char* registered_of(char* description, Key key) {
  try {
    return interface().registered(description, static_cast<uint16_t>(numbers_of_keys[static_cast<int>(key)]));
  } catch (...) {  // there is none
    return nullptr;
  }
}

// Puts a function in the place of an operator's CPU kernel while `run` calls the operator.
template <class Function>
bool run_with(const Place& place, Function* function, Function*& theirs, const Run& run) {
  if (place.in_table == nullptr) return false;
  theirs = reinterpret_cast<Function*>(place.now());
  auto *before = reinterpret_cast<void*>(theirs), *after = reinterpret_cast<void*>(function);
  place.replace(before, after);
  try {
    run();
  } catch (...) {
    place.replace(after, before);
    throw;
  }
  place.replace(after, before);
  return true;
}

using Trace = Tensor(void*, Keys, const Tensor&);
Trace* their_trace;
bool trace_ran;

Tensor trace(void* functor, Keys keys, const Tensor& self) {
  trace_ran = true;
  return their_trace(functor, keys, self);
}

// What was learned of values, and of lists: c10::List points to an object that has, at `in_list`, the begin and the end
// of its values.
Tags known_tags;
int64_t in_list = -1;

using Index = Tensor(void*, Keys, const Tensor&, const Tensors&);
Index* their_index;
void* known_index;

Tensor index(void* functor, Keys keys, const Tensor& self, const Tensors& indices) {
  char* object = *reinterpret_cast<char* const*>(&indices);
  const int64_t bytes = bytes_of(object);
  for (int64_t at = kWord; in_list < 0 && at + 2 * kWord <= bytes; at += kWord) {
    auto* const* bounds = reinterpret_cast<Value* const*>(object + at);
    if (reinterpret_cast<uintptr_t>(bounds[0]) > 4096 &&
        reinterpret_cast<uintptr_t>(bounds[1]) - reinterpret_cast<uintptr_t>(bounds[0]) == 2 * sizeof(Value) &&
        bounds[0][1].payload == known_index && bounds[0][0].tag != bounds[0][1].tag) {
      in_list = at;
      known_tags.none = bounds[0][0].tag;
      known_tags.tensor = bounds[0][1].tag;
    }
  }
  return their_index(functor, keys, self, indices);
}

// aten::gather of a tensor along dimension 1, with a boolean.
Boxed* their_gather;
void* known_self;
bool values_are_known = false;

void gather(void* functor, const void* operation, Keys keys, Stack* stack) {
  const Value* value = stack->end - 4;
  const bool tensors =
      value[0].payload == known_self && value[2].payload == known_index && is_tensor(value[0]) && is_tensor(value[2]);
  if (stack->end - stack->begin >= 4 && tensors && integer(value[1]) == 1 && !boolean(value[3])) {
    known_tags.integer = value[1].tag;
    known_tags.boolean = value[3].tag;
    values_are_known = value[1].tag != value[3].tag && !is_tensor(value[1]) && !is_none(value[1]);
  }
  their_gather(functor, operation, keys, stack);
}

// aten::scatter_reduce(self, dim, index, source, "mean", include_self): a text is an object that has, at `in_text`, the
// address of its characters and their number.
Boxed* their_boxed_reduce;
int64_t in_text = -1;

void boxed_reduce(void* functor, const void* operation, Keys keys, Stack* stack) {
  const char* object = static_cast<const char*>(stack->end[-2].payload);
  const int64_t bytes = bytes_of(object);
  for (int64_t at = kWord; in_text < 0 && at + 2 * kWord <= bytes; at += kWord) {
    const auto* words = reinterpret_cast<const uintptr_t*>(object + at);
    // A text that is this short is part of the object.
    const bool inside = words[0] >= reinterpret_cast<uintptr_t>(object) &&
                        words[0] + 4 <= reinterpret_cast<uintptr_t>(object) + static_cast<uintptr_t>(bytes);
    if (inside && words[1] == 4 && std::memcmp(reinterpret_cast<const char*>(words[0]), "mean", 4) == 0) in_text = at;
  }
  their_boxed_reduce(functor, operation, keys, stack);
}

// Of a Scalar: a tag, and the place of its value.
struct {
  int64_t value = -1;
  uint32_t integer = 0;
} scalars;

using IndexAdd = Tensor(void*, Keys, const Tensor&, int64_t, const Tensor&, const Tensor&, const Scalar&);
IndexAdd* their_index_add;
uint32_t seen_tags[2];
int64_t seen_values[2][2];
int seen;

Tensor index_add(void* functor, Keys keys, const Tensor& self, int64_t dim, const Tensor& index, const Tensor& source,
                 const Scalar& alpha) {
  if (seen < 2) {
    const char* bytes = reinterpret_cast<const char*>(&alpha);
    std::memcpy(&seen_tags[seen], bytes, sizeof seen_tags[seen]);
    std::memcpy(&seen_values[seen][0], bytes + 8, sizeof(int64_t));
    std::memcpy(&seen_values[seen][1], bytes + 16, sizeof(int64_t));
    ++seen;
  }
  return their_index_add(functor, keys, self, dim, index, source, alpha);
}

// Which word of a text is its length.
int length_word = -1;

using Reduce = Tensor(void*, Keys, const Tensor&, int64_t, const Tensor&, const Tensor&, Text, bool);
Reduce* their_reduce;

Tensor reduce(void* functor, Keys keys, const Tensor& self, int64_t dim, const Tensor& index, const Tensor& source,
              Text reduce, bool with_self) {
  for (int word = 0; word < 2; ++word) {
    const auto* other = reinterpret_cast<const char*>(reduce.words[1 - word]);
    if (reduce.words[word] == 4 && reduce.words[1 - word] > 4096 && std::memcmp(other, "mean", 4) == 0) {
      length_word = word;
    }
  }
  return their_reduce(functor, keys, self, dim, index, source, reduce, with_self);
}

using EmbeddingGrad = Tensor(void*, Keys, const Tensor&, const Tensor&, const Size&, const Size&, bool);
constexpr int64_t kRows = 5;
EmbeddingGrad* their_embedding_grad;
bool sizes_are_known = false;

Tensor embedding_grad(void* functor, Keys keys, const Tensor& grad, const Tensor& index, const Size& rows,
                      const Size& padding, bool by_frequency) {
  sizes_are_known = rows.value == kRows && padding.value == -1;
  return their_embedding_grad(functor, keys, grad, index, rows, padding, by_frequency);
}

}  // namespace

bool is_code_of(const void* address, const char* library) {
  Dl_info info;
  return reinterpret_cast<uintptr_t>(address) > 4096 && dladdr(const_cast<void*>(address), &info) != 0 &&
         info.dli_fname != nullptr && std::strstr(info.dli_fname, library) != nullptr;
}

namespace {

// The place in aten::trace's description of the function that `run` calls, which is not the one that is known.
int64_t place_of_trace(const Run& run) {
  char* description = description_of("aten::trace", "");
  for (int64_t at = 0; at + kWord <= bytes_of(description - kNode) - kNode; at += kWord) {
    auto** word = reinterpret_cast<void**>(description + at);
    if (at == place_in_description(Key::cpu) || !is_torchs_code(*word)) continue;
    trace_ran = false;
    run_with({word, nullptr}, &trace, their_trace, run);
    if (trace_ran) return at;
  }
  return -1;
}

// The place in aten::mm's description of the function that is registered for a key, which no other kernel has.
int64_t place_of_product(Key key) {
  char* description = in_kernel < 0 ? nullptr : description_of("aten::mm", "");
  const char* kernel = description == nullptr ? nullptr : registered_of(description, key);
  int64_t only = -1;
  for (int64_t at = 0; kernel != nullptr && at + kWord <= bytes_of(description - kNode) - kNode; at += kWord) {
    if (*reinterpret_cast<void**>(description + at) != *reinterpret_cast<void* const*>(kernel + in_kernel)) continue;
    if (only >= 0) return -1;
    only = at;
  }
  return only;
}

}  // namespace

bool find_place(const Run& run, const std::array<int, kKeys>& numbers) {
  if (in_kernel >= 0) return true;
  numbers_of_keys = numbers;
  char* description = description_of("aten::trace", "");
  const char* kernel = description == nullptr ? nullptr : registered_of(description, Key::cpu);
  if (kernel == nullptr) return false;
  const int64_t found = place_in_description(Key::cpu) = place_of_trace(run);
  for (int word = 0; found >= 0 && in_kernel < 0 && word < kWords; ++word) {
    if (reinterpret_cast<void* const*>(kernel)[word] == reinterpret_cast<void*>(their_trace)) in_kernel = word * kWord;
  }
  for (Key key : {Key::sparse, Key::sparse_compressed}) place_in_description(key) = place_of_product(key);
  return in_kernel >= 0;
}

bool find_autograd_place(const Run& run) {
  int64_t& place = place_in_description(Key::autograd);
  if (place < 0) place = place_of_trace(run);
  return place >= 0;
}

void Place::replace(void* before, void* after) const {
  for (void** word : {registered, in_table}) {
    void* expected = before;
    if (word != nullptr) {
      __atomic_compare_exchange_n(word, &expected, after, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
    }
  }
}

namespace {

Place found_place(const char* name, const char* overload, Form form, Key key = Key::cpu) {
  const int64_t at = place_in_description(key);
  char* description = in_kernel < 0 || at < 0 ? nullptr : description_of(name, overload);
  if (description == nullptr) return {};
  char* kernel = const_cast<char*>(registered_of(description, key));
  if (kernel == nullptr && key == Key::cpu) return {};
  const int64_t behind = form == Form::symbols ? kWord : form == Form::boxed ? -kWord : 0;
  const Place place{reinterpret_cast<void**>(description + at + behind),
                    kernel == nullptr ? nullptr : reinterpret_cast<void**>(kernel + in_kernel + behind)};
  const bool same = place.registered == nullptr || *place.registered == place.now();
  return same && is_torchs_code(place.now()) ? place : Place{};
}

}  // namespace

Place place_of(const char* name, const char* overload, Form form, Key key) {
  const bool is_known = form == Form::symbols ? sizes_are_known : form == Form::boxed ? values_are_known : true;
  return is_known ? found_place(name, overload, form, key) : Place{};
}

Places places_of_library(const char* name, const char* library) {
  const int64_t cpu = place_in_description(Key::cpu), autograd = place_in_description(Key::autograd);
  char* description = values_are_known && autograd >= 0 ? description_of(name, "") : nullptr;
  if (description == nullptr) return {};
  const Places places{{reinterpret_cast<void**>(description + cpu - kWord), nullptr},
                      {reinterpret_cast<void**>(description + autograd - kWord), nullptr}};
  const bool same = places.cpu.now() == places.autograd.now();
  return same && is_code_of(places.cpu.now(), library) ? places : Places{};
}

bool learn_lists(const Run& run, void* index_of_run) {
  known_index = index_of_run;
  return in_list >= 0 || (run_with(place_of("aten::index", "Tensor"), &index, their_index, run) && in_list >= 0);
}

bool learn_boxed(const Run& run, void* self, void* index_of_run) {
  known_self = self;
  known_index = index_of_run;
  const Place place = found_place("aten::gather", "", Form::boxed);
  return values_are_known || (run_with(place, &gather, their_gather, run) && values_are_known);
}

bool learn_boxed_texts(const Run& run) {
  const Place place = found_place("aten::scatter_reduce", "two", Form::boxed);
  return in_text >= 0 || (run_with(place, &boxed_reduce, their_boxed_reduce, run) && in_text >= 0);
}

const Tags& tags() { return known_tags; }

bool texts_are_known() { return in_text >= 0; }

Text text(const Value& value) {
  const auto* words = reinterpret_cast<const uint64_t*>(static_cast<const char*>(value.payload) + in_text);
  Text text{};
  text.words[length_word] = words[1];
  text.words[1 - length_word] = words[0];
  return text;
}

bool learn_scalars(const Run& run) {
  if (scalars.value >= 0) return true;
  seen = 0;
  if (!run_with(place_of("aten::index_add", ""), &index_add, their_index_add, run) || seen != 2) return false;
  for (int place = 0; place < 2 && scalars.value < 0; ++place) {
    if (seen_tags[0] == seen_tags[1] && seen_values[0][place] == 1 && seen_values[1][place] == 7) {
      scalars = {8 * (place + 1), seen_tags[0]};
    }
  }
  return scalars.value >= 0;
}

bool learn_texts(const Run& run) {
  return length_word >= 0 ||
         (run_with(place_of("aten::scatter_reduce", "two"), &reduce, their_reduce, run) && length_word >= 0);
}

bool learn_sizes(const Run& run) {
  const Place place = found_place("aten::embedding_dense_backward", "", Form::symbols);
  return sizes_are_known || (run_with(place, &embedding_grad, their_embedding_grad, run) && sizes_are_known);
}

const Tensor* only_tensor(const Tensors& list, int64_t& place) {
  const char* object = *reinterpret_cast<char* const*>(&list);
  auto* const* bounds = reinterpret_cast<Value* const*>(object + in_list);
  const Value* only = nullptr;
  for (const Value* each = bounds[0]; each != bounds[1]; ++each) {
    if (is_none(*each) || each->payload == interface().undefined) continue;
    if (!is_tensor(*each) || only != nullptr) return nullptr;
    only = each;
    place = each - bounds[0];
  }
  return only == nullptr ? nullptr : reinterpret_cast<const Tensor*>(&only->payload);
}

bool is_integer(const Scalar& scalar, int64_t& value) {
  const char* bytes = reinterpret_cast<const char*>(&scalar);
  uint32_t tag = 0;
  std::memcpy(&tag, bytes, sizeof tag);
  std::memcpy(&value, bytes + scalars.value, sizeof value);
  return tag == scalars.integer;
}

IntegerScalar::IntegerScalar(int64_t value) {
  std::memcpy(bytes_, &scalars.integer, sizeof scalars.integer);
  std::memcpy(bytes_ + scalars.value, &value, sizeof value);
}

bool is_there(const MaybeScalar& scalar) {
  // Behind the largest value, a complex number of two doubles.
  return *(reinterpret_cast<const bool*>(&scalar) + scalars.value + 2 * sizeof(double));
}

std::string_view characters_of(const Text& text) {
  return {reinterpret_cast<const char*>(text.words[1 - length_word]), text.words[length_word]};
}

}  // namespace onehop::torch_side
