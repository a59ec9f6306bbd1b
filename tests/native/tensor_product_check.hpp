// Products of features and harmonics against plain loops in double: the sum over edges, and the gradients to harmonics
// and weights, of each edge and shared. Included by kernel_check.cpp, whose groups and matrices it uses.
#pragma once

// Two paths of `width` channels, whose numbers are no coefficients of anything: from one component to three, and from
// three to two; the second shares columns of the result with the first.
struct TensorTables {
  static constexpr int64_t kComponents = 4, kResults = 4, kHarmonics = 5;
  std::vector<onehop::TensorPath> paths;
  std::vector<onehop::TensorGroup> groups;
  std::vector<onehop::TensorPair> pairs;
  std::vector<int32_t> columns;
  std::vector<double> factors;

  explicit TensorTables(int64_t width) {
    add(0, 0, 0, width, 1, 3, 1);
    add(width, 2 * width, width, width, 3, 2, 2);
  }

  template <class Visit>
  void each_term(const Visit& visit) const {
    for (const auto& path : paths) {
      for (int64_t g = path.group_begin; g < path.group_end; ++g) {
        for (int64_t p = groups[size(g)].pair_begin; p < groups[size(g)].pair_end; ++p) {
          for (int64_t t = pairs[size(p)].term_begin; t < pairs[size(p)].term_end; ++t) {
            for (int64_t u = 0; u < path.channels; ++u) {
              visit(path.in_begin + pairs[size(p)].component * path.channels + u, columns[size(t)],
                    path.weight_begin + u, path.out_begin + groups[size(g)].component * path.channels + u,
                    factors[size(t)]);
            }
          }
        }
      }
    }
  }

 private:
  static size_t size(int64_t index) { return static_cast<size_t>(index); }

  void add(int64_t in, int64_t out, int64_t weight, int64_t channels, int32_t components, int32_t results, int terms) {
    const auto first = static_cast<int64_t>(groups.size());
    for (int32_t k = 0; k < results; ++k) {
      const auto first_pair = static_cast<int32_t>(pairs.size());
      for (int32_t i = 0; i < components; ++i) {
        if ((i + k) % 4 == 3) continue;
        const auto first_term = static_cast<int32_t>(columns.size());
        for (int t = 0; t < terms; ++t) {
          columns.push_back((i + 2 * k + 3 * t) % kHarmonics);
          factors.push_back(t % 2 == 0 ? 0.5 : -2);
        }
        pairs.push_back({i, first_term, static_cast<int32_t>(columns.size())});
      }
      groups.push_back({k, first_pair, static_cast<int32_t>(pairs.size())});
    }
    paths.push_back({in, out, weight, channels, components, first, static_cast<int64_t>(groups.size())});
  }
};

template <class T>
void check_tensor_product(const std::string& isa, const std::vector<Graph>& graphs) {
  if constexpr (sizeof(T) >= 4) {
    using Sums = std::vector<double>;
    Group forward(isa + " " + Kind<T>::kName, "tensor_product");
    Group backward(isa + " " + Kind<T>::kName, "tensor_product_edges");
    for_settings(graphs, [&](const Setting& s) {
      if (s.out_is_acc || s.width > 70) return;
      Random random{static_cast<uint64_t>(s.width)};
      const Graph& g = s.graph;
      const bool shared = s.weighted;
      const TensorTables tables(s.width);
      const std::vector<T> factors(tables.factors.begin(), tables.factors.end());
      const int64_t in = TensorTables::kComponents * s.width, results = TensorTables::kResults * s.width;
      const int64_t columns = TensorTables::kHarmonics, weights = 2 * s.width;
      const auto x = features<T>(random, g.cols, in, 1), y = features<T>(random, g.edges(), columns, 2);
      const auto w = features<T>(random, shared ? 1 : g.edges(), weights, 3),
                 grad = features<T>(random, g.rows, results, 0);
      const auto& work = g.csr->work(s.edges_per_item);
      const auto items = static_cast<int64_t>(work.items.size());
      std::vector<T> slots(static_cast<size_t>(work.slots * results + items * weights + 1));
      std::vector<T> out(static_cast<size_t>(g.rows * results)), to_y(static_cast<size_t>(g.edges() * columns));
      std::vector<T> to_w(static_cast<size_t>((shared ? 1 : g.edges()) * weights));

      onehop::TensorProductArgs args{};
      args.csr = g.csr.get();
      args.work = &work;
      args.dtype = Kind<T>::kCode;
      args.threads = s.threads;
      args.paths = tables.paths.data();
      args.path_count = static_cast<int64_t>(tables.paths.size());
      args.groups = tables.groups.data();
      args.pairs = tables.pairs.data();
      args.pair_count = static_cast<int64_t>(tables.pairs.size());
      args.term_columns = tables.columns.data();
      args.term_factors = factors.data();
      args.x_width = in;
      args.out_width = results;
      args.harmonics_width = columns;
      args.weights_width = weights;
      args.x = x.data.data();
      args.x_stride = x.stride;
      args.harmonics = y.data.data();
      args.harmonics_stride = y.stride;
      args.weights = w.data.data();
      args.weights_stride = shared ? 0 : w.stride;
      args.grad = grad.data.data();
      args.grad_stride = grad.stride;
      args.out = out.data();
      args.to_harmonics = to_y.data();
      args.to_weights = to_w.data();
      args.sums_weights = shared;
      args.slots = slots.data();
      onehop::kernels().tensor_product(args);
      onehop::kernels().tensor_product_edges(args);

      Sums want(out.size()), want_y(to_y.size()), want_w(to_w.size());
      Sums magnitude(out.size()), magnitude_y(to_y.size()), magnitude_w(to_w.size());
      const auto add = [](Sums& sums, Sums& magnitudes, int64_t place, double value) {
        sums[static_cast<size_t>(place)] += value;
        magnitudes[static_cast<size_t>(place)] += std::abs(value);
      };
      for (int64_t e = 0; e < g.edges(); ++e) {
        const int64_t row = g.row[static_cast<size_t>(e)], col = g.col[static_cast<size_t>(e)], of_w = shared ? 0 : e;
        tables.each_term([&](int64_t i, int64_t j, int64_t u, int64_t k, double factor) {
          const double a = x.value(col, i), b = y.value(e, j), c = w.value(of_w, u), d = grad.value(row, k);
          add(want, magnitude, row * results + k, factor * a * b * c);
          add(want_y, magnitude_y, e * columns + j, factor * a * c * d);
          add(want_w, magnitude_w, of_w * weights + u, factor * a * b * d);
        });
      }
      const auto compare = [&](Group& group, const std::vector<T>& got, const Sums& wanted, const Sums& magnitudes) {
        for (size_t i = 0; i < wanted.size(); ++i) {
          group.compare_within(s.text(), static_cast<int64_t>(i), static_cast<double>(got[i]), wanted[i],
                               1000 * Kind<T>::kRounding * magnitudes[i]);
        }
      };
      compare(forward, out, want, magnitude);
      compare(backward, to_y, want_y, magnitude_y);
      compare(backward, to_w, want_w, magnitude_w);
    });
  }
}
