// Edges chosen by marks of their nodes, and nodes marked by their edges.

#include <algorithm>
#include <atomic>

#include "edge_columns.hpp"

namespace onehop {
namespace {

constexpr int64_t kEdgesPerBlock = 1024;

// Several threads may mark one place. What is marked is not written again, which would take it from other caches.
void mark(bool& place) {
  std::atomic_ref shared(place);
  if (!shared.load(std::memory_order_relaxed)) shared.store(true, std::memory_order_relaxed);
}

// Whether a number is in [0, nodes): without its sign, a negative one is not.
bool inside(int64_t number, int64_t nodes) { return static_cast<uint64_t>(number) < static_cast<uint64_t>(nodes); }

// Runs body(edge, rows, columns) until it returns false. Returns whether it never did. A body reads each end once,
// since another thread may write to the edges.
template <class Body>
bool for_edges_in_range(const EdgeColumns& edges, int threads, const Body& body) {
  const Chunks chunks = pieces_of(edges);
  std::atomic<bool> in_range{true};
  with_columns(edges, [&](const auto* row, const auto* col) {
    for_tasks(chunks.chunks, threads, [&](int64_t chunk, int) {
      const int64_t end = chunks.begin(chunk + 1);
      for (int64_t e = chunks.begin(chunk); e < end; ++e) {
        if (body(e, row, col)) continue;
        in_range.store(false, std::memory_order_relaxed);
        return;
      }
    });
  });
  return in_range.load();
}

}  // namespace

bool mark_inner_edges(const EdgeColumns& edges, const bool* node_mask, int64_t nodes, bool* edge_mask, int threads) {
  return for_edges_in_range(edges, threads, [=](int64_t e, auto row, auto col) {
    const int64_t r = row[e], c = col[e];
    if (!inside(r, nodes) || !inside(c, nodes)) return false;
    edge_mask[e] = static_cast<bool>(node_mask[r] & node_mask[c]);
    return true;
  });
}

bool mark_reached(const EdgeColumns& edges, const bool* from, int64_t nodes, bool* reached, bool* edge_mask,
                  int threads) {
  return for_edges_in_range(edges, threads, [=](int64_t e, auto row, auto col) {
    const int64_t r = row[e];
    if (!inside(r, nodes)) return false;
    if (!from[r]) return true;
    const int64_t c = col[e];
    if (!inside(c, nodes)) return false;
    edge_mask[e] = true;
    mark(reached[c]);
    return true;
  });
}

bool mark_ends(const EdgeColumns& edges, bool* node_mask, int64_t nodes, int threads) {
  return for_edges_in_range(edges, threads, [=](int64_t e, auto row, auto col) {
    const int64_t r = row[e], c = col[e];
    if (!inside(r, nodes) || !inside(c, nodes)) return false;
    if (r == c) return true;
    mark(node_mask[r]);
    mark(node_mask[c]);
    return true;
  });
}

bool write_marked(const EdgeColumns& edges, const bool* edge_mask, const void* mapping, int64_t nodes, void* row,
                  void* col, int threads) {
  const Chunks chunks = pieces_of(edges);
  std::vector<int64_t> first(static_cast<size_t>(chunks.chunks) + 1, 0);
  for_tasks(chunks.chunks, threads, [&](int64_t chunk, int) {
    first[static_cast<size_t>(chunk) + 1] =
        std::count(edge_mask + chunks.begin(chunk), edge_mask + chunks.begin(chunk + 1), true);
  });
  for (size_t chunk = 1; chunk < first.size(); ++chunk) first[chunk] += first[chunk - 1];
  std::atomic<bool> in_range{true};
  with_columns(edges, [&](const auto* from_row, const auto* from_col) {
    using Index = std::remove_cvref_t<decltype(*from_row)>;
    const auto* number = static_cast<const Index*>(mapping);
    for_tasks(chunks.chunks, threads, [&](int64_t chunk, int) {
      auto* to_row = static_cast<Index*>(row) + first[static_cast<size_t>(chunk)];
      auto* to_col = static_cast<Index*>(col) + first[static_cast<size_t>(chunk)];
      const int64_t last = chunks.begin(chunk + 1);
      for (int64_t begin = chunks.begin(chunk); begin < last; begin += kEdgesPerBlock) {
        const int64_t end = std::min(begin + kEdgesPerBlock, last);
        int64_t marked[kEdgesPerBlock], count = 0;
        for (int64_t e = begin; e < end; ++e) {
          marked[count] = e;
          count += edge_mask[e];
        }
        for (int64_t i = 0; i < count; ++i) {
          const Index r = from_row[marked[i]], c = from_col[marked[i]];
          if (number != nullptr && !(inside(r, nodes) && inside(c, nodes))) {
            in_range.store(false, std::memory_order_relaxed);
            return;
          }
          *to_row++ = number == nullptr ? r : number[r];
          *to_col++ = number == nullptr ? c : number[c];
        }
      }
    });
  });
  return in_range.load();
}

}  // namespace onehop
