// Random numbers for generated graphs and drawn neighbours: one stream a task, so that the result does not depend on
// the number of threads.
#pragma once

#include <cstdint>

namespace onehop {

// SplitMix64: G. Steele, D. Lea, C. Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
class RandomStream {
 public:
  RandomStream(uint64_t seed, uint64_t stream) : state_(mixed(mixed(seed + kStep) ^ (stream + 1) * kStep)) {}

  uint64_t bits64() { return mixed(state_ += kStep); }

  // Uniform in (0, 1), in steps of 2^-52: neither end is met.
  double between0and1() { return (static_cast<double>(bits64() >> 12) + 0.5) * 0x1p-52; }

  // Uniform in [0, bound), from the upper half of a product.
  uint64_t below(uint64_t bound) {
    return static_cast<uint64_t>((static_cast<unsigned __int128>(bits64()) * bound) >> 64);
  }

 private:
  static constexpr uint64_t kStep = 0x9e3779b97f4a7c15ULL;

  static uint64_t mixed(uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
  }

  uint64_t state_;
};

}  // namespace onehop
