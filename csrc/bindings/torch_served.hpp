// One operator of torch's whose kernel is replaced: it calls a Python function, or torch's own kernel.
#pragma once

#include <nanobind/nanobind.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <stdexcept>
#include <string_view>
#include <type_traits>

#include "../torch/operators.hpp"

namespace onehop::torch_side {

namespace nb = nanobind;

// Whether this thread's calls go to torch's kernels: it runs a Python function that serves one, or it measures torch.
inline thread_local bool leaves_to_torch = false;

// Python's lock, for a thread that may be any.
class Locked {
 public:
  Locked() : state_(PyGILState_Ensure()), recorded_(interface().grad_is_enabled()) {
    interface().enable_grad(false);
    leaves_to_torch = true;
  }
  ~Locked() {
    leaves_to_torch = false;
    interface().enable_grad(recorded_);
    PyGILState_Release(state_);
  }
  Locked(const Locked&) = delete;

 private:
  PyGILState_STATE state_;
  bool recorded_;  // gradients are recorded above these kernels
};

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
    if (!error.matches(PyExc_KeyboardInterrupt)) throw std::runtime_error(nb::str(error.value()).c_str());
    error.restore();
    PyErr_Clear();
    PyErr_SetInterrupt();  // the program is interrupted after this call
    return nb::none();
  }
}

// std::tuple of tensors, which C++ returns in memory because it has a destructor. libc++ has its elements in their
// order, libstdc++ the last one first.
template <int kCount>
struct Several {
  void* objects[kCount];
  Several(const Several&) = delete;
  explicit Several(const nb::tuple& tensors) {
    for (int i = 0; i < kCount; ++i) place(i) = share(nb::cast<uint64_t>(tensors[i].attr("_cdata")));
  }
  explicit Several(void* const* given) { std::copy_n(given, kCount, objects); }
  ~Several() {}  // NOLINT: what is held is torch's, which is handed over

 private:
  void*& place(int i) {
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

// One operator of torch's. `Op` has its names, and `run`, which takes its arguments and calls `answer` with those that
// Python gets, or returns null: then torch's kernel runs.
template <class Op, class Signature, Form kForm = Form::numbers>
class Served;

template <class Op, class Result, class... Args, Form kForm>
class Served<Op, Result(Args...), kForm> {
 public:
  // Keeps the Python function.
  static void prepare(nb::object serving) {
    Py_XDECREF(function);
    function = serving.release().ptr();
  }
  // An operator that this torch has not, or whose kernel is another library's, stays as it is.
  static void install() {
    if (place.in_table == nullptr) place = place_of(Op::kName, Op::kOverload, kForm);
    if (!is_torchs_code(place.now())) return;
    theirs = reinterpret_cast<Kernel*>(place.now());
    place.replace(place.now(), reinterpret_cast<void*>(&ours));
  }
  static bool is_installed() { return place.now() == reinterpret_cast<void*>(&ours); }
  // Puts torch's back, unless another library has registered a kernel since.
  static void remove() { place.replace(reinterpret_cast<void*>(&ours), reinterpret_cast<void*>(theirs.load())); }

 protected:
  // The object of the tensor that Python returns, with an owner more; or anything but null of a tensor that was written
  // to. Null where torch's kernel has to run.
  template <class... Given>
  static void* answer(const Given&... given) {
    if (leaves_to_torch || Py_IsInitialized() == 0) return nullptr;
    const Locked locked;
    const nb::object out = call(function, given...);
    if (out.is_none()) return nullptr;
    if constexpr (std::is_reference_v<Result>) return function;
    if constexpr (kTensors<Result> > 1) return new Result(nb::cast<nb::tuple>(out));
    return share(nb::cast<uint64_t>(out.attr("_cdata")));
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
      return Result(answered->objects);
    } else {
      return Tensor(object);
    }
  }

  static inline Place place;
  static inline std::atomic<Kernel*> theirs{nullptr};
  static inline PyObject* function = nullptr;
};

}  // namespace onehop::torch_side
