// Random walks. Their memory accesses depend on one another, so each task takes many walks, step by step, and fetches
// what all of them need next.
#include "onehop/walks.hpp"

#include <algorithm>
#include <atomic>
#include <vector>

#include "../runtime/csr_arrays.hpp"
#include "onehop/random_stream.hpp"

namespace onehop {
namespace {

constexpr int64_t kWalksPerTask = 64;

template <class Id>
class Walks {
 public:
  Walks(const WalkedGraph& graph, const WalkOptions& options, int64_t first, int64_t count, Id* walks)
      : graph_(graph), options_(options), count_(count), walks_(walks + first * (options.length + 1)) {
    streams_.reserve(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) {
      streams_.emplace_back(options.key, static_cast<uint64_t>(first + i));
      now_[i] = {node(i, 0), 0, 0};
      fetch_bounds(i);
    }
  }

  // Returns false if a walk meets a damaged row or a node out of range.
  bool run() {
    for (int64_t step = 1; step <= options_.length; ++step) {
      if (!find_rows()) return false;
      waiting_ = 0;
      for (int64_t i = 0; i < count_; ++i) {
        next_[i] = now_[i].node;
        if (now_[i].edges() > 0) order_[waiting_++] = i;
      }
      propose();
      if (options_.second && step > 1) {
        for (int64_t round = 0; waiting_ > 0 && round < options_.proposals; ++round) {
          if (round > 0) propose();
          accept();
        }
        for (int64_t k = 0; k < waiting_; ++k) next_[order_[k]] = among_all(order_[k]);
      } else {
        for (int64_t k = 0; k < waiting_; ++k) next_[order_[k]] = col()[place_[order_[k]]];
      }
      for (int64_t i = 0; i < count_; ++i) {
        if (next_[i] < 0 || next_[i] >= graph_.nodes) return false;
        before_[i] = now_[i];
        now_[i] = {next_[i], 0, 0};
        walks_[i * (options_.length + 1) + step] = static_cast<Id>(next_[i]);
        fetch_bounds(i);
      }
    }
    return true;
  }

 private:
  // A node with its edges.
  struct Row {
    int64_t node, begin, end;
    int64_t edges() const { return end - begin; }
  };

  const Id* rowptr() const { return static_cast<const Id*>(graph_.rowptr); }
  const Id* col() const { return static_cast<const Id*>(graph_.col); }
  int64_t node(int64_t i, int64_t step) const { return walks_[i * (options_.length + 1) + step]; }
  void fetch_bounds(int64_t i) const { __builtin_prefetch(rowptr() + now_[i].node); }

  bool find_rows() {
    for (int64_t i = 0; i < count_; ++i) {
      Row& row = now_[i];
      row.begin = rowptr()[row.node];
      row.end = rowptr()[row.node + 1];
      if (row.begin < 0 || row.end < row.begin || row.end > graph_.edges) return false;
      // A row without weight has nothing to draw.
      if (graph_.running != nullptr && row.edges() > 0 && !(graph_.running[row.end - 1] > 0)) row.end = row.begin;
    }
    return true;
  }

  // Draws an edge for each walk that waits.
  void propose() {
    for (int64_t k = 0; k < waiting_; ++k) {
      const int64_t i = order_[k];
      const Row& row = now_[i];
      if (graph_.running == nullptr) {
        place_[i] = row.begin + static_cast<int64_t>(streams_[i].below(static_cast<uint64_t>(row.edges())));
      } else {
        const double *begin = graph_.running + row.begin, *end = graph_.running + row.end;
        const double* found = std::upper_bound(begin, end, streams_[i].between0and1() * end[-1]);
        // The product may be rounded up to the total: then it is the last edge that has a weight.
        if (found == end) found = std::lower_bound(begin, end, end[-1]);
        // The end again if the rows were written to since the sums were made.
        place_[i] = std::min(row.begin + (found - begin), row.end - 1);
      }
      __builtin_prefetch(col() + place_[i]);
    }
  }

  // Accepts proposals by their weights; the others go on waiting.
  void accept() {
    const double least = std::min(1.0, options_.out), most = std::max(1.0, options_.out);
    const double largest = std::max(options_.back, most);
    int64_t left = 0;
    for (int64_t k = 0; k < waiting_; ++k) {
      const int64_t i = order_[k], proposed = col()[place_[i]];
      const double chance = streams_[i].between0and1() * largest;
      // Most are decided without a search.
      const bool accepted = proposed == before_[i].node ? chance < options_.back
                            : chance < least            ? true
                            : chance >= most            ? false
                                                        : chance < weight(before_[i], proposed);
      if (accepted) {
        next_[i] = proposed;
      } else {
        order_[left++] = i;
      }
    }
    waiting_ = left;
  }

  double weight(const Row& before, int64_t to) const {
    if (to == before.node) return options_.back;
    const Id* sorted = static_cast<const Id*>(graph_.sorted);
    return std::binary_search(sorted + before.begin, sorted + before.end, static_cast<Id>(to)) ? 1 : options_.out;
  }

  // Draws among all edges of a node by their weights.
  int64_t among_all(int64_t i) {
    const Row& row = now_[i];
    const auto each = [&](int64_t edge) {
      const double of_first = graph_.running == nullptr ? 1
                              : edge == row.begin       ? graph_.running[edge]
                                                        : graph_.running[edge] - graph_.running[edge - 1];
      return of_first * weight(before_[i], col()[edge]);
    };
    double total = 0;
    for (int64_t edge = row.begin; edge < row.end; ++edge) total += each(edge);
    const double wanted = streams_[i].between0and1() * total;
    double sum = 0;
    int64_t last = row.begin;
    for (int64_t edge = row.begin; edge < row.end; ++edge) {
      const double own = each(edge);
      if (own > 0) last = edge;
      if ((sum += own) > wanted) break;
    }
    return col()[last];
  }

  const WalkedGraph& graph_;
  const WalkOptions& options_;
  const int64_t count_;
  Id* const walks_;
  int64_t waiting_ = 0;
  std::vector<RandomStream> streams_;
  Row now_[kWalksPerTask], before_[kWalksPerTask];
  int64_t place_[kWalksPerTask], next_[kWalksPerTask];
  int64_t order_[kWalksPerTask];  // the places of the walks that wait for a step
};

template <class Id>
bool walked(const WalkedGraph& graph, const WalkOptions& options, int64_t count, Id* walks, int threads) {
  std::atomic<bool> sound{true};
  for_tasks((count + kWalksPerTask - 1) / kWalksPerTask, threads, [&](int64_t task, int) {
    const int64_t first = task * kWalksPerTask;
    if (!Walks<Id>(graph, options, first, std::min(kWalksPerTask, count - first), walks).run()) sound = false;
  });
  return sound;
}

}  // namespace

bool walk(const WalkedGraph& graph, const WalkOptions& options, int64_t count, void* walks, int threads) {
  return graph.narrow ? walked(graph, options, count, static_cast<int32_t*>(walks), threads)
                      : walked(graph, options, count, static_cast<int64_t*>(walks), threads);
}

}  // namespace onehop
