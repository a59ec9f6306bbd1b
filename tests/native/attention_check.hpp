// Attention against plain loops in double: output, weights and every gradient, for all three scores, with and
// without features of edges. Included by kernel_check.cpp, whose groups and matrices it uses.
#pragma once

struct AttentionCase {
  onehop::ScoreRule rule;
  int64_t heads, width, inputs;  // inputs: columns of features to project; 0: features as they are; -1: none
};

// What plain loops make of a case; names as in AttendArgs.
template <class T>
class PlainAttention {
 public:
  using A = typename Number<T>::Acc;
  using Numbers = std::vector<double>;
  Matrix<T> value, key, query, edge, grad;
  Matrix<A> scores_key, scores_query, scores_edge, att, edge_weight, mask;
  Numbers out, weights, to_value, to_key, to_query, to_att, to_edge, to_edge_weight;

  PlainAttention(const Graph& g, const AttentionCase& c, Random& random)
      : value(features<T>(random, g.cols, c.heads * c.width, 3)),
        key(features<T>(random, g.cols, c.heads * c.width, 0)),
        query(features<T>(random, g.rows, c.heads * c.width, 1)),
        edge(features<T>(random, g.edges(), c.inputs > 0 ? c.inputs : c.heads * c.width, 2)),
        grad(features<T>(random, g.rows, c.heads * c.width, 5)),
        scores_key(features<A>(random, g.cols, c.heads, 0)),
        scores_query(features<A>(random, g.rows, c.heads, 0)),
        scores_edge(features<A>(random, g.edges(), c.heads, 0)),
        att(features<A>(random, c.heads, c.width, 0)),
        edge_weight(features<A>(random, larger_of(c.inputs), c.heads * c.width, 0)),
        mask(features<A>(random, g.edges(), c.heads, 0)),
        graph_(g),
        case_(c),
        columns_(c.heads * c.width) {
    resize();
    std::vector<double> most(at(g.rows * c.heads), -HUGE_VAL), total(most.size(), 0), own(most.size(), 0);
    for_edges([&](int64_t e, int64_t h, size_t row) { most[row] = std::fmax(most[row], score(e, h)); });
    for_edges([&](int64_t e, int64_t h, size_t row) { total[row] += std::exp(score(e, h) - most[row]); });
    for_edges([&](int64_t e, int64_t h, size_t row) {
      const double weight = std::exp(score(e, h) - most[row]) / total[row];
      weights[at(e * c.heads + h)] = weight;
      own[row] += weight * mask.value(e, h) * product(e, h);
      for (int64_t i = h * c.width; i < (h + 1) * c.width; ++i) {
        out[at(target(e) * columns_ + i)] += weight * mask.value(e, h) * value_of(e, i);
      }
    });
    for_edges([&](int64_t e, int64_t h, size_t row) {
      const double weight = weights[at(e * c.heads + h)];
      add_grads(e, h, weight * mask.value(e, h), weight * (mask.value(e, h) * product(e, h) - own[row]));
    });
  }

  static double factor(const AttentionCase& c) { return c.rule == onehop::ScoreRule::dot ? 0.125 : 0.25; }

 private:
  static size_t at(int64_t index) { return static_cast<size_t>(index); }
  static int64_t larger_of(int64_t inputs) { return inputs > 0 ? inputs : 1; }
  int64_t target(int64_t e) const { return graph_.row[at(e)]; }
  int64_t source(int64_t e) const { return graph_.col[at(e)]; }
  bool is(onehop::ScoreRule rule) const { return case_.rule == rule; }

