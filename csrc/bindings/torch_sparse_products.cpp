// torch's products with a sparse matrix, and the operations around them: large calls are handed to functions of Python.
#include <nanobind/nanobind.h>

#include <algorithm>

#include "torch_table.hpp"

namespace nb = nanobind;
using namespace onehop::torch_side;

namespace {

// Of 43,000 numbers, COO took torch 8 times as long as a sum over a graph takes here, and CSC, which torch converts to
// CSR, 40 times. CSR took half as long, and 1.8 times with 1.3 million.
constexpr double kCostOfSparseProducts = 256, kCostOfCompressedProducts = 4;

// The least entries, as multiples of an index's. With 5,000 entries, a product with its gradient took torch 0.8 to 0.9
// times as long as here in COO, 1.2 to 2.5 times in CSR; with 10,600, 1.2 to 1.5 and 1.4 to 3 times.
constexpr int64_t kEntriesOfCoo = 8, kEntriesOfCompressed = 4;

bool has_many_entries(const Tensor& matrix, int64_t least) {
  const int64_t count = entries(matrix);
  return count < 0 || count >= least * bounds.entries.load(std::memory_order_relaxed);
}

// Products of a sparse matrix and a dense one, on either side.
template <Key kKey>
bool is_large_sparse_product(const Tensor& left, const Tensor& right) {
  const Layout of_left = layout(left), of_right = layout(right);
  const bool is_left = of_right == Layout::strided;
  const Layout of = is_left ? of_left : of_right;
  const bool known = is_left || of_left == Layout::strided;
  // Where torch does not tell layouts, Python finds out.
  if (of != Layout::unknown && (!known || (of != Layout::coo && of != Layout::csr && of != Layout::csc))) return false;
  const int64_t numbers = known ? numel(is_left ? right : left) : std::min(numel(left), numel(right));
  const double cost = of == Layout::csr && is_left ? kCostOfCompressedProducts : kCostOfSparseProducts;
  const Tensor& matrix = is_left ? left : right;
  // torch makes a dense matrix for the gradient to the entries.
  const int64_t least = kKey == Key::autograd && requires_grad(matrix) ? 1
                        : of == Layout::coo                            ? kEntriesOfCoo
                                                                       : kEntriesOfCompressed;
  return is_float(left) &&
         static_cast<double>(numbers) * cost >= static_cast<double>(bounds.numbers.load(std::memory_order_relaxed)) &&
         (!known || of == Layout::unknown || has_many_entries(matrix, least));
}

template <Key kKey>
struct SparseMm : Served<SparseMm<kKey>, Tensor(const Tensor&, const Tensor&), Form::numbers, kKey> {
  static constexpr const char* kName = kKey == Key::autograd ? "aten::_sparse_mm" : "aten::mm";
  static constexpr const char* kOverload = "";
  static void* run(const Tensor& left, const Tensor& right) {
    return is_large_sparse_product<kKey>(left, right) ? SparseMm::answer(left, right) : nullptr;
  }
};

struct SparseMv : Served<SparseMv, Tensor(const Tensor&, const Tensor&), Form::numbers, Key::sparse_compressed> {
  static constexpr const char *kName = "aten::mv", *kOverload = "";
  static void* run(const Tensor& matrix, const Tensor& x) {
    return is_large_sparse_product<Key::sparse_compressed>(matrix, x) ? answer(matrix, x) : nullptr;
  }
};

template <Key kKey>
struct SparseAddmm
    : Served<SparseAddmm<kKey>, Tensor(const Tensor&, const Tensor&, const Tensor&, const Scalar&, const Scalar&),
             Form::numbers, kKey> {
  static constexpr const char* kName = kKey == Key::autograd ? "aten::_sparse_addmm" : "aten::addmm";
  static constexpr const char* kOverload = "";
  static void* run(const Tensor& added, const Tensor& left, const Tensor& right, const Scalar& beta,
                   const Scalar& alpha) {
    int64_t times = 0;
    const bool plain = is_integer(beta, times) && (times == 0 || times == 1) && is_one(alpha);
    if (!plain || !is_large_sparse_product<kKey>(left, right)) return nullptr;
    return SparseAddmm::answer(left, right, added, times == 1);
  }
};

// A COO matrix, of which the operations around a product pay from as many entries on as a product.
bool is_large_matrix(const Tensor& x) { return dim(x) <= 2 && is_float(x) && has_many_entries(x, kEntriesOfCoo); }

struct SparseTranspose : Served<SparseTranspose, Tensor(const Tensor&, int64_t, int64_t), Form::numbers, Key::sparse> {
  static constexpr const char *kName = "aten::transpose", *kOverload = "int";
  static void* run(const Tensor& x, int64_t first, int64_t second) {
    return dim(x) == 2 && is_large_matrix(x) ? answer(x, first, second) : nullptr;
  }
};

struct SparseCoalesce : Served<SparseCoalesce, Tensor(const Tensor&), Form::numbers, Key::sparse> {
  static constexpr const char *kName = "aten::_coalesce", *kOverload = "";
  static void* run(const Tensor& x) { return is_large_matrix(x) ? answer(x) : nullptr; }
};

template <bool kLog>
struct SparseSoftmax : Served<SparseSoftmax<kLog>, Tensor(const Tensor&, int64_t, bool), Form::numbers, Key::sparse> {
  static constexpr const char* kName = kLog ? "aten::_sparse_log_softmax" : "aten::_sparse_softmax";
  static constexpr const char* kOverload = "";
  static void* run(const Tensor& x, int64_t along, bool widen) {
    return is_large_matrix(x) && !widen ? SparseSoftmax::answer(x, along) : nullptr;
  }
};

template <bool kLog>
struct SparseSoftmaxGrad : Served<SparseSoftmaxGrad<kLog>, Tensor(const Tensor&, const Tensor&, int64_t, const Tensor&),
                                  Form::numbers, Key::sparse> {
  static constexpr const char* kName =
      kLog ? "aten::_sparse_log_softmax_backward_data" : "aten::_sparse_softmax_backward_data";
  static constexpr const char* kOverload = "";
  static void* run(const Tensor& grad, const Tensor& out, int64_t along, const Tensor&) {
    return is_large_matrix(out) ? SparseSoftmaxGrad::answer(grad, out, along) : nullptr;
  }
};

using SparseProducts = All<SparseMm<Key::sparse>, SparseAddmm<Key::sparse>, SparseMm<Key::sparse_compressed>,
                           SparseAddmm<Key::sparse_compressed>, SparseMm<Key::autograd>, SparseAddmm<Key::autograd>,
                           SparseMv, SparseTranspose, SparseCoalesce, SparseSoftmax<false>, SparseSoftmaxGrad<false>,
                           SparseSoftmax<true>, SparseSoftmaxGrad<true>>;

}  // namespace

void bind_torch_sparse_products(nb::module_& m) { bind_kernels<SparseProducts>(m, "SparseProductKernels"); }
