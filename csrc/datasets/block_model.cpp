#include "block_model.hpp"

#include <algorithm>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "onehop/parallel.hpp"
#include "onehop/random_stream.hpp"

namespace onehop {
namespace {

// Streams of the inside draws are in the upper half, so that they are disjoint from those between communities.
constexpr uint64_t kInsideStreams = uint64_t{1} << 63;
// Rows are filled in this many ranges, whatever the number of threads.
constexpr int64_t kRanges = 16;

NodePair pair_of(uint64_t low, uint64_t high) { return low << 32 | high; }

template <class Body>
void for_tasks(int64_t tasks, int threads, Body body) {
  parallel_for(tasks, threads, [](void* context, int64_t task, int) { (*static_cast<Body*>(context))(task); }, &body);
}

void inside_community(const InsideCall& call, int64_t community, std::vector<NodePair>& found) {
  const int64_t begin = call.starts[community], end = call.starts[community + 1];
  double total = 0;
  for (int64_t i = begin; i < end; ++i) total += call.demand[i];
  if (total <= 0) return;
  RandomStream random(call.seed, kInsideStreams + static_cast<uint64_t>(community));
  size_t count = 0;
  for (int64_t i = begin; i < end; ++i) {
    if (found.size() < count + static_cast<size_t>(end - i)) {
      found.resize(2 * found.size() + static_cast<size_t>(end - begin));
    }
    const double scale = call.demand[i] / total * 4294967296.0;  // chances in units of 2^-32
    const size_t before = count;
    for (int64_t j = i + 1; j < end; ++j) {
      const auto drawn = static_cast<double>(random.bits64() >> 32);
      const bool hit = drawn < scale * call.demand[j];
      // Always written, and kept if it hit: no unpredictable branch.
      found[count] = pair_of(static_cast<uint64_t>(i), static_cast<uint64_t>(j));
      call.degrees[j] += hit;
      count += hit;
    }
    call.degrees[i] += static_cast<double>(count - before);
  }
  found.resize(count);
}

}  // namespace

int64_t draw_inside(const InsideCall& call) {
  const int64_t tasks = call.last - call.first;
  std::vector<std::vector<NodePair>> found(static_cast<size_t>(tasks));
  for_tasks(tasks, call.threads,
            [&](int64_t task) { inside_community(call, call.first + task, found[static_cast<size_t>(task)]); });
  int64_t count = 0;
  for (const auto& part : found) count += static_cast<int64_t>(part.size());
  if (count > call.capacity) return -1;
  NodePair* out = call.pairs;
  for (const auto& part : found) out = std::copy(part.begin(), part.end(), out);
  return count;
}

bool build_alias(const double* weights, int64_t count, uint32_t* threshold, int32_t* alias) {
  double total = 0;
  for (int64_t i = 0; i < count; ++i) total += weights[i];
  if (!(total > 0)) return false;
  std::vector<double> share(static_cast<size_t>(count));
  std::vector<int32_t> small, large;
  for (int64_t i = 0; i < count; ++i) {
    share[static_cast<size_t>(i)] = weights[i] / total * static_cast<double>(count);
    (share[static_cast<size_t>(i)] < 1 ? small : large).push_back(static_cast<int32_t>(i));
  }
  const auto keep = [&](int32_t entry, double chance) {
    threshold[entry] = static_cast<uint32_t>(std::min(chance * 4294967296.0, 4294967295.0));
  };
  while (!small.empty() && !large.empty()) {
    const int32_t under = small.back(), over = large.back();
    small.pop_back();
    keep(under, share[static_cast<size_t>(under)]);
    alias[under] = over;
    double& rest = share[static_cast<size_t>(over)];
    rest -= 1 - share[static_cast<size_t>(under)];
    if (rest < 1) {
      large.pop_back();
      small.push_back(over);
    }
  }
  for (const auto& left : {small, large}) {
    for (const int32_t entry : left) {
      keep(entry, 1);
      alias[entry] = entry;
    }
  }
  return true;
}

int64_t draw_between(const BetweenCall& call) {
  const int64_t tasks = call.draws / kDrawsPerTask;
  std::vector<int64_t> counts(static_cast<size_t>(tasks));
  for_tasks(tasks, call.threads, [&](int64_t task) {
    RandomStream random(call.seed, call.first_stream + static_cast<uint64_t>(task));
    const auto draw = [&] {
      const auto entry = static_cast<int64_t>(random.below(static_cast<uint64_t>(call.nodes)));
      const bool keeps = static_cast<uint32_t>(random.bits64() >> 32) < call.threshold[entry];
      return keeps ? static_cast<int32_t>(entry) : call.alias[entry];
    };
    NodePair* out = call.pairs + task * kDrawsPerTask;
    int64_t count = 0;
    for (int64_t k = 0; k < kDrawsPerTask; ++k) {
      const int32_t a = draw(), b = draw();
      const auto [low, high] = std::minmax(a, b);
      out[count] = pair_of(static_cast<uint64_t>(low), static_cast<uint64_t>(high));
      count += call.community[a] != call.community[b];
    }
    counts[static_cast<size_t>(task)] = count;
  });
  NodePair* out = call.pairs;
  for (int64_t task = 0; task < tasks; ++task) {
    const NodePair* from = call.pairs + task * kDrawsPerTask;
    out = std::copy(from, from + counts[static_cast<size_t>(task)], out);
  }
  return out - call.pairs;
}

void symmetric_rows(const RowsCall& call) {
  const int64_t chunk = (call.count + kRanges - 1) / kRanges;
  for_tasks(kRanges, call.threads, [&](int64_t task) {
    const int64_t end = std::min(call.count, (task + 1) * chunk);
    for (int64_t k = task * chunk; k < end; ++k) {
      const NodePair pair = call.pairs[k];
      const int32_t a = call.number[pair >> 32], b = call.number[pair & 0xffffffffU];
      call.pairs[k] = pair_of(static_cast<uint64_t>(std::min(a, b)), static_cast<uint64_t>(std::max(a, b)));
    }
  });
  // Every range of rows reads all pairs: no two tasks write to one place, and sequential reads are cheap.
  const int64_t rows = (call.nodes + kRanges - 1) / kRanges;
  const auto for_entries = [&](int64_t task, auto entry) {
    const uint64_t begin = static_cast<uint64_t>(task * rows), size = static_cast<uint64_t>(rows);
    for (int64_t k = 0; k < call.count; ++k) {
      const uint64_t low = call.pairs[k] >> 32, high = call.pairs[k] & 0xffffffffU;
      if (low - begin < size) entry(low, high);
      if (high - begin < size) entry(high, low);
    }
  };
  std::fill(call.rowptr, call.rowptr + call.nodes + 1, 0);
  for_tasks(kRanges, call.threads,
            [&](int64_t task) { for_entries(task, [&](uint64_t row, uint64_t) { ++call.rowptr[row + 1]; }); });
  for (int64_t row = 0; row < call.nodes; ++row) call.rowptr[row + 1] += call.rowptr[row];
  for_tasks(kRanges, call.threads, [&](int64_t task) {
    const int64_t begin = std::min(call.nodes, task * rows), end = std::min(call.nodes, (task + 1) * rows);
    std::vector<int64_t> next(call.rowptr + begin, call.rowptr + end);
    for_entries(task, [&](uint64_t row, uint64_t other) {
      call.col[next[row - static_cast<uint64_t>(begin)]++] = static_cast<int32_t>(other);
    });
    for (int64_t row = begin; row < end; ++row) {
      std::sort(call.col + call.rowptr[row], call.col + call.rowptr[row + 1]);
    }
  });
}

}  // namespace onehop
