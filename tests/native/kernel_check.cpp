// The engine's test without Python: every kernel of every instruction set that this processor has, against
// plain loops in double. It runs where Python does not: under sanitizers, and under an emulator.
//
//   kernel_check [dtype ...]    float32, float64, bfloat16, float16; all of them if none is named
//
// ONEHOP_ISA limits it to one instruction set.
// Prints one line for each instruction set, dtype and operator. The exit status is 1 if any failed.
//
// Features, weights and scales are small multiples of powers of two, so every product and sum is exact and an
// output may differ from the plain loop's by its own last rounding alone. (Softmax is no such sum.)
#include <dlfcn.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "exponential_check.hpp"
#include "graphs.hpp"
#include "number.hpp"
#include "onehop/communities.hpp"
#include "onehop/dropout.hpp"
#include "onehop/kernels.hpp"
#include "onehop/parallel.hpp"
#include "onehop/tensor_product.hpp"

namespace {

using onehop::Reduce;

int failed_groups = 0;

// Results of one operator, one dtype and one instruction set.
class Group {
 public:
  Group(std::string name, std::string operation) : title_(std::move(name) + " " + std::move(operation)) {}
  ~Group() {
    std::printf("%s %s (%ld values)\n", failures_ == 0 ? "PASS" : "FAIL", title_.c_str(), values_);
    failed_groups += failures_ != 0;
  }
  void compare(const std::string& where, int64_t place, double got, double want, double rounding) {
    compare_within(where, place, got, want, rounding * std::fabs(want));
  }
  void compare_within(const std::string& where, int64_t place, double got, double want, double allowed) {
    ++values_;
    const bool same = std::isnan(want) ? std::isnan(got) : std::fabs(got - want) <= allowed;
    if (same) return;
    if (failures_++ == 0) {
      std::printf("  %s: %s, value %ld: got %.9g, expected %.9g\n", title_.c_str(), where.c_str(),
                  static_cast<long>(place), got, want);
    }
  }

 private:
  std::string title_;
  long values_ = 0, failures_ = 0;
};

// Memory that begins at a cache line, as large outputs do.
template <class T>
struct AtLine {
  using value_type = T;
  static constexpr std::align_val_t kLine{64};

  AtLine() = default;
  template <class U>
  explicit AtLine(const AtLine<U>&) {}
  T* allocate(size_t count) { return static_cast<T*>(::operator new(count * sizeof(T), kLine)); }
  void deallocate(T* data, size_t) { ::operator delete(data, kLine); }
  bool operator==(const AtLine&) const { return true; }
};

// [rows, width], rows `stride` apart, and not one element more: a read beyond the end is seen by sanitizers.
template <class T>
struct Matrix {
  int64_t rows, width, stride;
  std::vector<T, AtLine<T>> data;

  Matrix(int64_t rows_, int64_t width_, int64_t gap)
      : rows(rows_), width(width_), stride(width_ + gap), data(static_cast<size_t>((rows - 1) * stride + width)) {}
  T& at(int64_t r, int64_t c) { return data[static_cast<size_t>(r * stride + c)]; }
  double value(int64_t r, int64_t c) const { return Number<T>::value(data[static_cast<size_t>(r * stride + c)]); }
};

template <class T>
Matrix<T> features(Random& random, int64_t rows, int64_t width, int64_t gap) {
  Matrix<T> result(rows, width, gap);
  for (T& element : result.data) element = Number<T>::of(0.25 * static_cast<double>(random.below(17)) - 2);
  return result;
}

template <class A>
std::vector<A> powers(Random& random, int64_t count, bool signs) {
  std::vector<A> result(static_cast<size_t>(count));
  for (A& element : result) {
    element =
        static_cast<A>(std::ldexp(signs && random.below(3) == 0 ? -1.0 : 1.0, static_cast<int>(random.below(3)) - 1));
  }
  return result;
}

// The caller's number of the edge at a place of the graph.
int64_t number_at(const onehop::Csr& csr, int64_t place) {
  if (!csr.perm) return place;
  return csr.perm_is_wide ? csr.perm.as<int64_t>()[place] : csr.perm.as<int32_t>()[place];
}

struct Setting {
  const Graph& graph;
  int64_t width, edges_per_item;
  bool weighted, scaled, out_is_acc;
  int threads;

