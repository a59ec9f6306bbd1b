// torch's gathers and scatters, where torch dispatches them: large calls are handed to functions of Python.
//
// A function here takes the place of torch's CPU kernel (torch/operators.hpp), so it runs below autograd, in any
// thread, with or without Python's lock. A call that is too small, or that Python does not serve, goes to torch's.
#include <nanobind/nanobind.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "torch_table.hpp"

namespace nb = nanobind;
using namespace onehop::torch_side;

namespace {

// Whether products of these are made through float32.
std::atomic<bool> widens_bfloat16, widens_float16;

bool is_index(const Tensor& index) {
  const Kind of = kind(index);
  return of == Kind::int64 || of == Kind::int32;
}

// What torch spends on a number, beside a number of a sum. A subscript pays from 65,000 numbers with an index of 4,096
// on: 1.6 to 2.3 times torch's speed. index_select and gather of 2 million ran at 0.6 to 1.6 times of it, of 4 million
// at 0.8 to 3, of 8 million at 1 to 10: torch gets the memory of such a result from the system anew.
constexpr double kCostOfSubscripts = 16, kCostOfGathers = 0.5;

void* gathered(auto answer, const Tensor& x, int64_t dim, const Tensor& index, double cost) {
  const int64_t entries = numel(index);
  const bool large = is_large(entries, entries * row_numbers(x, dim), cost) && is_float(x) && is_index(index);
  return large ? answer() : nullptr;
}

// Adding 65,000 numbers by a subscript took torch seven times as long as here, and twice with an index that is new; so
// did the gradients of embeddings of 500,000. Means and extrema ran at 0.4 to 0.8 times torch's speed with 500,000
// numbers, and at 1.2 to 1.8 with 4 million; extrema that include the result's own numbers at 1.9 with 17 million,
// where each row has many.
constexpr double kCostOfSubscriptSums = 32, kCostOfEmbeddings = 4, kCostOfReductions = 0.5, kCostOfOwnExtrema = 0.125;

// By whole rows or by single entries, whose index is as large as the values. Here all rows of the result are passed
// over, and by torch those of the index alone: 33,000 rows of 64 added into 170,000 took three times as long as
// torch's, 262,000 half as long; by a subscript 16,000 took 0.8 times as long.
constexpr double kMostRows = 4;

void* scattered(auto answer, const Tensor& x, const Tensor& index, const Tensor& values, double cost) {
  const int64_t numbers = numel(values);
  const bool large = is_large(numel(index), numbers, cost) && is_float(x) && is_index(index);
  const bool many = static_cast<double>(numbers) * std::min(cost, kMostRows) >= static_cast<double>(numel(x)) ||
                    bounds.numbers.load(std::memory_order_relaxed) == 0;
  return large && many ? answer() : nullptr;
}

// A mask needs no graph: reading 32,000 numbers under one took torch 1.2 to 1.4 times as long, adding to 65,000 1.3 to
// 2.3 times.
constexpr double kCostOfMasks = 64, kCostOfMaskedSums = 32;

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
      return is_large(numel(*index), numel(x), kCostOfMaskedSums) ? answer(x, dim, *index, values) : nullptr;
    }
    return scattered([&] { return answer(x, dim, *index, values); }, x, *index, values, kCostOfSubscriptSums);
  }
};

struct IndexSelect : Served<IndexSelect, Tensor(const Tensor&, int64_t, const Tensor&)> {
  static constexpr const char *kName = "aten::index_select", *kOverload = "";
  static void* run(const Tensor& x, int64_t dim, const Tensor& index) {
    return gathered([&] { return answer(x, dim, index); }, x, dim, index, kCostOfGathers);
  }
};

