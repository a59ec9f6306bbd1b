// The interpreter of messages: runs a program over tiles of edges, whose rows and temporaries stay in the first cache,
// and adds up, or writes, what comes out. One sweep of a backward pass is such a program too.
#include "onehop/message.hpp"

#include "message_functions.hpp"
#include "sweep.hpp"
#include "tables.hpp"

namespace onehop {
inline namespace ONEHOP_ISA {
namespace {

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
void spread(const Rows<T>& a, int64_t edges, int64_t width, T* out) {
  constexpr int kLanes = kFullLanes<T>;
  const int64_t times = width / a.width;
  for (int64_t edge = 0; edge < edges; ++edge) {
    const T* from = a[edge];
    for (int64_t k = 0; k < a.width; ++k, out += times) {
      int64_t i = 0;
      for (; i + kLanes <= times; i += kLanes) store<T, kLanes>(out + i, splat<T, kLanes>(from[k]));
      for (; i < times; ++i) out[i] = from[k];
    }
  }
}

template <class T>
void collect(const Rows<T>& a, int64_t edges, int64_t width, T* out) {
  constexpr int kLanes = kFullLanes<T>;
  const int64_t count = a.width / width;
  for (int64_t edge = 0; edge < edges; ++edge) {
    const T* from = a[edge];
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
      const V factor = splat<T, kLanes>(rows[r][k]);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sums[r][v] += factor * line[v];
    }
  }
  for (int64_t r = 0; r < edges; ++r) {
    for (int v = 0; v < kVectors; ++v) store<T, kLanes>(out + r * width + column + v * kLanes, sums[r][v]);
  }
}

template <class T>
void product(const Rows<T>& a, const T* matrix, int64_t edges, int64_t width, T* out) {
  constexpr int kLanes = kFullLanes<T>;
  for (int64_t edge = 0; edge < edges; edge += kProductEdges, out += kProductEdges * width) {
    const T* rows[kProductEdges];
    for (int64_t r = 0; r < kProductEdges; ++r) rows[r] = a[smaller(edge + r, edges - 1)];
    const int64_t count = smaller(kProductEdges, edges - edge);
    int64_t column = 0;
    for (; column + 2 * kLanes <= width; column += 2 * kLanes) {
      product_block<T, kLanes, 2>(rows, count, a.width, matrix, width, column, out);
    }
    for (; column + kLanes <= width; column += kLanes) {
      product_block<T, kLanes, 1>(rows, count, a.width, matrix, width, column, out);
    }
    for (; column < width; ++column) product_block<T, 1, 1>(rows, count, a.width, matrix, width, column, out);
  }
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
      return spread(a, edges, step.width, out);
    case MessageOp::collect:
      return collect(a, edges, step.width, out);
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

constexpr bool is_by_row(Sink sink) { return sink == Sink::row_sum || sink == Sink::row_max || sink == Sink::row_min; }

// The reduction of a row so far, and one more.
template <class T, int kLanes, Sink kSink>
ONEHOP_INLINE Vector<T, kLanes> reduced(Vector<T, kLanes> state, Vector<T, kLanes> x) {
  if constexpr (kSink == Sink::row_max) return (x > state) | (x != x) ? x : state;
  if constexpr (kSink == Sink::row_min) return (x < state) | (x != x) ? x : state;
  return state + x;
}

// Columns [column, column + kVectors * kLanes) of the reduction of some rows, with what is there unless they are first.
template <class T, int kLanes, int kVectors, Sink kSink>
ONEHOP_INLINE void reduce_block(const Rows<T>& value, int64_t edge, int64_t end, int64_t column, bool first, T* to) {
  using V = Vector<T, kLanes>;
  V state[kVectors];
  const T* begin = first ? value[edge++] + column : to + column;
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) state[v] = load<T, kLanes>(begin + v * kLanes);
  for (; edge < end; ++edge) {
    const T* from = value[edge] + column;
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      state[v] = reduced<T, kLanes, kSink>(state[v], load<T, kLanes>(from + v * kLanes));
    }
  }
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) store<T, kLanes>(to + column + v * kLanes, state[v]);
}