  void resize() {
    const int64_t edges = graph_.edges(), heads = case_.heads;
    const bool gat = is(onehop::ScoreRule::gat);
    out.resize(at(graph_.rows * columns_));
    weights.resize(at(edges * heads));
    to_value.resize(at(graph_.cols * columns_));
    to_key.resize(at(graph_.cols * (gat ? heads : columns_)));
    to_query.resize(at(graph_.rows * (gat ? heads : columns_)));
    to_att.resize(at(columns_));
    to_edge.resize(at(edges * (gat ? heads : case_.inputs > 0 ? case_.inputs : columns_)));
    to_edge_weight.resize(at(larger_of(case_.inputs) * columns_));
  }
  template <class Visit>
  void for_edges(const Visit& visit) const {
    for (int64_t e = 0; e < graph_.edges(); ++e) {
      for (int64_t h = 0; h < case_.heads; ++h) visit(e, h, at(target(e) * case_.heads + h));
    }
  }
  double edge_of(int64_t e, int64_t i) const {
    if (case_.inputs < 0) return 0;
    if (case_.inputs == 0) return edge.value(e, i);
    double sum = 0;
    for (int64_t k = 0; k < case_.inputs; ++k) sum += edge.value(e, k) * edge_weight.value(k, i);
    return sum;
  }
  double value_of(int64_t e, int64_t i) const {
    return value.value(source(e), i) + (is(onehop::ScoreRule::dot) ? edge_of(e, i) : 0);
  }
  double product(int64_t e, int64_t h) const {
    double sum = 0;
    for (int64_t i = h * case_.width; i < (h + 1) * case_.width; ++i) sum += grad.value(target(e), i) * value_of(e, i);
    return sum;
  }
  double sloped(double z) const { return z > 0 ? 1 : factor(case_); }
  double plain_score(int64_t e, int64_t h) const {
    return scores_key.value(source(e), h) + scores_query.value(target(e), h) +
           (case_.inputs < 0 ? 0 : scores_edge.value(e, h));
  }
  double sum_of(int64_t e, int64_t i) const {
    return value.value(source(e), i) + query.value(target(e), i) + edge_of(e, i);
  }
  double score(int64_t e, int64_t h) const {
    if (is(onehop::ScoreRule::gat)) return plain_score(e, h) * sloped(plain_score(e, h));
    double sum = 0;
    for (int64_t i = h * case_.width; i < (h + 1) * case_.width; ++i) {
      if (is(onehop::ScoreRule::gatv2)) {
        sum += att.value(h, i - h * case_.width) * sum_of(e, i) * sloped(sum_of(e, i));
      } else {
        sum += factor(case_) * query.value(target(e), i) * (key.value(source(e), i) + edge_of(e, i));
      }
    }
    return sum;
  }
  void add_edge_grad(int64_t e, int64_t i, double grad_of_edge) {
    if (case_.inputs < 0) return;
    if (case_.inputs == 0) to_edge[at(e * columns_ + i)] += grad_of_edge;
    for (int64_t k = 0; k < case_.inputs; ++k) {
      to_edge[at(e * case_.inputs + k)] += grad_of_edge * edge_weight.value(k, i);
      to_edge_weight[at(k * columns_ + i)] += grad_of_edge * edge.value(e, k);
    }
  }
  void add_grads(int64_t e, int64_t h, double weight, double slope) {
    const int64_t heads = case_.heads;
    if (is(onehop::ScoreRule::gat)) {
      slope *= sloped(plain_score(e, h));
      to_key[at(source(e) * heads + h)] += slope;
      to_query[at(target(e) * heads + h)] += slope;
      if (case_.inputs >= 0) to_edge[at(e * heads + h)] += slope;
    }
    for (int64_t i = h * case_.width; i < (h + 1) * case_.width; ++i) {
      double& of_value = to_value[at(source(e) * columns_ + i)];
      of_value += weight * grad.value(target(e), i);
      if (is(onehop::ScoreRule::gatv2)) {
        const double z = sum_of(e, i), part = slope * sloped(z) * att.value(h, i - h * case_.width);
        of_value += part;
        to_query[at(target(e) * columns_ + i)] += part;
        to_att[at(i)] += slope * sloped(z) * z;
        add_edge_grad(e, i, part);
      } else if (is(onehop::ScoreRule::dot)) {
        const double d = slope * factor(case_), q = query.value(target(e), i);
        to_query[at(target(e) * columns_ + i)] += d * (key.value(source(e), i) + edge_of(e, i));
        to_key[at(source(e) * columns_ + i)] += d * q;
        add_edge_grad(e, i, d * q + weight * grad.value(target(e), i));
      }
    }
  }

  const Graph& graph_;
  AttentionCase case_;
  int64_t columns_;
};

// Compares within an error relative to the largest number: gradients of scores are differences.
template <class T>
void compare_all(Group& group, const std::string& where, const std::vector<T>& got, const std::vector<double>& want,
                 double relative) {
  double most = 1;
  for (const double w : want) most = std::fmax(most, std::fabs(w));
  for (size_t i = 0; i < want.size(); ++i) {
    group.compare_within(where, static_cast<int64_t>(i), Number<T>::value(got[i]), want[i], relative * most);
  }
}

