#include "onehop/fingerprint.hpp"

#include <cstring>

#include "onehop/parallel.hpp"

namespace onehop {
namespace {

// The odd number nearest to 2^64 divided by the golden ratio: multiplying by it spreads every bit upwards.
constexpr uint64_t kMultiplier = 0x9E3779B97F4A7C15u;
// Independent chains: a multiplication has a latency of several cycles, but one can start in each.
constexpr int kChains = 8;
constexpr int64_t kStepBytes = kChains * 8;
constexpr int64_t kPieces = 16;
// Number of samples of larger arrays.
constexpr int64_t kWholeBytes = 256 << 10;
constexpr int64_t kPlaces = 256;

uint64_t mixed(uint64_t state, uint64_t word) {
  state = (state ^ word) * kMultiplier;
  return state ^ (state >> 32);
}

uint64_t fingerprint_of_piece(const char* data, int64_t bytes) {
  uint64_t chains[kChains] = {0, 1, 2, 3, 4, 5, 6, 7};
  uint64_t words[kChains];
  int64_t at = 0;
  for (; at + kStepBytes <= bytes; at += kStepBytes) {
    std::memcpy(words, data + at, kStepBytes);
    for (int i = 0; i < kChains; ++i) chains[i] = mixed(chains[i], words[i]);
  }
  std::memset(words, 0, kStepBytes);
  if (at < bytes) std::memcpy(words, data + at, static_cast<size_t>(bytes - at));  // an empty array may have no address
  uint64_t result = static_cast<uint64_t>(bytes);
  for (int i = 0; i < kChains; ++i) result = mixed(result, mixed(chains[i], words[i]));
  return result;
}

}  // namespace

uint64_t fingerprint(const void* data, int64_t bytes, int threads) {
  if (data == nullptr) bytes = 0;
  struct Context {
    const char* data;
    int64_t bytes;
    int64_t step;
    uint64_t results[kPieces];
  } context{static_cast<const char*>(data), bytes, (bytes / kPieces + kStepBytes) / kStepBytes * kStepBytes, {}};
  parallel_for(
      kPieces, threads,
      [](void* opaque, int64_t piece, int) {
        auto& c = *static_cast<Context*>(opaque);
        const int64_t begin = piece * c.step < c.bytes ? piece * c.step : c.bytes;
        const int64_t end = begin + c.step < c.bytes ? begin + c.step : c.bytes;
        c.results[piece] = fingerprint_of_piece(c.data + begin, end - begin);
      },
      &context);
  uint64_t result = 0;
  for (const uint64_t piece : context.results) result = mixed(result, piece);
  return result;
}

uint64_t sampled_fingerprint(const void* data, int64_t bytes) {
  if (data == nullptr) bytes = 0;
  const char* bytes_of = static_cast<const char*>(data);
  if (bytes <= kWholeBytes) return fingerprint_of_piece(bytes_of, bytes);
  uint64_t result = static_cast<uint64_t>(bytes);
  const int64_t last = bytes - kStepBytes;
  for (int64_t place = 0; place < kPlaces; ++place)
    result = mixed(result, fingerprint_of_piece(bytes_of + last * place / (kPlaces - 1), kStepBytes));
  return result;
}

}  // namespace onehop
