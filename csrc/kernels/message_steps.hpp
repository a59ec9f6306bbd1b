// The steps of a message over one tile of edges: what each computes from rows that stay in the first cache.
#pragma once

#include "message_functions.hpp"
#include "onehop/message.hpp"
#include "sweep.hpp"

namespace onehop {
inline namespace ONEHOP_ISA {

// A value's rows in the tile: side by side, or each where its pointer says. A matrix is `flat`, too.
template <class T>
struct Rows {
  const T* flat;
  const T** each;
  int64_t width;
  ONEHOP_INLINE const T* operator[](int64_t edge) const { return flat != nullptr ? flat + edge * width : each[edge]; }
};

// Rows side by side end at a multiple of so many numbers, up to which they are computed.
ONEHOP_INLINE int64_t rounded_up(int64_t count) { return (count + kWholeRow - 1) / kWholeRow * kWholeRow; }

template <class T, class Body>
ONEHOP_INLINE void for_numbers(const Rows<T>& a, int64_t edges, T* out, const Body& body) {
  constexpr int kLanes = kFullLanes<T>;
  if (a.flat != nullptr) {
    const int64_t count = rounded_up(edges * a.width);
    for (int64_t i = 0; i < count; i += kLanes) store<T, kLanes>(out + i, body(load<T, kLanes>(a.flat + i)));
    return;
  }
  for (int64_t edge = 0; edge < edges; ++edge, out += a.width) {
    const T* from = a.each[edge];
    for (int64_t i = 0; i < a.width; i += kLanes) store<T, kLanes>(out + i, body(load<T, kLanes>(from + i)));
  }
}

template <class T, class Body>
ONEHOP_INLINE void for_pairs(const Rows<T>& a, const Rows<T>& b, int64_t edges, T* out, const Body& body) {
  constexpr int kLanes = kFullLanes<T>;
  if (a.flat != nullptr && b.flat != nullptr) {
    const int64_t count = rounded_up(edges * a.width);
    for (int64_t i = 0; i < count; i += kLanes) {
      store<T, kLanes>(out + i, body(load<T, kLanes>(a.flat + i), load<T, kLanes>(b.flat + i)));
    }
    return;
  }
  for (int64_t edge = 0; edge < edges; ++edge, out += a.width) {
    const T *left = a[edge], *right = b[edge];
    for (int64_t i = 0; i < a.width; i += kLanes) {
      store<T, kLanes>(out + i, body(load<T, kLanes>(left + i), load<T, kLanes>(right + i)));
    }
  }
}

template <class T>
ONEHOP_INLINE void copy_numbers(const T* from, int64_t count, T* out) {
  constexpr int kLanes = kFullLanes<T>;
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) store<T, kLanes>(out + i, load<T, kLanes>(from + i));
  for (; i < count; ++i) out[i] = from[i];
}

// Each `block` numbers of a, over and over, side by side.
template <class T>
void spread(const Rows<T>& a, int64_t edges, int64_t width, int64_t block, T* out) {
  constexpr int kLanes = kFullLanes<T>;
  const int64_t times = width / a.width;
  for (int64_t edge = 0; edge < edges; ++edge) {
    const T* from = a[edge];
    if (block > 1) {
      for (int64_t k = 0; k < a.width; k += block) {
        for (int64_t i = 0; i < times; ++i, out += block) copy_numbers(from + k, block, out);
      }
      continue;
    }
    for (int64_t k = 0; k < a.width; ++k, out += times) {
      int64_t i = 0;
      for (; i + kLanes <= times; i += kLanes) store<T, kLanes>(out + i, splat<T, kLanes>(from[k]));
      for (; i < times; ++i) out[i] = from[k];
    }
  }
}

// What so many numbers come to, and one more: their sum, or the largest, where NaN wins.
struct Sum {
  template <class V>
  ONEHOP_INLINE static V of(V so_far, V x) {
    return so_far + x;
  }
};
struct Largest {
  template <class V>
  ONEHOP_INLINE static V of(V so_far, V x) {
    return ((x > so_far) | (x != x)) ? x : so_far;
  }
};

// What `count` times `block` numbers come to, number by number.
template <class Fold, class T>
ONEHOP_INLINE void fold_blocks(const T* from, int64_t count, int64_t block, T* out) {
  constexpr int kLanes = kFullLanes<T>;
  int64_t i = 0;
  for (; i + kLanes <= block; i += kLanes) {
    Vector<T, kLanes> folded = load<T, kLanes>(from + i);
    for (int64_t k = 1; k < count; ++k) {
      folded = Fold::template of<Vector<T, kLanes>>(folded, load<T, kLanes>(from + k * block + i));
    }
    store<T, kLanes>(out + i, folded);
  }
  for (; i < block; ++i) {
    T folded = from[i];
    for (int64_t k = 1; k < count; ++k) folded = Fold::template of<T>(folded, from[k * block + i]);
    out[i] = folded;
  }
}

// Sums of so many consecutive blocks of `block` numbers of a.
template <class T>
void collect(const Rows<T>& a, int64_t edges, int64_t width, int64_t block, T* out) {
  constexpr int kLanes = kFullLanes<T>;
  const int64_t count = a.width / width;
  for (int64_t edge = 0; edge < edges; ++edge) {
    const T* from = a[edge];
    if (block > 1) {
      for (int64_t k = 0; k < width; k += block, from += count * block, out += block) {
        fold_blocks<Sum>(from, count, block, out);
      }
      continue;
    }
    for (int64_t k = 0; k < width; ++k, from += count) {
      Vector<T, kLanes> sums{};
      int64_t i = 0;
      for (; i + kLanes <= count; i += kLanes) sums += load<T, kLanes>(from + i);
      T sum = sum_of_lanes<T, kLanes>(sums);
      for (; i < count; ++i) sum += from[i];
      *out++ = sum;
    }
  }
}

// The largest of so many consecutive blocks, number by number.
template <class T>
void largest(const Rows<T>& a, int64_t edges, int64_t width, int64_t block, T* out) {
  const int64_t count = a.width / width;
  const int64_t numbers = larger(block, int64_t{1});
  for (int64_t edge = 0; edge < edges; ++edge) {
    const T* from = a[edge];
    for (int64_t k = 0; k < width; k += numbers, from += count * numbers, out += numbers) {
      fold_blocks<Largest>(from, count, numbers, out);
    }
  }
}

// The number at an address, in every lane: one load. What `splat` does, 0 plus the number, is one more step, because it
// makes 0 of -0.
template <class T, int kLanes>
ONEHOP_INLINE Vector<T, kLanes> in_every_lane(const T* from) {
  if constexpr (kLanes == 1) {
    return *from;
  } else {
    return *from - Vector<T, kLanes>{};
  }
}

// Rows that a product computes together. There are always so many, if some count twice: another number would be other
// code, which may round in another way, and a sweep must find the messages that others have found.
inline constexpr int64_t kProductEdges = 4;

// Columns [column, column + kVectors * kLanes) of the products of some rows with a matrix.
template <class T, int kLanes, int kVectors>
ONEHOP_INLINE void product_block(const T* const* rows, int64_t edges, int64_t length, const T* matrix, int64_t width,
                                 int64_t column, T* out) {
  using V = Vector<T, kLanes>;
  V sums[kProductEdges][kVectors] = {};
  for (int64_t k = 0; k < length; ++k) {
    V line[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) line[v] = load<T, kLanes>(matrix + k * width + column + v * kLanes);
#pragma GCC unroll 4
    for (int r = 0; r < kProductEdges; ++r) {
      const V factor = in_every_lane<T, kLanes>(rows[r] + k);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sums[r][v] += factor * line[v];
    }
  }
  for (int64_t r = 0; r < edges; ++r) {
    for (int v = 0; v < kVectors; ++v) store<T, kLanes>(out + r * width + column + v * kLanes, sums[r][v]);
  }
}

// Calls body.template operator()<kLanes, kVectors>(column) for blocks of columns: as many full vectors as the registers
// hold beside a block's sums, then single ones, then single columns.
template <class T, class Body>
ONEHOP_INLINE void for_columns(int64_t width, const Body& body) {
  constexpr int kLanes = kFullLanes<T>, kVectors = kVectorBytes == 64 ? 4 : 2;
  int64_t column = 0;
  for (; column + kVectors * kLanes <= width; column += kVectors * kLanes) {
    body.template operator()<kLanes, kVectors>(column);
  }
  for (; column + kLanes <= width; column += kLanes) body.template operator()<kLanes, 1>(column);
  for (; column < width; ++column) body.template operator()<1, 1>(column);
}

// All edges of the tile are multiplied by a block of columns of the matrix, which stays in the first cache meanwhile.
template <class T>
void product(const Rows<T>& a, const T* matrix, int64_t edges, int64_t width, T* out) {
  for_columns<T>(width, [&]<int kLanes, int kVectors>(int64_t column) {
    for (int64_t edge = 0; edge < edges; edge += kProductEdges) {
      const T* rows[kProductEdges];
      for (int64_t r = 0; r < kProductEdges; ++r) rows[r] = a[smaller(edge + r, edges - 1)];
      product_block<T, kLanes, kVectors>(rows, smaller(kProductEdges, edges - edge), a.width, matrix, width, column,
                                         out + edge * width);
    }
  });
}

template <class T>
void run_step(const MessageStep& step, const Rows<T>* values, int64_t edges, T* out) {
  constexpr int kLanes = kFullLanes<T>;
  using V = Vector<T, kLanes>;
  const Rows<T>& a = values[step.a];
  const Rows<T>& b = values[step.b < 0 ? step.a : step.b];
  const T p = static_cast<T>(step.p), q = static_cast<T>(step.q);
  const V zero = splat<T, kLanes>(0), one = splat<T, kLanes>(1);
  const V ps = splat<T, kLanes>(p), qs = splat<T, kLanes>(q);
  const auto numbers = [&](const auto& body) { for_numbers(a, edges, out, body); };
  const auto pairs = [&](const auto& body) { for_pairs(a, b, edges, out, body); };
  switch (step.op) {
    case MessageOp::spread:
      return spread(a, edges, step.width, static_cast<int64_t>(p), out);
    case MessageOp::collect:
      return collect(a, edges, step.width, static_cast<int64_t>(p), out);
    case MessageOp::largest:
      return largest(a, edges, step.width, static_cast<int64_t>(p), out);
    case MessageOp::product:
      return product(a, b.flat, edges, step.width, out);
    case MessageOp::add:
      return pairs([](V x, V y) { return V(x + y); });
    case MessageOp::subtract:
      return pairs([](V x, V y) { return V(x - y); });
    case MessageOp::multiply:
      return pairs([](V x, V y) { return V(x * y); });
    case MessageOp::divide:
      return pairs([](V x, V y) { return V(x / y); });
    case MessageOp::shift:
      return numbers([=](V x) { return V(x + ps); });
    case MessageOp::scale:
      return numbers([=](V x) { return V(x * ps); });
    case MessageOp::invert:
      return numbers([=](V x) { return V(ps / x); });
    case MessageOp::negate:
      return numbers([](V x) { return V(-x); });
    case MessageOp::absolute:
      return numbers([](V x) { return magnitude<T, kLanes>(x); });
    case MessageOp::relu:
      return numbers([=](V x) { return V(x < zero ? zero : x); });
    case MessageOp::leaky_relu:
      return numbers([=](V x) { return V(x > zero ? x : V(x * ps)); });
    case MessageOp::sigmoid:
      return numbers([](V x) { return sigmoid<T, kLanes>(x); });
    case MessageOp::tanh:
      return numbers([](V x) { return hyperbolic_tangent<T, kLanes>(x); });
    case MessageOp::erf:
      return numbers([](V x) { return error_function<T, kLanes>(x); });
    case MessageOp::softplus:
      return numbers([=](V x) { return softplus<T, kLanes>(x, p, q); });
    case MessageOp::elu:
      return numbers([=](V x) {
        const V below = exponential_less_one<T, kLanes>(x > zero ? zero : x);
        return V(x > zero ? x : V(ps * below));
      });
    case MessageOp::exp:
      return numbers([](V x) { return exponential<T, kLanes>(x); });
    case MessageOp::log:
      return numbers([](V x) { return logarithm<T, kLanes>(x); });
    case MessageOp::sqrt:
      return numbers([](V x) { return square_root<T, kLanes>(x); });
    case MessageOp::clamp:
      return numbers([=](V x) {
        const V least = x < ps ? ps : x;
        return V(least > qs ? qs : least);
      });
    case MessageOp::absolute_grad:
      return pairs([=](V g, V x) { return V(x > zero ? g : x < zero ? V(-g) : V(g * zero)); });
    case MessageOp::relu_grad:
      return pairs([=](V g, V y) { return V(y <= zero ? zero : g); });
    case MessageOp::leaky_relu_grad:
      return pairs([=](V g, V x) { return V(x > zero ? g : V(g * ps)); });
    case MessageOp::sigmoid_grad:
      return pairs([=](V g, V y) { return V(g * (one - y) * y); });
    case MessageOp::tanh_grad:
      return pairs([=](V g, V y) { return V(g * (one - y * y)); });
    case MessageOp::softplus_grad:
      return pairs([=](V g, V x) {
        const V z = x * ps;
        return V(z > qs ? g : V(g * sigmoid<T, kLanes>(z)));
      });
    case MessageOp::elu_grad:
      return pairs([=](V g, V x) { return V(x > zero ? g : V(g * ps * exponential<T, kLanes>(x > zero ? zero : x))); });
    case MessageOp::clamp_grad:
      return pairs([=](V g, V x) {
        const V least = x >= ps ? g : zero;
        return V(x <= qs ? least : zero);
      });
    case MessageOp::equal:
      return pairs([=](V x, V y) { return V(x == y ? one : zero); });
  }
}

}  // namespace ONEHOP_ISA
}  // namespace onehop
