// torch's gathers and scatters, where torch dispatches them: large calls are handed to functions of Python.
//
// A function here takes the place of torch's CPU kernel (torch/operators.hpp), so it runs below autograd, in any
// thread, with or without Python's lock. A call that is too small, or that Python does not serve, goes to torch's.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "../torch/operators.hpp"

namespace nb = nanobind;
using namespace onehop::torch_side;

namespace {

// Calls below these are torch's: see onehop.thresholds.
struct Bounds {
  std::atomic<int64_t> entries, numbers, work, sparse, sorted;
} bounds;

// Whether products of these are made through float32.
std::atomic<bool> widens_bfloat16, widens_float16;

// How many numbers are gathered or scattered by an index of whole rows.
bool is_large(int64_t entries, int64_t numbers, int64_t cost) {
  return entries >= bounds.entries.load(std::memory_order_relaxed) &&
         numbers * cost >= bounds.numbers.load(std::memory_order_relaxed);
}

bool is_index(const Tensor& index) {
  const Kind of = kind(index);
  return of == Kind::int64 || of == Kind::int32;
}

int64_t row_numbers(const Tensor& x, int64_t dim) {
  const int64_t extent = size(x, dim);
  return extent > 0 ? numel(x) / extent : 0;
}

// Whether this thread's calls go to torch's kernels: it runs a Python function that serves one, or it measures torch.
thread_local bool leaves_to_torch = false;

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
nb::object argument(const Tensor& tensor) {
  auto* made = reinterpret_cast<PyObject*>(wrap(tensor));
  if (made == nullptr) throw nb::python_error();
  return nb::steal(made);
}
nb::object argument(const MaybeTensor& tensor) {
  return tensor.is_there ? argument(reinterpret_cast<const Tensor&>(tensor)) : nb::none();
}
nb::object argument(int64_t number) { return nb::int_(number); }
nb::object argument(bool value) { return nb::bool_(value); }
nb::object argument(const Text& text) {
  int64_t count = 0;
  const char* begin = characters(text, count);
  return nb::str(begin, static_cast<size_t>(count));
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

// torch's own x[index] takes so many times as long as index_select, from its first rows on: 65,000 numbers with an
// index of 4,096 ran at 1.4 times its speed, index_select of 1 million at 0.9 to 1.2 and of 2 million at 1.4 to 2.
constexpr int64_t kCostOfSubscripts = 16;

void* gathered(auto answer, const Tensor& x, int64_t dim, const Tensor& index, int64_t cost) {
  const int64_t entries = numel(index);
  const bool large = is_large(entries, entries * row_numbers(x, dim), cost) && is_float(x) && is_index(index);
  return large ? answer() : nullptr;
}

// torch spends so many times as long on extrema and means as on sums, and on adding by a subscript: 65,000 numbers took
// seven times as long, and twice with an index that is new.
constexpr int64_t kCostOfReductions = 4, kCostOfSubscriptSums = 32;

// By whole rows or by single entries, whose index is as large as the values. Here all rows of the result are passed
// over, and by torch those of the index alone: 33,000 rows of 64 added into 170,000 took three times as long as
// torch's, 262,000 half as long; by a subscript 16,000 took 0.8 times as long.
constexpr int64_t kMostRows = 4;

void* scattered(auto answer, const Tensor& x, const Tensor& index, const Tensor& values, int64_t cost) {
  const int64_t numbers = numel(values);
  const bool large = is_large(numel(index), numbers, cost) && is_float(x) && is_index(index);
  const bool many =
      numbers * std::min(cost, kMostRows) >= numel(x) || bounds.numbers.load(std::memory_order_relaxed) == 0;
  return large && many ? answer() : nullptr;
}

// A mask needs no graph: it pays so many times sooner than an index.
constexpr int64_t kCostOfMasks = 256;

struct Subscript : Served<Subscript, Tensor(const Tensor&, const Tensors&)> {
  static constexpr const char *kName = "aten::index", *kOverload = "Tensor";
  static void* run(const Tensor& x, const Tensors& list) {
    int64_t dim = 0;
    const Tensor* index = only_tensor(list, dim);
    if (index == nullptr) return nullptr;
    if (kind(*index) == Kind::boolean) {
      return is_large(numel(*index), numel(x), kCostOfMasks) ? answer(x, dim, *index) : nullptr;
    }
    return gathered([&] { return answer(x, dim, *index); }, x, dim, *index, kCostOfSubscripts);
  }
};

struct SubscriptAdd : Served<SubscriptAdd, Tensor&(Tensor&, const Tensors&, const Tensor&, bool, bool)> {
  static constexpr const char *kName = "aten::_index_put_impl_", *kOverload = "";
  static void* run(Tensor& x, const Tensors& list, const Tensor& values, bool accumulate, bool) {
    int64_t dim = 0;
    const Tensor* index = accumulate ? only_tensor(list, dim) : nullptr;
    if (index == nullptr) return nullptr;
    if (kind(*index) == Kind::boolean) {
      return is_large(numel(*index), numel(x), kCostOfMasks) ? answer(x, dim, *index, values) : nullptr;
    }
    return scattered([&] { return answer(x, dim, *index, values); }, x, *index, values, kCostOfSubscriptSums);
  }
};

struct IndexSelect : Served<IndexSelect, Tensor(const Tensor&, int64_t, const Tensor&)> {
  static constexpr const char *kName = "aten::index_select", *kOverload = "";
  static void* run(const Tensor& x, int64_t dim, const Tensor& index) {
    return gathered([&] { return answer(x, dim, index); }, x, dim, index, 1);
  }
};

struct Gather : Served<Gather, Tensor(const Tensor&, int64_t, const Tensor&, bool)> {
  static constexpr const char *kName = "aten::gather", *kOverload = "";
  static void* run(const Tensor& x, int64_t dim, const Tensor& index, bool) {
    const int64_t numbers = numel(index);
    return is_large(numbers, numbers, 1) && is_float(x) ? answer(x, dim, index) : nullptr;
  }
};

bool is_one(const Scalar& scalar) {
  int64_t value = 0;
  return is_integer(scalar, value) && value == 1;
}

template <class Result, class Self>
struct IndexAdd : Served<IndexAdd<Result, Self>, Result(Self, int64_t, const Tensor&, const Tensor&, const Scalar&)> {
  static constexpr const char *kName = std::is_reference_v<Result> ? "aten::index_add_" : "aten::index_add",
                              *kOverload = "";
  static void* run(Self x, int64_t dim, const Tensor& index, const Tensor& source, const Scalar& alpha) {
    if (!is_one(alpha)) return nullptr;
    return scattered([&] { return IndexAdd::answer(x, dim, index, source); }, x, index, source, 1);
  }
};

template <class Result, class Self>
struct ScatterAdd : Served<ScatterAdd<Result, Self>, Result(Self, int64_t, const Tensor&, const Tensor&)> {
  static constexpr const char *kName = std::is_reference_v<Result> ? "aten::scatter_add_" : "aten::scatter_add",
                              *kOverload = "";
  static void* run(Self x, int64_t dim, const Tensor& index, const Tensor& source) {
    return scattered([&] { return ScatterAdd::answer(x, dim, index, source); }, x, index, source, 1);
  }
};

// One number in all rows of an index, as in the gradient of scatter_reduce.
struct ScatterValue : Served<ScatterValue, Tensor(const Tensor&, int64_t, const Tensor&, const Scalar&)> {
  static constexpr const char *kName = "aten::scatter", *kOverload = "value";
  static void* run(const Tensor& x, int64_t dim, const Tensor& index, const Scalar& scalar) {
    int64_t value = 0;
    if (!is_integer(scalar, value)) return nullptr;
    return scattered([&] { return answer(x, dim, index, value); }, x, index, index, 1);
  }
};

template <class Result, class Self>
struct ScatterReduce
    : Served<ScatterReduce<Result, Self>, Result(Self, int64_t, const Tensor&, const Tensor&, Text, bool)> {
  static constexpr const char *kName = std::is_reference_v<Result> ? "aten::scatter_reduce_" : "aten::scatter_reduce",
                              *kOverload = "two";
  static void* run(Self x, int64_t dim, const Tensor& index, const Tensor& source, Text reduce, bool with_self) {
    return scattered([&] { return ScatterReduce::answer(x, dim, index, source, reduce, with_self); }, x, index, source,
                     kCostOfReductions);
  }
};

struct EmbeddingGrad
    : Served<EmbeddingGrad, Tensor(const Tensor&, const Tensor&, const Size&, const Size&, bool), Form::symbols> {
  static constexpr const char *kName = "aten::embedding_dense_backward", *kOverload = "";
  static void* run(const Tensor& grad, const Tensor& index, const Size& rows, const Size& padding, bool by_frequency) {
    if (by_frequency || rows.value < 0 || padding.value < -1) return nullptr;
    return scattered([&] { return answer(grad, index, rows.value, padding.value); }, grad, index, grad,
                     kCostOfReductions);
  }
};

struct BagsGrad : Served<BagsGrad,
                         Tensor(const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Size&,
                                bool, int64_t, const MaybeTensor&, int64_t),
                         Form::symbols> {
  static constexpr const char *kName = "aten::_embedding_bag_dense_backward", *kOverload = "";
  static void* run(const Tensor& grad, const Tensor& index, const Tensor& bags, const Tensor& sizes, const Tensor&,
                   const Size& rows, bool by_frequency, int64_t mode, const MaybeTensor& weights, int64_t padding) {
    const int64_t entries = numel(index);
    const bool large = is_large(entries, entries * size(grad, 1), kCostOfReductions) && is_index(index);
    if (!large || by_frequency || rows.value < 0 || padding < -1) return nullptr;
    return answer(grad, index, bags, sizes, rows.value, mode, weights, padding);
  }
};

struct SegmentReduce : Served<SegmentReduce, Tensor(const Tensor&, Text, const MaybeTensor&, const MaybeTensor&,
                                                    const MaybeTensor&, int64_t, bool, const MaybeScalar&)> {
  static constexpr const char *kName = "aten::segment_reduce", *kOverload = "";
  static void* run(const Tensor& data, Text reduce, const MaybeTensor& lengths, const MaybeTensor& indices,
                   const MaybeTensor& offsets, int64_t axis, bool, const MaybeScalar& initial) {
    if (!is_large(numel(data), numel(data), 1) || indices.is_there || is_there(initial)) return nullptr;
    return answer(data, reduce, lengths, offsets, axis);
  }
};

// torch multiplies 16-bit numbers one by one where the processor has no instructions for them: products of 1 million
// multiplications took 12 times as long as by way of float32.
constexpr int64_t kCostOfHalves = 64;

bool is_widened(const Tensor& x) {
  const Kind of = kind(x);
  return (of == Kind::bfloat16 && widens_bfloat16) || (of == Kind::float16 && widens_float16);
}

// Products [..., N, K] x [..., K, M], of so much work or so many numbers that it pays.
bool is_large_product(const Tensor& left, const Tensor& right) {
  const bool half = is_widened(left);
  if (!half && kind(left) != Kind::float32) return false;
  const int64_t numbers = numel(left);
  return numbers * size(right, -1) * (half ? kCostOfHalves : 1) >= bounds.work.load(std::memory_order_relaxed) ||
         numbers >= bounds.sparse.load(std::memory_order_relaxed);
}

struct Mm : Served<Mm, Tensor(const Tensor&, const Tensor&)> {
  static constexpr const char *kName = "aten::mm", *kOverload = "";
  static void* run(const Tensor& left, const Tensor& right) {
    return is_large_product(left, right) ? answer(left, right) : nullptr;
  }
};

struct Addmm : Served<Addmm, Tensor(const Tensor&, const Tensor&, const Tensor&, const Scalar&, const Scalar&)> {
  static constexpr const char *kName = "aten::addmm", *kOverload = "";
  static void* run(const Tensor& added, const Tensor& left, const Tensor& right, const Scalar& beta,
                   const Scalar& alpha) {
    return is_large_product(left, right) && is_one(beta) && is_one(alpha) ? answer(left, right, added) : nullptr;
  }
};

struct Bmm : Served<Bmm, Tensor(const Tensor&, const Tensor&)> {
  static constexpr const char *kName = "aten::bmm", *kOverload = "";
  static void* run(const Tensor& left, const Tensor& right) {
    return is_widened(left) && is_large_product(left, right) ? answer(left, right) : nullptr;
  }
};

// Numbers of a vector that torch sorts by radix.
constexpr int64_t kSortedByRadix = int64_t{1} << 15;

// Integers, so many that ours pay.
bool are_many(const Tensor& x) { return is_index(x) && numel(x) >= bounds.sorted.load(std::memory_order_relaxed); }

struct Unique : Served<Unique, Several<3>(const Tensor&, bool, bool, bool)> {
  static constexpr const char *kName = "aten::_unique2", *kOverload = "";
  static void* run(const Tensor& x, bool ascending, bool inverse, bool counts) {
    return are_many(x) ? answer(x, ascending, inverse, counts) : nullptr;
  }
};

struct UniqueDim : Served<UniqueDim, Several<3>(const Tensor&, int64_t, bool, bool, bool)> {
  static constexpr const char *kName = "aten::unique_dim", *kOverload = "";
  static void* run(const Tensor& x, int64_t along, bool ascending, bool inverse, bool counts) {
    return are_many(x) && dim(x) == 2 ? answer(x, along, ascending, inverse, counts) : nullptr;
  }
};

struct Sort : Served<Sort, Several<2>(const Tensor&, MaybeBool, int64_t, bool)> {
  static constexpr const char *kName = "aten::sort", *kOverload = "stable";
  static void* run(const Tensor& x, MaybeBool stable, int64_t along, bool descending) {
    if (!are_many(x) || dim(x) != 1) return nullptr;
    const bool is_stable = stable.is_there && stable.value;
    // One that need not be stable is served where torch's is nevertheless.
    const bool served = is_stable || (!descending && numel(x) >= kSortedByRadix);
    return served ? answer(x, is_stable, along, descending) : nullptr;
  }
};

struct IsIn : Served<IsIn, Tensor(const Tensor&, const Tensor&, bool, bool)> {
  static constexpr const char *kName = "aten::isin", *kOverload = "Tensor_Tensor";
  static void* run(const Tensor& x, const Tensor& others, bool unique, bool inverted) {
    // torch's has another result of integers that are said to be unique and are not.
    return are_many(x) && is_index(others) && !unique ? answer(x, others, inverted) : nullptr;
  }
};

template <class... Ops>
struct All {
  static void prepare(const nb::list& functions) {
    size_t next = 0;
    (Ops::prepare(nb::borrow(functions[next++])), ...);
  }
  static void install() { (Ops::install(), ...); }
  static void remove() { (Ops::remove(), ...); }
  static std::vector<std::string> names() { return {Ops::kName...}; }
  static std::vector<std::string> installed() {
    std::vector<std::string> found;
    ((Ops::is_installed() ? found.push_back(Ops::kName) : void()), ...);
    return found;
  }
};

using Indexing = All<Subscript, SubscriptAdd, IndexSelect, Gather, IndexAdd<Tensor, const Tensor&>,
                     IndexAdd<Tensor&, Tensor&>, ScatterAdd<Tensor, const Tensor&>, ScatterAdd<Tensor&, Tensor&>,
                     ScatterValue, ScatterReduce<Tensor, const Tensor&>, ScatterReduce<Tensor&, Tensor&>, EmbeddingGrad,
                     BagsGrad, SegmentReduce, Unique, UniqueDim, Sort, IsIn>;
using Products = All<Mm, Addmm, Bmm>;

template <class Kernels>
void bind(nb::module_& m, const char* name) {
  nb::class_<Kernels>(m, name)
      .def_static("names", &Kernels::names)
      .def_static("prepare", &Kernels::prepare)
      .def_static("installed", &Kernels::installed)
      .def_static("install", &Kernels::install)
      .def_static("remove", &Kernels::remove);
}

}  // namespace

void bind_torch_kernels(nb::module_& m) {
  m.def("load_torch",
        [](const std::string& cpu, const std::string& python) { return load_interface(cpu.c_str(), python.c_str()); });
  m.def("find_kernels", [](nb::callable trace, int cpu) { return find_place([&] { trace(); }, cpu); });
  m.def("learn_lists",
        [](nb::callable run, uint64_t index) { return learn_lists([&] { run(); }, reinterpret_cast<void*>(index)); });
  m.def("learn_scalars", [](nb::callable run) { return learn_scalars([&] { run(); }); });
  m.def("learn_sizes", [](nb::callable run) { return learn_sizes([&] { run(); }); });
  m.def("learn_texts", [](nb::callable run) { return learn_texts([&] { run(); }); });
  bind<Indexing>(m, "IndexingKernels");
  bind<Products>(m, "ProductKernels");
  // What this thread calls is torch's between these.
  m.def("leave_to_torch", [](bool left) { return std::exchange(leaves_to_torch, left); });
  m.def("widen_products", [](bool of_bfloat16, bool of_float16) {
    widens_bfloat16 = of_bfloat16;
    widens_float16 = of_float16;
  });
  m.def("set_kernel_bounds", [](int64_t entries, int64_t numbers, int64_t work, int64_t sparse, int64_t sorted) {
    bounds.entries = entries;
    bounds.numbers = numbers;
    bounds.work = work;
    bounds.sparse = sparse;
    bounds.sorted = sorted;
  });
}
