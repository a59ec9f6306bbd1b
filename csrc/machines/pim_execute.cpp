#include "pim_execute.hpp"

#include <cstdlib>
#include <cstring>

#include "onehop/parallel.hpp"

namespace onehop::pim {
namespace {

// Signed integers are added as unsigned ones, for which overflow is defined.
template <class T>
struct Wrapping {
  using type = T;
};
template <>
struct Wrapping<int8_t> {
  using type = uint8_t;
};
template <>
struct Wrapping<int16_t> {
  using type = uint16_t;
};
template <>
struct Wrapping<int32_t> {
  using type = uint32_t;
};
template <>
struct Wrapping<int64_t> {
  using type = uint64_t;
};

class Buffer {
 public:
  explicit Buffer(int64_t bytes) : data_(std::malloc(bytes > 0 ? static_cast<size_t>(bytes) : 1)) {}
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { std::free(data_); }
  void* data() const { return data_; }

 private:
  void* data_;
};

struct Work {
  const Part* part;
  const Chunk* chunks;
  bool failed;
};

constexpr int64_t kAhead = 12;

template <class X, class S, int W, bool kWeighted>
void add_row(const int32_t* col, const X* weight, const X* x, int64_t begin, int64_t end, S* sums) {
  using U = typename Wrapping<S>::type;
  U sum[W] = {};
  for (int64_t e = begin; e < end; ++e) {
    // Columns are padded for prefetching.
    __builtin_prefetch(x + int64_t{col[e + kAhead]} * W);
    const X* const row = x + int64_t{col[e]} * W;
    if constexpr (kWeighted) {
      const U factor = static_cast<U>(static_cast<S>(weight[e]));
      for (int k = 0; k < W; ++k) {
        sum[k] = static_cast<U>(sum[k] + static_cast<U>(factor * static_cast<U>(static_cast<S>(row[k]))));
      }
    } else {
      for (int k = 0; k < W; ++k) sum[k] = static_cast<U>(sum[k] + static_cast<U>(static_cast<S>(row[k])));
    }
  }
  for (int k = 0; k < W; ++k) sums[k] = static_cast<S>(static_cast<U>(sums[k]) + sum[k]);
}

template <class X, class S, int W, bool kWeighted>
bool run_chunk(const Part& part, const Chunk& chunk) {
  using U = typename Wrapping<S>::type;
  const Cores& cut = part.cuts[chunk.cut];
  const int64_t width = chunk.end - chunk.begin;
  // The slice of the features that each core of the cluster gets.
  Buffer slice(part.columns * W * static_cast<int64_t>(sizeof(X)));
  int64_t most_rows = 0;
  for (int core = 0; core < cut.cores; ++core) {
    const int64_t rows = cut.core_rows[cut.cores + core] - cut.core_rows[core];
    if (rows > most_rows) most_rows = rows;
  }
  // The block of results in a core's bank.
  Buffer results(most_rows * W * static_cast<int64_t>(sizeof(S)));
  if (slice.data() == nullptr || results.data() == nullptr) return false;
  X* const x = static_cast<X*>(slice.data());
  S* const y = static_cast<S*>(results.data());
  const X* const from = static_cast<const X*>(part.x) + chunk.begin;
  for (int64_t row = 0; row < part.columns; ++row) {
    for (int64_t k = 0; k < W; ++k) x[row * W + k] = k < width ? from[row * part.x_stride + k] : X{};
  }

  const int64_t each = int64_t{cut.cores} * cut.threads;
  for (int core = 0; core < cut.cores; ++core) {
    const int64_t first = cut.core_rows[core], last = cut.core_rows[cut.cores + core];
    std::memset(y, 0, static_cast<size_t>((last - first) * W) * sizeof(S));
    for (int t = 0; t < cut.threads; ++t) {
      const int64_t* const entry = cut.tasklets + int64_t{core} * cut.threads + t;
      const int64_t edge_begin = entry[0], edge_end = entry[each];
      for (int64_t row = entry[2 * each]; row < entry[3 * each]; ++row) {
        const int64_t begin = part.positions[row] < edge_begin ? edge_begin : part.positions[row];
        const int64_t end = part.positions[row + 1] > edge_end ? edge_end : part.positions[row + 1];
        add_row<X, S, W, kWeighted>(part.col, static_cast<const X*>(part.weight), x, begin, end, y + (row - first) * W);
      }
    }
    // The host adds the results that it pulled.
    for (int64_t row = first; row < last; ++row) {
      S* const to = static_cast<S*>(part.out) + row * part.out_stride + chunk.begin;
      const S* const sums = y + (row - first) * W;
      for (int64_t k = 0; k < width; ++k) {
        to[k] = static_cast<S>(static_cast<U>(static_cast<U>(to[k]) + static_cast<U>(sums[k])));
      }
    }
  }
  return true;
}

template <class X, class S, bool kWeighted>
void run_task(void* context, int64_t task, int) {
  Work& work = *static_cast<Work*>(context);
  const Chunk& chunk = work.chunks[task];
  const int64_t width = chunk.end - chunk.begin;
  bool done;
  if (width <= 1) {
    done = run_chunk<X, S, 1, kWeighted>(*work.part, chunk);
  } else if (width <= 4) {
    done = run_chunk<X, S, 4, kWeighted>(*work.part, chunk);
  } else {
    done = run_chunk<X, S, kMostColumns, kWeighted>(*work.part, chunk);
  }
  // Only ever set, so that it does not matter which task is first.
  if (!done) __atomic_store_n(&work.failed, true, __ATOMIC_RELAXED);
}

template <class X, class S>
bool run(const Part& part, const Chunk* chunks, int64_t count, int threads) {
  Work work{&part, chunks, false};
  parallel_for(count, threads, part.weight != nullptr ? run_task<X, S, true> : run_task<X, S, false>, &work);
  return !work.failed;
}

}  // namespace

bool execute(Number x, Number sums, const Part& part, const Chunk* chunks, int64_t count, int threads) {
  const int pair = static_cast<int>(x) * 8 + static_cast<int>(sums);
  constexpr auto of = [](Number a, Number b) { return static_cast<int>(a) * 8 + static_cast<int>(b); };
  switch (pair) {
    case of(Number::int8, Number::int8):
      return run<int8_t, int8_t>(part, chunks, count, threads);
    case of(Number::int8, Number::int16):
      return run<int8_t, int16_t>(part, chunks, count, threads);
    case of(Number::int8, Number::int32):
      return run<int8_t, int32_t>(part, chunks, count, threads);
    case of(Number::int8, Number::int64):
      return run<int8_t, int64_t>(part, chunks, count, threads);
    case of(Number::int16, Number::int16):
      return run<int16_t, int16_t>(part, chunks, count, threads);
    case of(Number::int16, Number::int32):
      return run<int16_t, int32_t>(part, chunks, count, threads);
    case of(Number::int16, Number::int64):
      return run<int16_t, int64_t>(part, chunks, count, threads);
    case of(Number::int32, Number::int32):
      return run<int32_t, int32_t>(part, chunks, count, threads);
    case of(Number::int32, Number::int64):
      return run<int32_t, int64_t>(part, chunks, count, threads);
    case of(Number::int64, Number::int64):
      return run<int64_t, int64_t>(part, chunks, count, threads);
    case of(Number::float32, Number::float32):
      return run<float, float>(part, chunks, count, threads);
    case of(Number::float64, Number::float64):
      return run<double, double>(part, chunks, count, threads);
    default:
      return false;
  }
}

}  // namespace onehop::pim
