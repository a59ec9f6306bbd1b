#include "onehop/denormals.hpp"

#include <algorithm>
#include <cstring>

#include "csr_arrays.hpp"

namespace onehop {
namespace {

constexpr int64_t kPlaces = 512;
constexpr int64_t kNumbersPerTask = int64_t{1} << 16;
constexpr uint32_t kSign = uint32_t{1} << 31, kExponent = 0xffu << 23;
// 2^-64, as its bits: magnitudes are in the order of their bits.
constexpr uint32_t kLarge = (127u - 64) << 23;

uint32_t bits_of(const float* x) {
  uint32_t bits;
  std::memcpy(&bits, x, sizeof bits);
  return bits & ~kSign;
}

}  // namespace

bool meets_denormals(const float* x, int64_t count) {
  const int64_t places = std::min(count, kPlaces);
  bool found = false;
  uint32_t largest = 0;
  // Multiples of the golden ratio's fraction: no column of a matrix is left out.
  uint64_t place = 0;
  for (int64_t i = 0; i < places; ++i) {
    place += 0x9E3779B97F4A7C15u;
    const auto at = static_cast<int64_t>((static_cast<unsigned __int128>(place) * static_cast<uint64_t>(count)) >> 64);
    const uint32_t bits = bits_of(x + at);
    found |= bits != 0 && (bits & kExponent) == 0;
    largest = std::max(largest, bits);
  }
  return found && largest >= kLarge;
}

void flush_denormals(const float* x, int64_t count, float* out, int threads) {
  for_tasks((count + kNumbersPerTask - 1) / kNumbersPerTask, threads, [&](int64_t task, int) {
    const int64_t end = std::min(count, (task + 1) * kNumbersPerTask);
    for (int64_t i = task * kNumbersPerTask; i < end; ++i) {
      uint32_t bits;
      std::memcpy(&bits, x + i, sizeof bits);
      if ((bits & kExponent) == 0) bits &= kSign;
      std::memcpy(out + i, &bits, sizeof bits);
    }
  });
}

}  // namespace onehop
