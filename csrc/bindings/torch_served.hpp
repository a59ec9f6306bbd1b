// One operator of torch's whose kernel is replaced: it calls a Python function, or torch's own kernel.
#pragma once

#include <nanobind/nanobind.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "../torch/operators.hpp"

// torch's own exception for an error that Python has raised, by its name and its layout: torch's bindings, and the
// threads of its backward passes, hand it on to Python as it is, and any other exception as a RuntimeError.
struct __attribute__((visibility("default"))) python_error : public std::exception {
  // Takes over the error of this thread, which has Python's lock.
  python_error() { PyErr_Fetch(&type, &value, &traceback); }
  python_error(const python_error& other)
      : std::exception(other),
        type(other.type),
        value(other.value),
        traceback(other.traceback),
        message(other.message) {
    const PyGILState_STATE state = PyGILState_Ensure();
    for (PyObject* object : {type, value, traceback}) Py_XINCREF(object);
    PyGILState_Release(state);
  }
  python_error& operator=(const python_error&) = delete;
  ~python_error() override {
    if (type == nullptr && value == nullptr && traceback == nullptr) return;
    const PyGILState_STATE state = PyGILState_Ensure();
    for (PyObject* object : {type, value, traceback}) Py_XDECREF(object);
    PyGILState_Release(state);
  }
  const char* what() const noexcept override { return message.c_str(); }

  PyObject *type = nullptr, *value = nullptr, *traceback = nullptr;
  std::string message;
};

namespace onehop::torch_side {

namespace nb = nanobind;

// Whether this thread's calls go to torch's kernels: it runs a Python function that serves one, or it measures torch.
inline thread_local bool leaves_to_torch = false;

// Python's lock, for a thread that may be any.
class Locked {
 public:
  Locked() : state_(PyGILState_Ensure()) {}
  ~Locked() { PyGILState_Release(state_); }
  Locked(const Locked&) = delete;

 private:
  PyGILState_STATE state_;
};

// A thread that runs a function in the place of a kernel: what it calls is torch's, and not recorded.
class BelowAutograd {
 public:
  BelowAutograd() : recorded_(interface().grad_is_enabled()) {
    interface().enable_grad(false);
    leaves_to_torch = true;
  }
  ~BelowAutograd() {
    leaves_to_torch = false;
    interface().enable_grad(recorded_);
  }
  BelowAutograd(const BelowAutograd&) = delete;

 private:
  bool recorded_;
};
// A thread that runs one in the place of a whole operator, whose gradients are recorded as they are.
struct AboveAutograd {};

// A tensor of torch's as an argument for Python, and others.
inline nb::object argument(const Tensor& tensor) {
  auto* made = reinterpret_cast<PyObject*>(wrap(tensor));
  if (made == nullptr) throw nb::python_error();
  return nb::steal(made);
}
inline nb::object argument(const MaybeTensor& tensor) {
  return tensor.is_there ? argument(reinterpret_cast<const Tensor&>(tensor)) : nb::none();
}
inline nb::object argument(int64_t number) { return nb::int_(number); }
inline nb::object argument(const MaybeInteger& number) { return number.is_there ? argument(number.value) : nb::none(); }
inline nb::object argument(bool value) { return nb::bool_(value); }
inline nb::object argument(const Text& text) {
  const std::string_view characters = characters_of(text);
  return nb::str(characters.data(), characters.size());
}

// Calls a Python function, while Python's lock is held. None means that torch's kernel runs.
template <class... Args>
nb::object call(PyObject* function, const Args&... args) {
  try {
    return nb::handle(function)(argument(args)...);
  } catch (nb::python_error& error) {
    const std::string message = nb::str(error.value()).c_str();
    error.restore();
    ::python_error raised;
    raised.message = message;
    throw raised;
  }
}

// std::tuple of tensors, which C++ returns in memory because it has a destructor. libc++ has its elements in their
// order, libstdc++ the last one first.
template <int kCount>
struct Several {
  void* objects[kCount];
  explicit Several(const nb::tuple& tensors) {
    for (int i = 0; i < kCount; ++i) (*this)[i] = share(nb::cast<uint64_t>(tensors[i].attr("_cdata")));
  }
  // Hands on what the other one holds.
  Several(Several& other) { std::copy_n(other.objects, kCount, objects); }
  ~Several() {}  // NOLINT: what is held is torch's, which is handed over

  void*& operator[](int i) {
#if defined(_LIBCPP_VERSION)
    return objects[i];
#else
    return objects[kCount - 1 - i];
#endif
  }
};

template <class Result>
inline constexpr int kTensors = 1;
template <int kCount>
inline constexpr int kTensors<Several<kCount>> = kCount;

// What an operator has in common wherever it is served. `Op` has its names, and `run`, which takes its arguments and
// calls `answer` with those that Python gets, or returns null: then the replaced kernel runs.
template <class Op, class Signature, class State>
class Answers;

template <class Op, class Result, class... Args, class State>
class Answers<Op, Result(Args...), State> {
 public:
  // Keeps the Python function.
  static void prepare(nb::object serving) {
    Py_XDECREF(function);
    function = serving.release().ptr();
  }

 protected:
  // The object of the tensor that Python returns, with an owner more; or anything but null of a tensor that was written
  // to. Null where the replaced kernel has to run.
  template <class... Given>
  static void* answer(const Given&... given) {
    if (leaves_to_torch || Py_IsInitialized() == 0) return nullptr;
    const Locked locked;
    [[maybe_unused]] const State state;
    const nb::object out = call(function, given...);
    if (out.is_none()) return nullptr;
    if constexpr (std::is_reference_v<Result>) return function;
    if constexpr (kTensors<Result> > 1) return new Result(nb::cast<nb::tuple>(out));
    return share(nb::cast<uint64_t>(out.attr("_cdata")));
  }