// Reduces the rows of the edges [edge, end), of which there is one at least.
template <class T, Sink kSink>
void reduce_rows(const Rows<T>& value, int64_t edge, int64_t end, bool first, T* to) {
  constexpr int kLanes = kFullLanes<T>;
  int64_t column = 0;
  for (; column + 4 * kLanes <= value.width; column += 4 * kLanes) {
    reduce_block<T, kLanes, 4, kSink>(value, edge, end, column, first, to);
  }
  for (; column + kLanes <= value.width; column += kLanes) {
    reduce_block<T, kLanes, 1, kSink>(value, edge, end, column, first, to);
  }
  for (; column < value.width; ++column) reduce_block<T, 1, 1, kSink>(value, edge, end, column, first, to);
}

template <class T>
void reduce_rows(Sink sink, const Rows<T>& value, int64_t edge, int64_t end, bool first, T* to) {
  if (sink == Sink::row_max) return reduce_rows<T, Sink::row_max>(value, edge, end, first, to);
  if (sink == Sink::row_min) return reduce_rows<T, Sink::row_min>(value, edge, end, first, to);
  reduce_rows<T, Sink::row_sum>(value, edge, end, first, to);
}

// Adds the products of each number of a with each of b, over the tile's edges, to out [a.width, b.width].
template <class T>
void add_outer(const Rows<T>& a, const Rows<T>& b, int64_t edges, T* out) {
  constexpr int kLanes = kFullLanes<T>;
  using V = Vector<T, kLanes>;
  for (int64_t k = 0; k < a.width; ++k, out += b.width) {
    int64_t column = 0;
    for (; column + kLanes <= b.width; column += kLanes) {
      V sum = load<T, kLanes>(out + column);
      for (int64_t edge = 0; edge < edges; ++edge) {
        sum += splat<T, kLanes>(a[edge][k]) * load<T, kLanes>(b[edge] + column);
      }
      store<T, kLanes>(out + column, sum);
    }
    for (; column < b.width; ++column) {
      for (int64_t edge = 0; edge < edges; ++edge) out[column] += a[edge][k] * b[edge][column];
    }
  }
}

// One item of work on one thread's tile.
template <class T>
class Tiles {
 public:
  Tiles(const MessageArgs& args, const WorkItem& item, T* memory, T* totals)
      : args_(args), item_(item), memory_(memory), totals_(totals), rowptr_(args.csr->rowptr_data()) {
    for (int i = 0; i < args.operand_count; ++i) {
      const MessageOperand& operand = args.operands[i];
      const T* data = static_cast<const T*>(args.inputs[i].data);
      Rows<T>& rows = values_[i];
      rows = {nullptr, pointers_[i], operand.width};
      if (operand.of == RowOf::matrix) rows.flat = data;
      if (operand.of != RowOf::fixed) continue;
      for (int64_t edge = 0; edge < kMostTileEdges; ++edge) pointers_[i][edge] = data;
      copy(i, args.tile);
    }
    for (int i = 0; i < args.step_count; ++i) {
      values_[args.operand_count + i] = {memory + args.steps[i].place, nullptr, args.steps[i].width};
    }
  }

  void run() {
    for (int64_t row = item_.row_begin; row < item_.row_end; ++row) {
      if (rowptr_[row] == rowptr_[row + 1]) clear(row);
    }
    int64_t row = item_.row_begin;
    for (int64_t e = item_.edge_begin; e < item_.edge_end; e += args_.tile) {
      const int64_t edges = smaller(args_.tile, item_.edge_end - e);
      for (int64_t i = 0; i < edges; ++i) {
        while (e + i >= rowptr_[row + 1]) ++row;
        rows_[i] = row;
      }
      gather(e, edges);
      for (int i = 0; i < args_.step_count; ++i) {
        run_step(args_.steps[i], values_, edges, memory_ + args_.steps[i].place);
      }
      for (int i = 0; i < args_.result_count; ++i) give(args_.results[i], args_.outputs[i], e, edges);
    }
  }