template <class T>
void check_attention(const std::string& isa, const Graph& g, const AttentionCase& c, int64_t edges_per_item,
                     Group& forward, Group& backward) {
  using A = typename Number<T>::Acc;
  Random random{static_cast<uint64_t>(c.width)};
  const PlainAttention<T> plain(g, c, random);
  const bool gat = c.rule == onehop::ScoreRule::gat, gatv2 = c.rule == onehop::ScoreRule::gatv2;
  const auto& work = g.csr->work(edges_per_item);
  const auto& transposed_work = g.transposed->work(edges_per_item);
  std::vector<A> slots(static_cast<size_t>(
      (work.slots + transposed_work.slots) * onehop::attend_slot_width(c.heads, gat ? 1 : c.width, c.width) + 1));
  std::vector<A> softmax(static_cast<size_t>(2 * g.rows * c.heads)),
      statistics(static_cast<size_t>(3 * g.rows * c.heads));
  std::vector<A> weights(plain.weights.size()), grad_att(plain.to_att.size()), grad_weight(plain.to_edge_weight.size());
  std::vector<T> out(plain.out.size()), grad_value(plain.to_value.size());
  std::vector<T> grad_key(plain.to_key.size()), grad_query(plain.to_query.size()), grad_edge(plain.to_edge.size());
  std::vector<A> key_sums(plain.to_key.size()), query_sums(plain.to_query.size()), edge_sums(plain.to_edge.size());
  const bool features_of_edges = c.inputs >= 0;

  onehop::AttendArgs args{};
  args.csr = g.csr.get();
  args.work = &work;
  args.rule = c.rule;
  args.dtype = Kind<T>::kCode;
  args.threads = 3;
  args.prefetch = 16;
  args.heads = c.heads;
  args.key_width = gat ? 1 : c.width;
  args.value_width = c.width;
  args.value = plain.value.data.data();
  args.value_stride = plain.value.stride;
  args.key = gat ? static_cast<const void*>(plain.scores_key.data.data()) : plain.key.data.data();
  args.key_stride = plain.key.stride;
  args.query = gat ? static_cast<const void*>(plain.scores_query.data.data()) : plain.query.data.data();
  args.query_stride = plain.query.stride;
  args.att = gatv2 ? plain.att.data.data() : nullptr;
  if (features_of_edges) {
    args.edge = gat ? static_cast<const void*>(plain.scores_edge.data.data()) : plain.edge.data.data();
    args.edge_stride = plain.edge.stride;
    if (!gat && c.inputs > 0) {
      args.edge_width = c.inputs;
      args.edge_weight = plain.edge_weight.data.data();
      args.grad_edge_weight = grad_weight.data();
    }
    args.grad_edge = gat ? static_cast<void*>(edge_sums.data()) : grad_edge.data();
  }
  args.mask = plain.mask.data.data();
  args.factor = PlainAttention<T>::factor(c);
  args.out = out.data();
  args.softmax = softmax.data();
  args.weights = weights.data();
  args.grad = plain.grad.data.data();
  args.grad_stride = plain.grad.stride;
  args.statistics = statistics.data();
  args.grad_query = gat ? static_cast<void*>(query_sums.data()) : grad_query.data();
  args.grad_att = gatv2 ? grad_att.data() : nullptr;
  args.slots = slots.data();
  onehop::kernels().attend(args);
  onehop::kernels().attend_weights(args);
  onehop::kernels().attend_grad_dst(args);
  args.csr = g.transposed.get();
  args.work = &transposed_work;
  args.grad_value = grad_value.data();
  args.grad_key = gat ? static_cast<void*>(key_sums.data()) : gatv2 ? nullptr : grad_key.data();
  onehop::kernels().attend_grad_src(args);

  const std::string where = isa + " " + g.name + ", rule " + std::to_string(static_cast<int>(c.rule)) + ", " +
                            std::to_string(c.heads) + " x " + std::to_string(c.width) + ", inputs " +
                            std::to_string(c.inputs);
  const double relative = 64 * Kind<T>::kRounding + 1024 * Kind<A>::kRounding;
  compare_all(forward, where + ", out", out, plain.out, relative);
  compare_all(forward, where + ", weights", weights, plain.weights, relative);
  // Sums of up to a row's edges times a head's columns; the output in it was rounded.
  const double loose = relative * static_cast<double>(c.width);
  compare_all(backward, where + ", value", grad_value, plain.to_value, loose);
  if (gat) {
    compare_all(backward, where + ", key", key_sums, plain.to_key, loose);
    compare_all(backward, where + ", query", query_sums, plain.to_query, loose);
    if (features_of_edges) compare_all(backward, where + ", edge", edge_sums, plain.to_edge, loose);
    return;
  }
  compare_all(backward, where + ", query", grad_query, plain.to_query, loose);
  if (gatv2) {
    compare_all(backward, where + ", att", grad_att, plain.to_att, loose);
  } else {
    compare_all(backward, where + ", key", grad_key, plain.to_key, loose);
  }
  if (features_of_edges) compare_all(backward, where + ", edge", grad_edge, plain.to_edge, loose);
  if (c.inputs > 0) compare_all(backward, where + ", edge weight", grad_weight, plain.to_edge_weight, loose);
}

template <class T>
void check_attention(const std::string& isa, const std::vector<Graph>& graphs) {
  using onehop::ScoreRule;
  Group forward(isa + " " + Kind<T>::kName, "attend"), backward(isa + " " + Kind<T>::kName, "attend_grad");
  for (const Graph& g : graphs) {
    for (const ScoreRule rule : {ScoreRule::gat, ScoreRule::gatv2, ScoreRule::dot}) {
      for (const int64_t width : {1, 2, 3, 7, 17, 33, 70}) {
        const int64_t inputs = width % 3 - 1;  // -1, 0 and 1 ...
        const AttentionCase c{rule, width > 20 ? 1 : 3, width, inputs > 0 ? 5 : inputs};
        check_attention<T>(isa, g, c, width % 2 == 0 ? 4096 : 16, forward, backward);
      }
    }
  }
}
