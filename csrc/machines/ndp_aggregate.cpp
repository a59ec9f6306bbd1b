// The machine's result, computed through its mapping: bundles in order, slices by rank, partial sums by pod.
#include <cstring>
#include <memory>
#include <new>

#include "ndp.hpp"
#include "onehop/parallel.hpp"

namespace onehop::ndp {
namespace {

constexpr int64_t kRowsPerTask = 64;

struct Job {
  const Work* work;
  const Aggregate* args;
  int64_t wanted;    // rows
  int64_t most;      // edges of a row
  int64_t width;     // columns
  int64_t* by_rank;  // [threads, most]: a row's edges, bundle by bundle
  int64_t* ends;     // [threads, ranks + 1]
  float* outputs;    // [threads, width]: the output buffers of one pod's ranks, contiguous
};

// Sorts the row's edges by rank; those of rank r then end at ends[r].
void sort_row(const Work& work, int64_t row, int64_t* by_rank, int64_t* ends) {
  memset(ends, 0, static_cast<size_t>(work.ranks + 1) * sizeof(int64_t));
  for (int64_t e = work.rowptr[row]; e < work.rowptr[row + 1]; ++e) ++ends[work.owner[work.col[e]] + 1];
  for (int32_t r = 0; r < work.ranks; ++r) ends[r + 1] += ends[r];
  for (int64_t e = work.rowptr[row]; e < work.rowptr[row + 1]; ++e) by_rank[ends[work.owner[work.col[e]]]++] = e;
}

void aggregate_rows(void* context, int64_t task, int thread) {
  const Job& job = *static_cast<Job*>(context);
  const Work& work = *job.work;
  const Aggregate& args = *job.args;
  int64_t* by_rank = job.by_rank + thread * job.most;
  int64_t* ends = job.ends + static_cast<int64_t>(thread) * (work.ranks + 1);
  float* outputs = job.outputs + thread * job.width;
  const int64_t last = (task + 1) * kRowsPerTask < job.wanted ? (task + 1) * kRowsPerTask : job.wanted;
  for (int64_t at = task * kRowsPerTask; at < last; ++at) {
    const int64_t row = args.row_list == nullptr ? at : args.row_list[at];
    sort_row(work, row, by_rank, ends);
    float* out = args.out + at * args.out_stride;
    memset(out, 0, static_cast<size_t>(job.width) * sizeof(float));
    for (int32_t first = 0; first < work.ranks; first += args.pod) {
      const int64_t begin = first == 0 ? 0 : ends[first - 1];
      const int64_t end = ends[first + args.pod - 1];
      if (begin == end) continue;  // the pod's buffers of this row are not read by the host
      for (int32_t j = 0; j < args.pod; ++j) {
        const int64_t from = args.slice[j], columns = args.slice[j + 1] - from;
        float* __restrict part = outputs + from;
        memset(part, 0, static_cast<size_t>(columns) * sizeof(float));
        for (int64_t i = begin; i < end; ++i) {
          const int64_t edge = by_rank[i];
          const float* __restrict x = args.x + work.col[edge] * args.x_stride + from;
          const float w = args.weight == nullptr ? 1.0F : args.weight[edge];
          for (int64_t c = 0; c < columns; ++c) part[c] += w * x[c];
        }
      }
      for (int64_t c = 0; c < job.width; ++c) out[c] += outputs[c];
    }
  }
}

}  // namespace

bool aggregate(const Work& work, const Aggregate& args, int threads) {
  int64_t most = 0;
  for (int64_t row = 0; row < work.rows; ++row) {
    const int64_t degree = work.rowptr[row + 1] - work.rowptr[row];
    if (degree > most) most = degree;
  }
  const int64_t width = args.slice[args.pod];
  const std::unique_ptr<int64_t[]> by_rank(new (std::nothrow) int64_t[threads * most + 1]);
  const std::unique_ptr<int64_t[]> ends(new (std::nothrow) int64_t[static_cast<int64_t>(threads) * (work.ranks + 1)]);
  const std::unique_ptr<float[]> outputs(new (std::nothrow) float[threads * width + 1]);
  if (by_rank == nullptr || ends == nullptr || outputs == nullptr) return false;
  const int64_t wanted = args.row_list == nullptr ? work.rows : args.listed;
  Job job{&work, &args, wanted, most, width, by_rank.get(), ends.get(), outputs.get()};
  parallel_for((wanted + kRowsPerTask - 1) / kRowsPerTask, threads, aggregate_rows, &job);
  return true;
}

}  // namespace onehop::ndp