 private:
  void clear(int64_t row) const {
    for (int i = 0; i < args_.result_count; ++i) {
      const MessageResult& result = args_.results[i];
      if (!is_by_row(result.sink)) continue;
      T* to = static_cast<T*>(args_.outputs[i].data) + row * args_.outputs[i].stride;
      for (int64_t column = 0; column < result.width; ++column) to[column] = 0;
    }
  }

  // Copies an operand's rows side by side, if it is one of those.
  void copy(int at, int64_t edges) {
    const MessageOperand& operand = args_.operands[at];
    if (operand.place < 0) return;
    T* to = memory_ + operand.place;
    values_[at].flat = to;
    for (int64_t edge = 0; edge < edges; ++edge, to += operand.width) {
      for (int64_t column = 0; column < operand.width; ++column) to[column] = pointers_[at][edge][column];
    }
  }

  ONEHOP_INLINE static void ask_for(const T* row, int64_t bytes) {
    const char* from = reinterpret_cast<const char*>(row);
    for (int64_t offset = 0; offset < bytes; offset += kLineBytes) __builtin_prefetch(from + offset, 0, kKeepRows);
    __builtin_prefetch(from + bytes - 1, 0, kKeepRows);
  }

  void gather(int64_t e, int64_t edges) {
    const int32_t* col = args_.csr->col_data() + e;
    const int ahead = args_.prefetch;
    for (int i = 0; i < args_.operand_count; ++i) {
      const MessageOperand& operand = args_.operands[i];
      if (operand.of == RowOf::fixed || operand.of == RowOf::matrix) continue;
      const T* data = static_cast<const T*>(args_.inputs[i].data);
      const int64_t stride = args_.inputs[i].stride, bytes = operand.width * static_cast<int64_t>(sizeof(T));
      const T** to = pointers_[i];
      if (operand.of == RowOf::row) {
        for (int64_t edge = 0; edge < edges; ++edge) to[edge] = data + rows_[edge] * stride;
      } else if (operand.of == RowOf::col) {
        for (int64_t edge = 0; edge < edges; ++edge) {
          to[edge] = data + col[edge] * stride;
          ask_for(data + col[edge + ahead] * stride, bytes);
        }
      } else {
        for (int64_t edge = 0; edge < edges; ++edge) {
          to[edge] = data + edge_number(*args_.csr, e + edge) * stride;
          const int64_t coming = e + edge + ahead;
          if (coming < args_.csr->edges) ask_for(data + edge_number(*args_.csr, coming) * stride, bytes);
        }
      }
      copy(i, edges);
    }
  }

  // Where the reduction of a row goes: into the result, or into a slot where the item has a part of the row only.
  T* target(const MessageResult& result, const MessageArray& out, int64_t row) const {
    int64_t slot = -1;
    if (row == item_.row_begin && item_.head_slot >= 0) {
      slot = item_.head_slot;
    } else if (row == item_.row_end - 1 && item_.tail_slot >= 0) {
      slot = item_.tail_slot;
    }
    if (slot < 0) return static_cast<T*>(out.data) + row * out.stride;
    return static_cast<T*>(args_.slots) + slot * args_.slot_width + result.offset;
  }