  std::string text() const {
    return graph.name + ", width " + std::to_string(width) + ", items of " + std::to_string(edges_per_item) +
           (weighted ? ", weighted" : "") + (scaled ? ", scaled" : "") + (out_is_acc ? ", wide" : "") + ", " +
           std::to_string(threads) + " threads";
  }
};

template <class Visit>
void for_settings(const std::vector<Graph>& graphs, const Visit& visit) {
  for (const Graph& graph : graphs) {
    for (const int64_t width : {1, 2, 3, 7, 17, 32, 63, 129}) {
      for (const int variant : {0, 1, 2, 3}) {
        // Each choice meets each other one in some variant, with few runs.
        visit(Setting{graph, width, variant % 2 == 0 ? 16 : 4096, variant != 0, variant == 2, variant >= 2,
                      variant == 1 ? 1 : 3});
      }
    }
  }
}

// Whether weights are added, in max and min, in place of multiplied: where sums are exact.
template <class T>
bool adds_weights(const Setting& s) {
  return sizeof(T) >= 4 && s.weighted && !s.out_is_acc;
}

// The extremum of every row and column, NaN first, 0 for empty rows; and how many messages reach it.
template <class T>
struct Extremum {
  std::vector<double> value, ties;

  template <class Message>
  Extremum(const Graph& graph, int64_t width, bool is_max, const Message& message)
      : value(static_cast<size_t>(graph.rows * width), 0), ties(value.size(), 0) {
    for (int64_t e = 0; e < graph.edges(); ++e) {
      for (int64_t c = 0; c < width; ++c) {
        const auto at = static_cast<size_t>(graph.row[static_cast<size_t>(e)] * width + c);
        const double m = message(e, c);
        if (std::isnan(value[at])) continue;
        if (std::isnan(m)) {
          value[at] = m;
          ties[at] = 0;
        } else if (seen(at) && m == value[at]) {
          ties[at] += 1;
        } else if (!seen(at) || (is_max ? m > value[at] : m < value[at])) {
          value[at] = m;
          ties[at] = 1;
        }
      }
    }
  }

