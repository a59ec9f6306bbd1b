// The products of torch_sparse: large calls are handed to functions of Python. One kernel of torch_sparse's is each of
// them, above autograd, and records its own gradient.
#include <nanobind/nanobind.h>

#include <string>

#include "torch_table.hpp"

namespace nb = nanobind;
using namespace onehop::torch_side;

namespace {

// A product with 43,000 numbers took torch_sparse ten times as long as a sum over a graph takes here.
constexpr double kCost = 64;

bool is_large_operand(const Tensor& x) { return is_float(x) && is_large(size(x, 0), numel(x), kCost); }

struct Sum : ServedOfLibrary<Sum, Tensor(const MaybeTensor&, const Tensor&, const Tensor&, const MaybeTensor&,
                                         const MaybeTensor&, const MaybeTensor&, const Tensor&)> {
  static constexpr const char* kName = "torch_sparse::spmm_sum";
  static void* run(const MaybeTensor&, const Tensor& rowptr, const Tensor& col, const MaybeTensor& value,
                   const MaybeTensor&, const MaybeTensor&, const Tensor& x) {
    return is_large_operand(x) ? answer(rowptr, col, value, x) : nullptr;
  }
};

struct Mean : ServedOfLibrary<Mean, Tensor(const MaybeTensor&, const Tensor&, const Tensor&, const MaybeTensor&,
                                           const MaybeTensor&, const MaybeTensor&, const MaybeTensor&, const Tensor&)> {
  static constexpr const char* kName = "torch_sparse::spmm_mean";
  static void* run(const MaybeTensor&, const Tensor& rowptr, const Tensor& col, const MaybeTensor& value,
                   const MaybeTensor&, const MaybeTensor&, const MaybeTensor&, const Tensor& x) {
    return is_large_operand(x) ? answer(rowptr, col, value, x) : nullptr;
  }
};

using TorchSparse = All<Sum, Mean>;

}  // namespace

void bind_torch_sparse_kernels(nb::module_& m) { bind_kernels<TorchSparse, std::string>(m, "TorchSparseKernels"); }
