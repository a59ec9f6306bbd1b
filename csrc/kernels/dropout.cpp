// Elements times the factors of a dropout, given as bits: the scale where a bit is 1, and 0 where it is 0.
#include "sweep.hpp"
#include "tables.hpp"

namespace onehop {
inline namespace ONEHOP_ISA {
namespace {

// An element takes part in the product even where its factor is 0, for infinity and NaN become NaN then.
template <class T, int kLanes, bool kOnes>
ONEHOP_INLINE Vector<Acc<T>, kLanes> kept(const T* x, uint64_t bits, Vector<Acc<T>, kLanes> scale) {
  using A = Acc<T>;
  using V = Vector<A, kLanes>;
  V factor;
  if constexpr (kLanes == 1) {
    factor = (bits & 1) != 0 ? scale : A(0);
  } else {
    using I = decltype(V{} == V{});
    I lane;
    for (int i = 0; i < kLanes; ++i) lane[i] = 1 << i;
    const I bit = (I{} + static_cast<decltype(lane[0] + 0)>(bits & ((uint64_t{1} << kLanes) - 1))) & lane;
    factor = bit != 0 ? scale : V{};
  }
  if constexpr (kOnes) {
    return factor;
  } else {
    return load<T, kLanes>(x) * factor;
  }
}

template <class T, bool kOnes, bool kPast>
void keep_as(const KeepArgs& args) {
  constexpr int kLanes = kFullLanes<Acc<T>>;
  const auto scale = static_cast<Acc<T>>(args.scale);
  const auto scales = splat<Acc<T>, kLanes>(scale);
  const T* x = static_cast<const T*>(args.x);
  T* out = static_cast<T*>(args.out);
  int64_t left = args.count;
  const uint64_t* bits = args.bits;
  for (; left >= 64; left -= 64, ++bits, x += kOnes ? 0 : 64, out += 64) {
#pragma GCC unroll 32
    for (int i = 0; i < 64; i += kLanes) {
      const auto value = kept<T, kLanes, kOnes>(kOnes ? x : x + i, *bits >> i, scales);
      if constexpr (kPast) {
        store_past_caches<T, kLanes>(out + i, value);
      } else {
        store<T, kLanes>(out + i, value);
      }
    }
  }
  for (int64_t i = 0; i < left; ++i) store<T, 1>(out + i, kept<T, 1, kOnes>(kOnes ? x : x + i, *bits >> i, scale));
  if constexpr (kPast) settle_stores();
}

}  // namespace

void keep(const KeepArgs& args) {
  with_type(args.dtype, [&]<class T>(T) {
    // 16-bit numbers are stored half a vector at a time, which the caches put together.
    const bool past = sizeof(T) >= 4 && args.nontemporal && reinterpret_cast<uintptr_t>(args.out) % kVectorBytes == 0;
    if constexpr (sizeof(T) >= 4) {
      if (past) return args.x == nullptr ? keep_as<T, true, true>(args) : keep_as<T, false, true>(args);
    }
    return args.x == nullptr ? keep_as<T, true, false>(args) : keep_as<T, false, false>(args);
  });
}

}  // namespace ONEHOP_ISA
}  // namespace onehop