 private:
  bool seen(size_t at) const { return ties[at] > 0; }
};

template <class T>
void check_aggregate(const std::string& isa, const std::vector<Graph>& graphs, Reduce reduce, const char* name) {
  using A = typename Number<T>::Acc;
  Group group(isa + " " + Kind<T>::kName, name);
  const bool linear = reduce == Reduce::sum || reduce == Reduce::mean;
  for_settings(graphs, [&](const Setting& s) {
    Random random{static_cast<uint64_t>(s.width)};
    const Graph& g = s.graph;
    auto x = features<T>(random, g.cols, s.width, s.weighted ? 5 : 0);
    if (!linear) x.at(g.cols / 2, s.width / 2) = Number<T>::of(NAN);
    const auto weight = powers<A>(random, g.edges() * 2, true);  // every second one is used
    const auto col_scale = powers<A>(random, g.cols, false), row_scale = powers<A>(random, g.rows, false);
    const bool scales_columns = s.scaled && linear;
    const bool adds = !linear && adds_weights<T>(s);
    const auto message = [&](int64_t e, int64_t c) {
      const int64_t source = g.col[static_cast<size_t>(e)];
      if (adds) return x.value(source, c) + weight[static_cast<size_t>(2 * e)];
      return x.value(source, c) * (s.weighted ? weight[static_cast<size_t>(2 * e)] : 1) *
             (scales_columns ? col_scale[static_cast<size_t>(source)] : 1);
    };
    std::vector<double> want(static_cast<size_t>(g.rows * s.width), 0), want_ties;
    if (linear) {
      std::vector<double> degree(static_cast<size_t>(g.rows), 0);
      for (int64_t e = 0; e < g.edges(); ++e) {
        const int64_t r = g.row[static_cast<size_t>(e)];
        degree[static_cast<size_t>(r)] += 1;
        for (int64_t c = 0; c < s.width; ++c) want[static_cast<size_t>(r * s.width + c)] += message(e, c);
      }
      for (size_t i = 0; reduce == Reduce::mean && i < want.size(); ++i) {
        want[i] /= std::fmax(1, degree[i / static_cast<size_t>(s.width)]);
      }
    } else {
      const Extremum<T> extremum(g, s.width, reduce == Reduce::max, message);
      want = extremum.value;
      want_ties = extremum.ties;
    }

    const bool in_graph_order = s.weighted && !s.scaled && s.out_is_acc;
    std::vector<A> given = weight;
    for (int64_t place = 0; in_graph_order && place < g.edges(); ++place) {
      given[static_cast<size_t>(2 * place)] = weight[static_cast<size_t>(2 * number_at(*g.csr, place))];
    }
    std::shared_ptr<onehop::Csr> csr = g.csr;
    if (s.weighted && !in_graph_order) {
      std::vector<int32_t> order(static_cast<size_t>(g.rows));
      for (size_t r = 0; r < order.size(); ++r) order[r] = static_cast<int32_t>(order.size() - 1 - r);
      if (g.rows == g.cols) onehop::community_order(*g.csr, order.data());
      csr = onehop::with_rows(*g.csr, order.data(), g.csr->perm_is_wide, s.threads);
    }
    const auto& work = csr->work(s.edges_per_item);
    std::vector<A> slots(static_cast<size_t>(2 * work.slots * s.width + 1));
    const bool with_ties = !linear && s.weighted;
    Matrix<A> ties(g.rows, s.width, 0);
    const auto run = [&](auto out, double rounding) {
      const auto guard = Number<std::remove_reference_t<decltype(out.data[0])>>::of(-96);
      for (auto& element : out.data) element = guard;
      onehop::kernels().aggregate({
          .csr = csr.get(),
          .work = &work,
          .reduce = reduce,
          .dtype = Kind<T>::kCode,
          .out_is_acc = s.out_is_acc,
          .threads = s.threads,
          .prefetch = s.weighted ? 16 : 0,
          .keeps_near = s.out_is_acc,
          .column_tile = s.scaled ? 32 : 0,
          .register_block = s.threads == 1 ? 2 : 0,
          .nontemporal = !s.scaled,
          .width = s.width,
          .x = x.data.data(),
          .x_stride = x.stride,
          .weight = s.weighted ? given.data() : nullptr,
          .weight_stride = 2,
          .weight_in_graph_order = in_graph_order,
          .weight_adds = adds,
          .col_scale = scales_columns ? col_scale.data() : nullptr,
          .row_scale = s.scaled ? row_scale.data() : nullptr,
          .out = out.data.data(),
          .out_stride = out.stride,
          .ties = with_ties ? ties.data.data() : nullptr,
          .slots = slots.data(),
          .generated = nullptr,
      });
      for (int64_t r = 0; r < g.rows; ++r) {
        for (int64_t c = 0; c < out.stride && r * out.stride + c < static_cast<int64_t>(out.data.size()); ++c) {
          const auto i = static_cast<size_t>(r * s.width + c);
          const double expected =
              c < s.width ? want[i] * (s.scaled ? row_scale[static_cast<size_t>(r)] : 1) : -96.0;  // untouched
          group.compare(s.text(), r * out.stride + c, out.value(r, c), expected, rounding);
          if (with_ties && c < s.width) group.compare(s.text() + ", ties", r, ties.value(r, c), want_ties[i], 0);
        }
      }
    };
    const int64_t gap = s.scaled ? 3 : 0;
    if (s.out_is_acc) {
      run(Matrix<A>(g.rows, s.width, gap), Kind<A>::kRounding);
    } else {
      run(Matrix<T>(g.rows, s.width, gap), Kind<T>::kRounding);
    }
  });
}

template <class T>
void check_extremum_grad(const std::string& isa, const std::vector<Graph>& graphs) {
  using A = typename Number<T>::Acc;
  Group to_source(isa + " " + Kind<T>::kName, "extremum_grad_source");
  Group to_weight(isa + " " + Kind<T>::kName, "extremum_grad_weight");
  for_settings(graphs, [&](const Setting& s) {
    Random random{static_cast<uint64_t>(s.width)};
    const Graph& g = s.graph;
    const auto x = features<T>(random, g.cols, s.width, 5);
    const auto weight = powers<A>(random, g.edges(), true);
    const auto weight_of = [&](int64_t e) { return s.weighted ? double{weight[static_cast<size_t>(e)]} : 1.0; };
    const bool adds = adds_weights<T>(s);
    const auto message = [&](int64_t e, int64_t c) {
      const double value = x.value(g.col[static_cast<size_t>(e)], c);
      return adds ? value + weight_of(e) : value * weight_of(e);
    };
    const Extremum<T> found(g, s.width, true, message);
    const auto share = features<A>(random, g.rows, s.width, 0);
    std::vector<double> want_x(static_cast<size_t>(g.cols * s.width), 0), want_w(static_cast<size_t>(g.edges()), 0);
    for (int64_t e = 0; e < g.edges(); ++e) {
      const int64_t r = g.row[static_cast<size_t>(e)], source = g.col[static_cast<size_t>(e)];
      for (int64_t c = 0; c < s.width; ++c) {
        if (message(e, c) != found.value[static_cast<size_t>(r * s.width + c)]) continue;
        want_x[static_cast<size_t>(source * s.width + c)] += (adds ? 1 : weight_of(e)) * share.value(r, c);
        want_w[static_cast<size_t>(e)] += (adds ? 1 : x.value(source, c)) * share.value(r, c);
      }
    }
    const auto run = [&](auto extremum) {
      for (int64_t r = 0; r < g.rows; ++r) {
        for (int64_t c = 0; c < s.width; ++c) {
          using E = std::remove_reference_t<decltype(extremum.data[0])>;
          extremum.at(r, c) = Number<E>::of(found.value[static_cast<size_t>(r * s.width + c)]);
        }
      }
      const auto arguments = [&](const onehop::Csr& csr, std::vector<A>& out, std::vector<A>& slots) {
        const auto& work = csr.work(s.edges_per_item);
        slots.resize(static_cast<size_t>(work.slots * s.width + 1));
        return onehop::ExtremumGradArgs{&csr,
                                        &work,
                                        Kind<T>::kCode,
                                        s.out_is_acc,
                                        s.threads,
                                        16,
                                        s.width,
                                        x.data.data(),
                                        x.stride,
                                        extremum.data.data(),
                                        extremum.stride,
                                        share.data.data(),
                                        s.weighted ? weight.data() : nullptr,
                                        1,
                                        adds,
                                        out.data(),
                                        slots.data()};
      };
      std::vector<A> slots, grad_x(want_x.size(), -96), grad_w(want_w.size(), -96);
      onehop::kernels().extremum_grad_source(arguments(*g.transposed, grad_x, slots));
      for (size_t i = 0; i < want_x.size(); ++i) {
        to_source.compare(s.text(), static_cast<int64_t>(i), grad_x[i], want_x[i], 0);
      }
      if (!s.weighted) return;
      onehop::kernels().extremum_grad_weight(arguments(*g.csr, grad_w, slots));
      for (size_t i = 0; i < want_w.size(); ++i) {
        to_weight.compare(s.text(), static_cast<int64_t>(i), grad_w[i], want_w[i], 0);
      }
    };
    if (s.out_is_acc) {
      run(Matrix<A>(g.rows, s.width, 2));
    } else {
      run(Matrix<T>(g.rows, s.width, 2));
    }
  });
}

template <class T>
void check_sddmm(const std::string& isa, const std::vector<Graph>& graphs) {
  using A = typename Number<T>::Acc;
  Group group(isa + " " + Kind<T>::kName, "sddmm");
  for_settings(graphs, [&](const Setting& s) {
    Random random{static_cast<uint64_t>(s.width)};
    const Graph& g = s.graph;
    const auto dst = features<T>(random, g.rows, s.width, 1), src = features<T>(random, g.cols, s.width, 0);
    const auto run = [&](auto out, double rounding) {
      onehop::kernels().sddmm({g.csr.get(), &g.csr->work(s.edges_per_item), Kind<T>::kCode, s.out_is_acc, s.threads, 16,
                               s.width, dst.data.data(), dst.stride, src.data.data(), src.stride, out.data.data(),
                               out.stride});
      for (int64_t e = 0; e < g.edges(); ++e) {
        double want = 0;
        for (int64_t c = 0; c < s.width; ++c) {
          want += dst.value(g.row[static_cast<size_t>(e)], c) * src.value(g.col[static_cast<size_t>(e)], c);
        }
        group.compare(s.text(), e, out.value(e, 0), want, rounding);
      }
    };
    if (s.out_is_acc) {
      run(Matrix<A>(g.edges(), 1, 1), Kind<A>::kRounding);
    } else {
      run(Matrix<T>(g.edges(), 1, 1), Kind<T>::kRounding);
    }
  });
}

template <class T>
void check_fusedmm(const std::string& isa, const std::vector<Graph>& graphs) {
  using A = typename Number<T>::Acc;
  // Powers of e are not exact, and products add up as many roundings as there are columns.
  constexpr double kRelative = Kind<T>::kRounding + 2000 * Kind<A>::kRounding;
  Group group(isa + " " + Kind<T>::kName, "fusedmm");
  for (const auto rule : {onehop::PairRule::dot, onehop::PairRule::sigmoid, onehop::PairRule::tdist}) {
    for_settings(graphs, [&](const Setting& s) {
      if (s.out_is_acc) return;
      Random random{static_cast<uint64_t>(s.width)};
      const Graph& g = s.graph;
      const auto dst = features<T>(random, g.rows, s.width, 1), src = features<T>(random, g.cols, s.width, 2);
      const auto& work = g.csr->work(s.edges_per_item);
      std::vector<A> slots(static_cast<size_t>(work.slots * s.width));
      Matrix<T> out(g.rows, s.width, 0);
      const double factor = 0.01;
      onehop::kernels().fusedmm({g.csr.get(), &work, rule, Kind<T>::kCode, s.threads, 16, factor, s.width,
                                 dst.data.data(), dst.stride, src.data.data(), src.stride, out.data.data(),
                                 slots.data()});
      std::vector<double> want(static_cast<size_t>(g.rows * s.width)), magnitude(want.size());
      for (size_t e = 0; e < static_cast<size_t>(g.edges()); ++e) {
        double dot = 0, distance = 0;
        for (int64_t c = 0; c < s.width; ++c) {
          const double x = dst.value(g.row[e], c), y = src.value(g.col[e], c);
          dot += x * y;
          distance += (x - y) * (x - y);
        }
        const bool apart = rule == onehop::PairRule::tdist;
        const double weight = apart                               ? 1 / (1 + factor * distance)
                              : rule == onehop::PairRule::sigmoid ? 1 / (1 + std::exp(-factor * dot))
                                                                  : factor * dot;
        for (int64_t c = 0; c < s.width; ++c) {
          const size_t place = static_cast<size_t>(g.row[e] * s.width + c);
          const double y = src.value(g.col[e], c);
          const double part = weight * (apart ? dst.value(g.row[e], c) - y : y);
          want[place] += part;
          magnitude[place] += std::abs(part);
        }
      }
      for (size_t i = 0; i < want.size(); ++i) {
        const auto at = static_cast<int64_t>(i);
        group.compare_within(s.text(), at, out.value(at / s.width, at % s.width), want[i], kRelative * magnitude[i]);
      }
    });
  }
}

// A message of a program: m = (row + col) * edge + edge times a matrix, summed over rows and over all edges, written
// for each edge, and its outer product with edge. Numbers are small, so that all is exact.
template <class T>
void check_message(const std::string& isa, const std::vector<Graph>& graphs) {
  using namespace onehop;
  if constexpr (sizeof(T) >= 4) {
    Group group(isa + " " + Kind<T>::kName, "message");
    for_settings(graphs, [&](const Setting& s) {
      if (s.out_is_acc || s.width > 63) return;
      Random random{static_cast<uint64_t>(s.width)};
      const Graph& g = s.graph;
      const int64_t w = s.width, tile = s.weighted ? 16 : 5;
      const auto row = features<T>(random, g.rows, w, 1), col = features<T>(random, g.cols, w, 2);
      const auto edge = features<T>(random, g.edges(), w, 0), matrix = features<T>(random, w, w, 0);
      const auto place_size = (tile * w + kWholeRow - 1) / kWholeRow * kWholeRow;
      const bool whole = w % kWholeRow == 0;
      const auto place = [&](int64_t number) { return number * place_size; };
      const MessageOperand operands[] = {{RowOf::row, w, whole ? -1 : place(0)},
                                         {RowOf::col, w, whole ? -1 : place(1)},
                                         {RowOf::edge, w, whole ? -1 : place(2)},
                                         {RowOf::matrix, w * w, -1}};
      const MessageStep steps[] = {{MessageOp::add, 0, 1, w, place(3), 0, 0},
                                   {MessageOp::multiply, 4, 2, w, place(4), 0, 0},
                                   {MessageOp::product, 2, 3, w, place(5), 0, 0},
                                   {MessageOp::add, 5, 6, w, place(3), 0, 0}};
      const MessageResult results[] = {{Sink::row_sum, 7, 0, w, 0},
                                       {Sink::edge, 7, 0, w, 0},
                                       {Sink::total, 7, 0, w, 0},
                                       {Sink::outer, 2, 7, w * w, w}};
      const auto& work = g.csr->work(s.edges_per_item);
      const auto groups = message_groups(static_cast<int64_t>(work.items.size()), w + w * w);
      Matrix<T> sums(g.rows, w, 0), messages(g.edges(), w, 0), total(1, w, 0), outer(w, w, 0);
      std::vector<T> slots(static_cast<size_t>(work.slots * w)), memory(static_cast<size_t>(s.threads * place(6))),
          totals(static_cast<size_t>(groups * (w + w * w)));
      const MessageArray inputs[] = {{const_cast<T*>(row.data.data()), row.stride},
                                     {const_cast<T*>(col.data.data()), col.stride},
                                     {const_cast<T*>(edge.data.data()), edge.stride},
                                     {const_cast<T*>(matrix.data.data()), matrix.stride}};
      const MessageArray outputs[] = {{sums.data.data(), sums.stride},
                                      {messages.data.data(), messages.stride},
                                      {total.data.data(), total.stride},
                                      {outer.data.data(), outer.stride}};
      kernels().message({g.csr.get(),
                         &work,
                         Kind<T>::kCode,
                         s.threads,
                         16,
                         tile,
                         place(6),
                         w,
                         w + w * w,
                         4,
                         4,
                         4,
                         operands,
                         steps,
                         results,
                         inputs,
                         outputs,
                         memory.data(),
                         slots.data(),
                         totals.data()});
      Matrix<double> want_sums(g.rows, w, 0), want_total(1, w, 0), want_outer(w, w, 0);
      std::vector<double> message(static_cast<size_t>(w));
      for (int64_t e = 0; e < g.edges(); ++e) {
        const int64_t r = g.row[static_cast<size_t>(e)], source = g.col[static_cast<size_t>(e)];
        for (int64_t c = 0; c < w; ++c) {
          double& m = message[static_cast<size_t>(c)];
          m = (row.value(r, c) + col.value(source, c)) * edge.value(e, c);
          for (int64_t k = 0; k < w; ++k) m += edge.value(e, k) * matrix.value(k, c);
          want_sums.at(r, c) += m;
          want_total.at(0, c) += m;
          group.compare(s.text() + ", edges", e * w + c, messages.value(e, c), m, Kind<T>::kRounding);
        }
        for (int64_t k = 0; k < w; ++k) {
          for (int64_t c = 0; c < w; ++c) want_outer.at(k, c) += edge.value(e, k) * message[static_cast<size_t>(c)];
        }
      }
      const auto compare = [&](const char* what, const Matrix<T>& got, const Matrix<double>& want) {
        for (int64_t i = 0; i < want.rows * w; ++i) {
          group.compare(s.text() + what, i, got.value(i / w, i % w), want.data[static_cast<size_t>(i)],
                        Kind<T>::kRounding);
        }
      };
      compare(", rows", sums, want_sums);
      compare(", total", total, want_total);
      compare(", outer", outer, want_outer);
    });
  }
}

// Powers of e are not exact: some roundings of the accumulator are allowed, and the last one of the output.
template <class T>
void check_edge_softmax(const std::string& isa, const std::vector<Graph>& graphs) {
  using A = typename Number<T>::Acc;
  constexpr double kRelative = Kind<T>::kRounding + 100 * Kind<A>::kRounding;
  Group group(isa + " " + Kind<T>::kName, "edge_softmax"), to_scores(isa + " " + Kind<T>::kName, "edge_softmax_grad");
  for_settings(graphs, [&](const Setting& s) {
    Random random{static_cast<uint64_t>(s.width)};
    const Graph& g = s.graph;
    if (g.edges() == 0) return;
    const int64_t heads = s.width;
    const auto scores = features<T>(random, g.edges(), heads, 0), grad = features<T>(random, g.edges(), heads, 0);
    std::vector<double> most(static_cast<size_t>(g.rows * heads), -HUGE_VAL), total(most.size(), 0);
    const auto for_edges = [&](const auto& visit) {
      for (int64_t e = 0; e < g.edges(); ++e) {
        for (int64_t h = 0; h < heads; ++h) {
          visit(e, h, static_cast<size_t>(g.row[static_cast<size_t>(e)] * heads + h));
        }
      }
    };
    for_edges([&](int64_t e, int64_t h, size_t row) { most[row] = std::fmax(most[row], scores.value(e, h)); });
    for_edges([&](int64_t e, int64_t h, size_t row) { total[row] += std::exp(scores.value(e, h) - most[row]); });

    const auto& work = g.csr->work(s.edges_per_item);
    std::vector<A> slots(static_cast<size_t>(2 * work.slots * heads + 1));
    Matrix<T> out(g.edges(), heads, 0), again(g.edges(), heads, 0);
    const auto arguments = [&](const Matrix<T>& given, const void* gradient, Matrix<T>& result) {
      return onehop::EdgeSoftmaxArgs{g.csr.get(),       &work,    Kind<T>::kCode,     s.threads,   heads,
                                     given.data.data(), gradient, result.data.data(), slots.data()};
    };
    onehop::kernels().edge_softmax(arguments(scores, nullptr, out));
    for_edges([&](int64_t e, int64_t h, size_t row) {
      const double want = std::exp(scores.value(e, h) - most[row]) / total[row];
      group.compare(s.text(), e * heads + h, out.value(e, h), want, kRelative);
    });
    onehop::kernels().edge_softmax_grad(arguments(out, grad.data.data(), again));
    std::vector<double> sum(most.size(), 0);
    for_edges([&](int64_t e, int64_t h, size_t row) { sum[row] += out.value(e, h) * grad.value(e, h); });
    for_edges([&](int64_t e, int64_t h, size_t row) {
      const double a = out.value(e, h), want = a * (grad.value(e, h) - sum[row]);
      to_scores.compare_within(s.text(), e * heads + h, again.value(e, h), want, 4 * a * kRelative);
    });
  });
}

void check_limits(const std::string& isa) {
  constexpr int kThreads = 3;
  Random random{1};
  Group read(isa + " float32", "stream_read"), gather(isa + " float32", "gather_rows");
  for (const int64_t width : {16, 48, 80}) {
    const auto x = features<float>(random, 70, width, 0);
    double sum = 0;
    for (const float element : x.data) sum += element;
    const auto count = static_cast<int64_t>(x.data.size());
    read.compare("floats", count, onehop::kernels().stream_read(x.data.data(), count, kThreads), sum, 0);
    read.compare("odd count", count, onehop::kernels().stream_read(x.data.data() + 1, count - 1, kThreads),
                 sum - double{x.data[0]}, 0);
    std::vector<int32_t> index(101);
    double gathered = 0;
    for (int32_t& row : index) {
      row = static_cast<int32_t>(random.below(70));
      for (int64_t c = 0; c < width; ++c) gathered += x.value(row, c);
    }
    const float got = onehop::kernels().gather_rows(x.data.data(), width, index.data(), 101, 8, kThreads);
    gather.compare("width", width, got, gathered, 0);
  }
}

ExponentialErrors exponential_errors(const std::string& isa) {
#if defined(ONEHOP_HAS_AVX2)
  if (isa == "avx2") return exponential_errors_of_avx2();
#endif
#if defined(ONEHOP_HAS_AVX512)
  if (isa == "avx512") return exponential_errors_of_avx512();
#endif
#if defined(ONEHOP_HAS_NEON)
  if (isa == "neon") return exponential_errors_of_neon();
#endif
  return exponential_errors_of_portable();
}

void check_exponential(const std::string& isa) {
  constexpr double kMostUnits = 2;
  const auto errors = exponential_errors(isa);
  Group single(isa + " float32", "exponential"), twice(isa + " float64", "exponential");
  single.compare("units in the last place beyond two", 0, std::fmax(errors.of_float, kMostUnits), kMostUnits, 0);
  twice.compare("units in the last place beyond two", 0, std::fmax(errors.of_double, kMostUnits), kMostUnits, 0);
}

#include "attention_check.hpp"
#include "mersenne_check.hpp"
#include "tensor_product_check.hpp"

template <class T>
void check_type(const std::string& isa, const std::vector<Graph>& graphs) {
  check_aggregate<T>(isa, graphs, Reduce::sum, "sum");
  check_aggregate<T>(isa, graphs, Reduce::mean, "mean");
  check_aggregate<T>(isa, graphs, Reduce::max, "max");
  check_aggregate<T>(isa, graphs, Reduce::min, "min");
  check_extremum_grad<T>(isa, graphs);
  check_sddmm<T>(isa, graphs);
  check_fusedmm<T>(isa, graphs);
  check_tensor_product<T>(isa, graphs);
  check_message<T>(isa, graphs);
  check_edge_softmax<T>(isa, graphs);
  check_attention<T>(isa, graphs);
}

void check_graphs(const std::vector<Graph>& graphs) {
  Group group("graph", "rows, columns, permutation, transpose");
  for (const Graph& g : graphs) {
    g.verify([&](const std::string& what, int64_t place, int64_t got, int64_t want) {
      group.compare(g.name + ", " + what, place, static_cast<double>(got), static_cast<double>(want), 0);
    });
  }
}

}  // namespace

