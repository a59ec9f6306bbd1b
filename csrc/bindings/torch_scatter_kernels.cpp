// The operators of torch_scatter along the first dimension or, of extrema, along any: large calls are handed to
// functions of Python. One kernel of torch_scatter's is each of them, above autograd, and records its own gradient.
#include <nanobind/nanobind.h>

#include <string>

#include "torch_table.hpp"

namespace nb = nanobind;
using namespace onehop::torch_side;

namespace {

// What torch_scatter spends on a number, at the most, beside a number of a sum.
constexpr double kCost = 4;

bool is_large_of(const Tensor& x, int64_t dim) { return is_float(x) && is_large(size(x, dim), numel(x), kCost); }

template <class Op>
struct Extremum
    : ServedOfLibrary<Op, Several<2>(const Tensor&, const Tensor&, int64_t, const MaybeTensor&, MaybeInteger)> {
  static void* run(const Tensor& x, const Tensor& index, int64_t dim, const MaybeTensor& out, MaybeInteger rows) {
    return is_large_of(x, dim) && !out.is_there ? Op::answer(x, index, dim, rows) : nullptr;
  }
};
struct Max : Extremum<Max> {
  static constexpr const char* kName = "torch_scatter::scatter_max";
};
struct Min : Extremum<Min> {
  static constexpr const char* kName = "torch_scatter::scatter_min";
};

template <class Op>
struct OfSegments : ServedOfLibrary<Op, Tensor(const Tensor&, const Tensor&, const MaybeTensor&, MaybeInteger)> {
  static void* run(const Tensor& x, const Tensor& index, const MaybeTensor& out, MaybeInteger rows) {
    return is_large_of(x, 0) && !out.is_there ? Op::answer(x, index, rows) : nullptr;
  }
};
struct SumCoo : OfSegments<SumCoo> {
  static constexpr const char* kName = "torch_scatter::segment_sum_coo";
};
struct MeanCoo : OfSegments<MeanCoo> {
  static constexpr const char* kName = "torch_scatter::segment_mean_coo";
};

template <class Op>
struct BetweenBounds : ServedOfLibrary<Op, Tensor(const Tensor&, const Tensor&, const MaybeTensor&)> {
  static void* run(const Tensor& x, const Tensor& bounds, const MaybeTensor& out) {
    return is_large_of(x, 0) && !out.is_there ? Op::answer(x, bounds) : nullptr;
  }
};
struct SumCsr : BetweenBounds<SumCsr> {
  static constexpr const char* kName = "torch_scatter::segment_sum_csr";
};
struct MeanCsr : BetweenBounds<MeanCsr> {
  static constexpr const char* kName = "torch_scatter::segment_mean_csr";
};

struct GatherCoo : ServedOfLibrary<GatherCoo, Tensor(const Tensor&, const Tensor&, const MaybeTensor&)> {
  static constexpr const char* kName = "torch_scatter::gather_coo";
  static void* run(const Tensor& x, const Tensor& index, const MaybeTensor& out) {
    const int64_t entries = numel(index);
    const bool large = is_float(x) && is_large(entries, entries * row_numbers(x, 0), kCost);
    return large && !out.is_there ? answer(x, index) : nullptr;
  }
};
struct GatherCsr : ServedOfLibrary<GatherCsr, Tensor(const Tensor&, const Tensor&, const MaybeTensor&)> {
  static constexpr const char* kName = "torch_scatter::gather_csr";
  // How many entries there are is the last of the segments' bounds, which Python reads where rows that are gathered
  // some times are enough.
  static void* run(const Tensor& x, const Tensor& bounds, const MaybeTensor& out) {
    constexpr int64_t kTimes = 64;
    const bool large = is_float(x) && is_large(kTimes * size(x, 0), kTimes * numel(x), kCost);
    return large && !out.is_there ? answer(x, bounds) : nullptr;
  }
};

using TorchScatter = All<Max, Min, SumCoo, MeanCoo, SumCsr, MeanCsr, GatherCoo, GatherCsr>;

}  // namespace

void bind_torch_scatter_kernels(nb::module_& m) { bind_kernels<TorchScatter, std::string>(m, "TorchScatterKernels"); }
