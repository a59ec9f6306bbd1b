// The state of MT19937 so many words on, by arithmetic of polynomials over two elements.
//
// Every bit of the sequence of words obeys a recurrence whose polynomial phi has degree 19937 (Matsumoto and Nishimura,
// "Mersenne Twister", 1998, appendix A). So the word so many steps on is the exclusive or of the words k steps on, for
// the terms x^k of x^steps modulo phi (Haramoto, Matsumoto, Nishimura, Panneton and L'Ecuyer, "Efficient Jump Ahead
// for F2-Linear Random Number Generators", 2008).
#include "onehop/mersenne.hpp"

#include <array>
#include <bitset>
#include <deque>
#include <mutex>
#include <vector>

#include "onehop/fork_safe_mutex.hpp"
#include "onehop/kernels.hpp"

namespace onehop {
namespace {

constexpr int kDegree = 19937;
constexpr int kWords = (kDegree + 63) / 64;  // of 64 coefficients each, the lowest first
constexpr size_t kKept = 64;                 // distances whose polynomial is kept
// Kernels write up to one vector past the end.
constexpr int64_t kSpare = 16;

using Polynomial = std::array<uint64_t, kWords>;

// The exponents of phi, without the highest. With b = t^623 + t^396, c = t^624 + t^397 and a_i the bits of the
// generator's matrix: phi = c b^31 + a_0 c b^30 + ... + a_30 c + a_31.
std::vector<int> exponents() {
  constexpr uint32_t kMatrix = 0x9908b0dfu;
  std::bitset<kDegree + 1> sum(1);
  for (int i = 0; i < 31; ++i) {
    sum = (sum << 623) ^ (sum << 396);
    sum[0] = sum[0] ^ ((kMatrix >> i & 1) != 0);
  }
  sum = (sum << 624) ^ (sum << 397);
  sum[0] = sum[0] ^ ((kMatrix >> 31) != 0);
  std::vector<int> found;
  for (int i = 0; i < kDegree; ++i) {
    if (sum[static_cast<size_t>(i)]) found.push_back(i);
  }
  return found;
}

// Adds `bits` times x^place.
void add(uint64_t* polynomial, uint64_t bits, int64_t place) {
  const int64_t word = place / 64, shift = place % 64;
  polynomial[word] ^= bits << shift;
  if (shift != 0) polynomial[word + 1] ^= bits >> (64 - shift);
}

// Every bit moves to twice its place.
uint64_t spread(uint64_t half) {
  half &= 0xffffffffu;
  half = (half | half << 16) & 0x0000ffff0000ffffu;
  half = (half | half << 8) & 0x00ff00ff00ff00ffu;
  half = (half | half << 4) & 0x0f0f0f0f0f0f0f0fu;
  half = (half | half << 2) & 0x3333333333333333u;
  return (half | half << 1) & 0x5555555555555555u;
}

// p * p modulo phi.
void square(Polynomial& p, const std::vector<int>& phi) {
  std::array<uint64_t, 2 * kWords + 1> wide{};
  for (size_t i = 0; i < kWords; ++i) {
    wide[2 * i] = spread(p[i]);
    wide[2 * i + 1] = spread(p[i] >> 32);
  }
  // A word at a time: the second highest exponent of phi is more than a word below the highest.
  for (int64_t word = 2 * kWords - 1; word >= kWords; --word) {
    const uint64_t bits = wide[static_cast<size_t>(word)];
    for (const int exponent : phi) add(wide.data(), bits, 64 * word - kDegree + exponent);
  }
  constexpr int kTop = kDegree % 64;
  const uint64_t bits = wide[kWords - 1] >> kTop;
  wide[kWords - 1] &= (uint64_t{1} << kTop) - 1;
  for (const int exponent : phi) add(wide.data(), bits, exponent);
  for (size_t i = 0; i < kWords; ++i) p[i] = wide[i];
}

// p * x modulo phi.
void times_x(Polynomial& p, const std::vector<int>& phi) {
  for (size_t i = kWords - 1; i > 0; --i) p[i] = p[i] << 1 | p[i - 1] >> 63;
  p[0] <<= 1;
  constexpr int kTop = kDegree % 64;
  if ((p[kWords - 1] >> kTop & 1) != 0) {
    p[kWords - 1] ^= uint64_t{1} << kTop;
    for (const int exponent : phi) p[static_cast<size_t>(exponent / 64)] ^= uint64_t{1} << (exponent % 64);
  }
}

// x^power modulo phi: by the power's binary digits, those that make less than phi's degree at once.
Polynomial power_of_x(int64_t power) {
  static const std::vector<int> phi = exponents();
  int digits = 0;
  while (power >> digits >= kDegree) ++digits;
  Polynomial p{};
  const auto start = static_cast<size_t>(power >> digits);
  p[start / 64] = uint64_t{1} << (start % 64);
  while (digits-- > 0) {
    square(p, phi);
    if ((power >> digits & 1) != 0) times_x(p, phi);
  }
  return p;
}

Polynomial kept_power_of_x(int64_t power) {
  struct Entry {
    int64_t power;
    Polynomial polynomial;
  };
  static ForkSafeMutex mutex;
  static std::deque<Entry> kept;
  {
    const std::lock_guard lock(mutex);
    for (const Entry& entry : kept) {
      if (entry.power == power) return entry.polynomial;
    }
  }
  const Polynomial polynomial = power_of_x(power);
  const std::lock_guard lock(mutex);
  kept.push_back({power, polynomial});
  if (kept.size() > kKept) kept.pop_front();
  return polynomial;
}

}  // namespace

void jump(uint32_t* block, int64_t words) {
  // The first word of a given block need not obey the recurrence: of a seeded state only its highest bit counts. So
  // the words added up are those from the next block on.
  const Polynomial polynomial = kept_power_of_x(words - kMersenneWords);
  std::vector<int32_t> terms;
  terms.reserve(kDegree);
  for (int i = 0; i < kDegree; ++i) {
    if ((polynomial[static_cast<size_t>(i / 64)] >> (i % 64) & 1) != 0) {
      terms.push_back(static_cast<int32_t>(kMersenneWords) + i);
    }
  }
  std::vector<uint32_t> stream(block, block + kMersenneWords);
  stream.resize(2 * kMersenneWords + kDegree + kSpare);
  kernels().mersenne_words(stream.data(), kMersenneWords + kDegree);
  kernels().mersenne_fold(stream.data(), terms.data(), static_cast<int64_t>(terms.size()), block);
}

}  // namespace onehop