  static constexpr bool kIsOnStack = (IsOnStack<Args> && ...);

  // The kernel whose arguments are on a stack.
  static void boxed(void* functor, const void* operation, Keys keys, Stack* stack) {
    Value* first = stack->end - sizeof...(Args);
    void* object = run(first, std::index_sequence_for<Args...>{});
    if (object == nullptr) return their_boxed.load(std::memory_order_relaxed)(functor, operation, keys, stack);
    // A tensor that was written to stays the first value, and others take its place.
    constexpr int kStays = std::is_reference_v<Result> ? 1 : 0;
    for (Value* value = first + kStays; value != stack->end; ++value) release(*value);
    stack->end = first + kTensors<Result>;
    if constexpr (kTensors<Result> > 1) {
      const std::unique_ptr<Result> answered(static_cast<Result*>(object));
      for (int i = 0; i < kTensors<Result>; ++i) first[i] = {(*answered)[i], tags().tensor, 0};
    } else if constexpr (kStays == 0) {
      *first = {object, tags().tensor, 0};
    }
  }

  static inline std::atomic<Boxed*> their_boxed{nullptr};

 private:
  template <size_t... i>
  static void* run(Value* first, std::index_sequence<i...>) {
    static_assert(kTensors<Result> <= sizeof...(Args));
    if (!(FromStack<Args>::suits(first[i]) && ...)) return nullptr;
    return Op::run(FromStack<Args>::get(first[i])...);
  }

  static inline PyObject* function = nullptr;
};

// One operator of torch's, whose kernel for a dispatch key is replaced.
template <class Op, class Signature, Form kForm = Form::numbers, Key kKey = Key::cpu>
class Served;

template <Key kKey>
using StateOf = std::conditional_t<kKey == Key::autograd, AboveAutograd, BelowAutograd>;

template <class Op, class Result, class... Args, Form kForm, Key kKey>
class Served<Op, Result(Args...), kForm, kKey> : public Answers<Op, Result(Args...), StateOf<kKey>> {
  using Base = Answers<Op, Result(Args...), StateOf<kKey>>;

 public:
  // An operator that this torch has not, or whose kernel is another library's, stays as it is.
  static void install() {
    if (place.in_table == nullptr) place = place_of(Op::kName, Op::kOverload, kForm, kKey);
    if (!is_torchs_code(place.now())) return;
    theirs = reinterpret_cast<Kernel*>(place.now());
    place.replace(place.now(), reinterpret_cast<void*>(&ours));
    if constexpr (Base::kIsOnStack) {
      if (on_stack.in_table == nullptr) on_stack = place_of(Op::kName, Op::kOverload, Form::boxed, kKey);
      if (!is_torchs_code(on_stack.now())) return;
      Base::their_boxed = reinterpret_cast<Boxed*>(on_stack.now());
      on_stack.replace(on_stack.now(), reinterpret_cast<void*>(&Base::boxed));
    }
  }
  static bool is_installed() { return place.now() == reinterpret_cast<void*>(&ours); }
  // Puts torch's back, unless another library has registered a kernel since.
  static void remove() {
    place.replace(reinterpret_cast<void*>(&ours), reinterpret_cast<void*>(theirs.load()));
    if constexpr (Base::kIsOnStack) {
      on_stack.replace(reinterpret_cast<void*>(&Base::boxed), reinterpret_cast<void*>(Base::their_boxed.load()));
    }
  }

 private:
  using Kernel = Result(void*, Keys, Args...);

  static Result ours(void* functor, Keys keys, Args... args) {
    if (void* object = Op::run(args...); object != nullptr) return result(object, args...);
    return theirs.load(std::memory_order_relaxed)(functor, keys, args...);
  }
  template <class First, class... Rest>
  static Result result(void* object, First& first, Rest&...) {
    if constexpr (std::is_reference_v<Result>) {
      return first;
    } else if constexpr (kTensors<Result> > 1) {
      const std::unique_ptr<Result> answered(static_cast<Result*>(object));
      return Result(*answered);
    } else {
      return Tensor(object);
    }
  }

  static inline Place place, on_stack;
  static inline std::atomic<Kernel*> theirs{nullptr};
};

// One operator of another library that records its gradients itself. Python and TorchScript call it by the stack.
template <class Op, class Signature>
class ServedOfLibrary : public Answers<Op, Signature, AboveAutograd> {
  using Base = Answers<Op, Signature, AboveAutograd>;

 public:
  // `library` is a part of the path of the library, whose operator stays as it is where another one has registered it.
  static void install(const std::string& library) {
    if (is_installed()) return;
    places = places_of_library(Op::kName, library.c_str());
    if (places.cpu.in_table == nullptr) return;
    Base::their_boxed = reinterpret_cast<Boxed*>(places.cpu.now());
    replace(reinterpret_cast<void*>(Base::their_boxed.load()), reinterpret_cast<void*>(&Base::boxed));
  }
  static bool is_installed() { return places.autograd.now() == reinterpret_cast<void*>(&Base::boxed); }
  static void remove() {
    replace(reinterpret_cast<void*>(&Base::boxed), reinterpret_cast<void*>(Base::their_boxed.load()));
  }

 private:
  static void replace(void* before, void* after) {
    places.cpu.replace(before, after);
    places.autograd.replace(before, after);
  }

  static inline Places places;
};

}  // namespace onehop::torch_side
