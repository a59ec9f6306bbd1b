// The inner loops of searches among points. Compiled without fused products and sums, which would round otherwise than
// torch's squares and sums.
#include "blocks.hpp"
#include "tables.hpp"

namespace onehop {
inline namespace ONEHOP_ISA {
namespace {

constexpr int kLanes = kFullLanes<double>;
using V = Vector<double, kLanes>;
using N = Vector<int64_t, kLanes>;

// A bit for each lane that is not above a limit.
ONEHOP_INLINE uint32_t at_most(V value, double limit) {
#if defined(__AVX512F__)
  return _mm512_cmp_pd_mask((__m512d)value, _mm512_set1_pd(limit), _CMP_LE_OQ);
#elif defined(__AVX2__)
  return static_cast<uint32_t>(_mm256_movemask_pd(_mm256_cmp_pd((__m256d)value, _mm256_set1_pd(limit), _CMP_LE_OQ)));
#else
  uint32_t lanes = 0;
  for (int lane = 0; lane < kLanes; ++lane) lanes |= static_cast<uint32_t>(value[lane] <= limit) << lane;
  return lanes;
#endif
}

// Counts for each point how many come before it, by their distances and, with `ties`, by their numbers. Returns the
// sum.
template <bool ties>
ONEHOP_INLINE int64_t count_before(const double* squared, const int64_t* numbers, int64_t count, int64_t* ranks) {
  for (int64_t begin = 0; begin < count; begin += kLanes) {
    const V distance = load<double, kLanes>(squared + begin);
    const N number = load_raw<int64_t, kLanes>(numbers + begin);
    N before = {};
    for (int64_t j = 0; j < count; ++j) {
      // A comparison that holds is -1.
      before -= (N)(squared[j] < distance);
      if constexpr (ties) before -= (N)(squared[j] == distance) & (N)(numbers[j] < number);
    }
    store_raw<int64_t, kLanes>(ranks + begin, before);
  }
  int64_t total = 0;
  for (int64_t i = 0; i < count; ++i) total += ranks[i];
  return total;
}

}  // namespace

uint32_t leaf_distances(const double* coordinates, const double* point, int64_t dims, double reach, double* squared) {
  constexpr int kVectors = kLeafPoints / kLanes;
  V sums[kVectors] = {};
  for (int64_t d = 0; d < dims; ++d, coordinates += kLeafPoints) {
    for (int v = 0; v < kVectors; ++v) {
      const V difference = load<double, kLanes>(coordinates + v * kLanes) - point[d];
      sums[v] += difference * difference;
    }
  }
  uint32_t near = 0;
  for (int v = 0; v < kVectors; ++v) {
    store<double, kLanes>(squared + v * kLanes, sums[v]);
    near |= at_most(sums[v], reach) << (v * kLanes);
  }
  return near;
}

void rank_points(double* squared, int64_t* numbers, int64_t count, int64_t most) {
  int64_t ranks[kRankedPoints], sorted_numbers[kRankedPoints];
  double sorted[kRankedPoints];
  // Of two points that are not equally far, one comes before the other.
  if (count_before<false>(squared, numbers, count, ranks) < count * (count - 1) / 2) {
    count_before<true>(squared, numbers, count, ranks);
  }
  for (int64_t i = 0; i < count; ++i) {
    sorted[ranks[i]] = squared[i];
    sorted_numbers[ranks[i]] = numbers[i];
  }
  const int64_t kept = smaller(count, most);
  std::memcpy(squared, sorted, kept * sizeof(double));
  std::memcpy(numbers, sorted_numbers, kept * sizeof(int64_t));
}

int64_t next_within(const ProductBounds& bounds, double share, double limit, int64_t begin, int64_t end) {
  const double norm = bounds.norm * share;
  int64_t i = begin;
  for (; i + kLanes <= end; i += kLanes) {
    const V bound =
        load<double, kLanes>(bounds.norms + i) * share + norm - 2 * load<double, kLanes>(bounds.products + i);
    const uint32_t near = at_most(bound, limit);
    if (near != 0) return i + __builtin_ctz(near);
  }
  for (; i < end; ++i) {
    if (bounds.norms[i] * share + norm - 2 * bounds.products[i] <= limit) break;
  }
  return i;
}

int64_t farthest_after(const double* coordinates, int64_t room, int64_t dims, int64_t picked, double* squared) {
  constexpr int kVectors = kFarthestPoints / kLanes;
  double most = -1;
  int64_t best = 0;
  for (int64_t begin = 0; begin < room; begin += kFarthestPoints) {
    V away[kVectors] = {};
    for (int64_t d = 0; d < dims; ++d) {
      const double* along = coordinates + d * room;
      for (int v = 0; v < kVectors; ++v) {
        const V difference = load<double, kLanes>(along + begin + v * kLanes) - along[picked];
        away[v] += difference * difference;
      }
    }
    V largest = splat<double, kLanes>(-1);
    for (int v = 0; v < kVectors; ++v) {
      double* at = squared + begin + v * kLanes;
      const V now = smaller_of<double, kLanes>(away[v], load<double, kLanes>(at));
      store<double, kLanes>(at, now);
      largest = larger_of<double, kLanes>(now, largest);
    }
    double lanes[kLanes], top = -1;
    store<double, kLanes>(lanes, largest);
    for (const double each : lanes) top = each > top ? each : top;
    if (top > most) {
      most = top;
      best = begin;
    }
  }
  // NaN, where a coordinate was written to after it was checked, is nowhere found.
  while (best < room - 1 && squared[best] != most) ++best;
  return best;
}

}  // namespace ONEHOP_ISA
}  // namespace onehop