int main(int argc, char** argv) {
  const auto wanted = [&](const char* dtype) {
    bool named = argc == 1;
    for (int i = 1; i < argc; ++i) named |= std::strcmp(argv[i], dtype) == 0;
    return named;
  };
  const char* named = std::getenv("KERNEL_CHECK_THREADS");  // another library with GOMP_parallel
  const char* runtime = named != nullptr ? named : "libgomp.so.1";
  const bool threads = dlopen(runtime, RTLD_NOW) != nullptr && onehop::bind_openmp(runtime);
  std::printf("threads: %s\n", threads ? runtime : "none, the loops run on one");

  std::vector<Graph> large = large_graphs();
  check_graphs(large);
  large.clear();
  const std::vector<Graph> graphs = small_graphs();
  check_graphs(graphs);
  for (const char* const* isa = onehop::available_isas(); *isa != nullptr; ++isa) {
    const char* only = std::getenv("ONEHOP_ISA");
    if (only != nullptr && std::strcmp(only, *isa) != 0) continue;
    onehop::select_isa(*isa);
    if (wanted("float32")) {
      check_limits(*isa);
      check_exponential(*isa);
      check_dropout(*isa);
      check_type<float>(*isa, graphs);
    }
    if (wanted("float64")) check_type<double>(*isa, graphs);
    if (wanted("bfloat16")) check_type<Bfloat16>(*isa, graphs);
    if (wanted("float16")) check_type<Float16>(*isa, graphs);
  }
  return failed_groups == 0 ? 0 : 1;
}