  void give(const MessageResult& result, const MessageArray& out, int64_t e, int64_t edges) const {
    const Rows<T>& value = values_[result.value];
    switch (result.sink) {
      case Sink::row_sum:
      case Sink::row_max:
      case Sink::row_min:
        for (int64_t begin = 0, end; begin < edges; begin = end) {
          const int64_t row = rows_[begin];
          for (end = begin + 1; end < edges && rows_[end] == row; ++end) {
          }
          const bool first = e + begin == larger(rowptr_[row], item_.edge_begin);
          reduce_rows(result.sink, value, begin, end, first, target(result, out, row));
        }
        return;
      case Sink::edge:
        for (int64_t edge = 0; edge < edges; ++edge) {
          T* to = static_cast<T*>(out.data) + edge_number(*args_.csr, e + edge) * out.stride;
          std::memcpy(to, value[edge], static_cast<size_t>(result.width) * sizeof(T));
        }
        return;
      case Sink::total:
        return reduce_rows<T, Sink::row_sum>(value, 0, edges, false, totals_ + result.offset);
      case Sink::outer:
        return add_outer(value, values_[result.other], edges, totals_ + result.offset);
    }
  }

  const MessageArgs& args_;
  const WorkItem& item_;
  T* memory_;
  T* totals_;
  const int64_t* rowptr_;
  Rows<T> values_[kMostMessageValues];
  const T* pointers_[kMostMessageOperands][kMostTileEdges];
  int64_t rows_[kMostTileEdges];
};

// Runs body(group, thread) for every group.
template <class Body>
void for_groups(int64_t groups, int threads, const Body& body) {
  parallel_for(
      groups, threads,
      [](void* opaque, int64_t group, int thread) { (*static_cast<const Body*>(opaque))(group, thread); },
      const_cast<Body*>(&body));
}

template <class T>
void run(const MessageArgs& args) {
  const WorkList& work = *args.work;
  const int64_t items = static_cast<int64_t>(work.items.size());
  auto *memory = static_cast<T*>(args.memory), *totals = static_cast<T*>(args.totals);
  // Rows side by side are computed up to a whole vector, and numbers that were never written may be slow to compute
  // with.
  std::memset(memory, 0, static_cast<size_t>(args.threads * args.memory_width) * sizeof(T));
  const int64_t groups = message_groups(items, args.total_width);
  std::memset(totals, 0, static_cast<size_t>(groups * args.total_width) * sizeof(T));
  for_groups(groups, args.threads, [&](int64_t group, int thread) {
    for (int64_t item = group * items / groups; item < (group + 1) * items / groups; ++item) {
      Tiles<T>(args, work.items.data()[item], memory + thread * args.memory_width, totals + group * args.total_width)
          .run();
    }
  });
  for_cut_rows(work, args.threads, [&](const CutRow& cut) {
    const T* slots = static_cast<const T*>(args.slots);
    for (int i = 0; i < args.result_count; ++i) {
      const MessageResult& result = args.results[i];
      if (!is_by_row(result.sink)) continue;
      T* to = static_cast<T*>(args.outputs[i].data) + cut.row * args.outputs[i].stride;
      for (int64_t slot = cut.slot_begin; slot < cut.slot_end; ++slot) {
        const Rows<T> piece{slots + slot * args.slot_width + result.offset, nullptr, result.width};
        reduce_rows(result.sink, piece, 0, 1, slot == cut.slot_begin, to);
      }
    }
  });
  for (int i = 0; i < args.result_count; ++i) {
    const MessageResult& result = args.results[i];
    if (result.sink != Sink::total && result.sink != Sink::outer) continue;
    T* to = static_cast<T*>(args.outputs[i].data);
    for (int64_t column = 0; column < result.width; ++column) to[column] = 0;
    for (int64_t group = 0; group < groups; ++group) {
      const T* part = totals + group * args.total_width + result.offset;
      for (int64_t column = 0; column < result.width; ++column) to[column] += part[column];
    }
  }
}

}  // namespace

void message(const MessageArgs& args) {
  if (args.dtype == DType::float64) return run<double>(args);
  run<float>(args);
}

}  // namespace ONEHOP_ISA
}  // namespace onehop
