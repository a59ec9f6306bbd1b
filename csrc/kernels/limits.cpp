// The memory's bandwidth without computation: the roofs that kernels are compared with.
#include "sweep.hpp"
#include "tables.hpp"

namespace onehop {
inline namespace ONEHOP_ISA {
namespace {

constexpr int kLanes = kFullLanes<float>;
using V = Vector<float, kLanes>;

// Runs body(begin, end) -> float over [0, count) in pieces, and sums the results.
template <class Body>
float sum_over_pieces(int64_t count, int64_t piece, int threads, const Body& body) {
  struct Context {
    int64_t count, piece;
    const Body& body;
    float* sums;
  };
  const Block sums(threads * kLineBytes);
  std::memset(sums.data(), 0, static_cast<size_t>(threads) * kLineBytes);
  Context context{count, piece, body, sums.as<float>()};
  parallel_for((count + piece - 1) / piece, threads,
               [](void* opaque, int64_t task, int thread) {
                 const auto& c = *static_cast<const Context*>(opaque);
                 const int64_t begin = task * c.piece;
                 c.sums[thread * kLineBytes / static_cast<int>(sizeof(float))] +=
                     c.body(begin, smaller(begin + c.piece, c.count));
               },
               &context);
  float total = 0;
  for (int t = 0; t < threads; ++t) total += context.sums[t * kLineBytes / static_cast<int>(sizeof(float))];
  return total;
}

}  // namespace

float stream_read(const float* from, int64_t count, int threads) {
  constexpr int64_t kFloatsPerPiece = int64_t{1} << 18;
  return sum_over_pieces(count, kFloatsPerPiece, threads, [from](int64_t begin, int64_t end) {
    V sums[4] = {};
    int64_t i = begin;
    for (; i + 4 * kLanes <= end; i += 4 * kLanes) {
      for (int v = 0; v < 4; ++v) sums[v] += load<float, kLanes>(from + i + v * kLanes);
    }
    float rest = 0;
    for (; i < end; ++i) rest += from[i];
    return rest + sum_of_lanes<float, kLanes>((sums[0] + sums[1]) + (sums[2] + sums[3]));
  });
}

float gather_rows(const float* x, int64_t row_floats, const int32_t* index, int64_t count, int prefetch, int threads) {
  constexpr int64_t kRowsPerPiece = 8192;
  return sum_over_pieces(count, kRowsPerPiece, threads, [=](int64_t begin, int64_t end) {
    V sums[4] = {};
    for (int64_t i = begin; i < end; ++i) {
      const float* coming = x + index[smaller(i + prefetch, end - 1)] * row_floats;
      const float* row = x + index[i] * row_floats;
      int64_t column = 0;
      for (; column + 4 * kLanes <= row_floats; column += 4 * kLanes) {
        prefetch_lines<4 * kLanes * 4>(reinterpret_cast<const char*>(coming + column));
        for (int v = 0; v < 4; ++v) sums[v] += load<float, kLanes>(row + column + v * kLanes);
      }
      for (; column < row_floats; column += kLanes) {
        prefetch_lines<kLanes * 4>(reinterpret_cast<const char*>(coming + column));
        sums[0] += load<float, kLanes>(row + column);
      }
    }
    return sum_of_lanes<float, kLanes>((sums[0] + sums[1]) + (sums[2] + sums[3]));
  });
}

}  // namespace ONEHOP_ISA
}  // namespace onehop