struct Gather : Served<Gather, Tensor(const Tensor&, int64_t, const Tensor&, bool)> {
  static constexpr const char *kName = "aten::gather", *kOverload = "";
  static void* run(const Tensor& x, int64_t dim, const Tensor& index, bool) {
    const int64_t numbers = numel(index);
    return is_large(numbers, numbers, kCostOfGathers) && is_float(x) ? answer(x, dim, index) : nullptr;
  }
};

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
    const std::string_view by = characters_of(reduce);
    const double cost = by == "sum" ? 1 : with_self && by != "mean" ? kCostOfOwnExtrema : kCostOfReductions;
    return scattered([&] { return ScatterReduce::answer(x, dim, index, source, reduce, with_self); }, x, index, source,
                     cost);
  }
};

struct EmbeddingGrad
    : Served<EmbeddingGrad, Tensor(const Tensor&, const Tensor&, const Size&, const Size&, bool), Form::symbols> {
  static constexpr const char *kName = "aten::embedding_dense_backward", *kOverload = "";
  static void* run(const Tensor& grad, const Tensor& index, const Size& rows, const Size& padding, bool by_frequency) {
    if (by_frequency || rows.value < 0 || padding.value < -1) return nullptr;
    return scattered([&] { return answer(grad, index, rows.value, padding.value); }, grad, index, grad,
                     kCostOfEmbeddings);
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
    const bool large = is_large(entries, entries * size(grad, 1), kCostOfEmbeddings) && is_index(index);
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

// It has no derivative, so torch calls it by the stack.
struct SegmentReduceGrad
    : Served<SegmentReduceGrad, Tensor(const Tensor&, const Tensor&, const Tensor&, Text, const MaybeTensor&,
                                       const MaybeTensor&, int64_t, const MaybeScalar&)> {
  static constexpr const char *kName = "aten::_segment_reduce_backward", *kOverload = "";
  static void* run(const Tensor& grad, const Tensor&, const Tensor& data, Text reduce, const MaybeTensor& lengths,
                   const MaybeTensor& offsets, int64_t axis, const MaybeScalar& initial) {
    if (!is_large(numel(data), numel(data), 1) || is_there(initial)) return nullptr;
    return answer(grad, data, reduce, lengths, offsets, axis);
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

using Indexing = All<Subscript, SubscriptAdd, IndexSelect, Gather, IndexAdd<Tensor, const Tensor&>,
                     IndexAdd<Tensor&, Tensor&>, ScatterAdd<Tensor, const Tensor&>, ScatterAdd<Tensor&, Tensor&>,
                     ScatterValue, ScatterReduce<Tensor, const Tensor&>, ScatterReduce<Tensor&, Tensor&>, EmbeddingGrad,
                     BagsGrad, SegmentReduce, SegmentReduceGrad, Unique, UniqueDim, Sort, IsIn>;
using Products = All<Mm, Addmm, Bmm>;

}  // namespace

void bind_torch_kernels(nb::module_& m) {
  m.def("load_torch",
        [](const std::string& cpu, const std::string& python) { return load_interface(cpu.c_str(), python.c_str()); });
  m.def("find_kernels", [](nb::callable trace, const std::array<int, kKeys>& numbers) {
    return find_place([&] { trace(); }, numbers);
  });
  m.def("find_autograd_kernels", [](nb::callable trace) { return find_autograd_place([&] { trace(); }); });
  m.def("learn_boxed", [](nb::callable run, uint64_t self, uint64_t index) {
    return learn_boxed([&] { run(); }, reinterpret_cast<void*>(self), reinterpret_cast<void*>(index));
  });
  m.def("learn_boxed_texts", [](nb::callable run) { return learn_boxed_texts([&] { run(); }); });
  m.def("learn_lists",
        [](nb::callable run, uint64_t index) { return learn_lists([&] { run(); }, reinterpret_cast<void*>(index)); });
  m.def("learn_scalars", [](nb::callable run) { return learn_scalars([&] { run(); }); });
  m.def("learn_sizes", [](nb::callable run) { return learn_sizes([&] { run(); }); });
  m.def("learn_texts", [](nb::callable run) { return learn_texts([&] { run(); }); });
  bind_kernels<Indexing>(m, "IndexingKernels");
  bind_kernels<Products>(m, "ProductKernels");
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
