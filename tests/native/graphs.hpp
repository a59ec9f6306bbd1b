// Graphs for kernel_check: what has broken sparse kernels before, in small.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "onehop/csr.hpp"

// Vigna's splitmix64 (https://prng.di.unimi.it/splitmix64.c): the same numbers on every machine.
struct Random {
  uint64_t state;
  uint64_t next() {
    uint64_t z = state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  uint64_t below(uint64_t bound) { return next() % bound; }
};

struct Graph {
  std::string name;
  int64_t rows, cols;
  std::vector<int64_t> row, col;  // of every edge, in the caller's order
  std::shared_ptr<onehop::Csr> csr, transposed;

  Graph(std::string name_, int64_t rows_, int64_t cols_, std::vector<int64_t> row_, std::vector<int64_t> col_,
        bool wide_perm = false)
      : name(std::move(name_)), rows(rows_), cols(cols_), row(std::move(row_)), col(std::move(col_)) {
    constexpr int kThreads = 3;
    csr = onehop::csr_from_coo({row.data(), col.data(), 1, 1, edges(), true}, rows, cols, wide_perm, kThreads).csr;
    if (csr != nullptr) transposed = onehop::transpose(*csr, wide_perm, kThreads);
    if (transposed == nullptr) {
      std::printf("FAIL graph %s could not be made\n", name.c_str());
      std::exit(1);
    }
  }
  int64_t edges() const { return static_cast<int64_t>(row.size()); }

  // Calls compare(what, place, got, want) for every number of the graph and of its transpose.
  template <class Compare>
  void verify(const Compare& compare) const {
    std::vector<int64_t> order(row.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [this](int64_t a, int64_t b) { return row[at(a)] < row[at(b)]; });
    verify(*csr, rows, order, row, col, "rows", compare);
    std::stable_sort(order.begin(), order.end(), [this](int64_t a, int64_t b) { return col[at(a)] < col[at(b)]; });
    verify(*transposed, cols, order, col, row, "transpose", compare);
  }

 private:
  static size_t at(int64_t index) { return static_cast<size_t>(index); }

  template <class Compare>
  static void verify(const onehop::Csr& csr, int64_t rows, const std::vector<int64_t>& order,
                     const std::vector<int64_t>& row, const std::vector<int64_t>& col, const std::string& what,
                     const Compare& compare) {
    const auto edges = static_cast<int64_t>(order.size());
    compare(what + " count", 0, csr.rows, rows);
    int64_t e = 0;
    for (int64_t r = 0; r <= rows; ++r) {
      while (e < edges && row[at(order[at(e)])] < r) ++e;
      compare(what + " rowptr", r, csr.rowptr_data()[r], e);
    }
    for (e = 0; e < edges; ++e) {
      compare(what + " col", e, csr.col_data()[e], col[at(order[at(e)])]);
      const int64_t number = !csr.perm ? e : csr.perm_is_wide ? csr.perm.as<int64_t>()[e] : csr.perm.as<int32_t>()[e];
      compare(what + " perm", e, number, order[at(e)]);
    }
  }
};

inline Graph random_graph(std::string name, int64_t rows, int64_t cols, int64_t edges, bool sorted, bool wide_perm) {
  Random random{static_cast<uint64_t>(edges)};
  std::vector<int64_t> row(static_cast<size_t>(edges)), col(row.size());
  for (auto& r : row) r = static_cast<int64_t>(random.below(static_cast<uint64_t>(rows)));
  for (auto& c : col) c = static_cast<int64_t>(random.below(static_cast<uint64_t>(cols)));
  if (sorted) std::sort(row.begin(), row.end());
  return Graph(std::move(name), rows, cols, std::move(row), std::move(col), wide_perm);
}

// A row with most of the edges, which work items cut, between rows with few and rows with none.
inline Graph hub_graph() {
  Random random{7};
  std::vector<int64_t> row, col;
  for (int e = 0; e < 120; ++e) {
    row.push_back(e % 4 != 0 ? 5 : static_cast<int64_t>(2 * random.below(6)));
    col.push_back(static_cast<int64_t>(random.below(9)));
  }
  return Graph("hub", 13, 9, std::move(row), std::move(col));
}

inline std::vector<Graph> small_graphs() {
  std::vector<Graph> graphs;
  graphs.push_back(hub_graph());
  graphs.push_back(random_graph("sorted", 11, 17, 60, true, false));
  graphs.push_back(random_graph("wide permutation", 17, 11, 60, false, true));
  graphs.push_back(Graph("one edge", 1, 1, {0}, {0}));
  return graphs;
}

// Enough edges for several chunks (csr.cpp cuts at 2^14 a thread).
inline std::vector<Graph> large_graphs() {
  std::vector<Graph> graphs;
  graphs.push_back(random_graph("large", 20000, 1000, 100000, false, false));
  graphs.push_back(random_graph("large sorted", 1000, 20000, 100000, true, true));
  return graphs;
}
