#include "implicit_graph.hpp"

#include <algorithm>
#include <cmath>
#include <functional>

#include "onehop/parallel.hpp"
#include "onehop/random_stream.hpp"

namespace onehop {
namespace {

constexpr int64_t kStride = 64;         // nodes between two entries of first_stub_
constexpr int64_t kRowsPerTask = 64;    // of rows()
constexpr int64_t kBlocksPerTask = 64;  // communities, of the constructor
constexpr double kTwoTo32 = 4294967296.0;

// Purposes of a hash, so that no two of them share numbers.
enum Purpose : uint64_t { kDegree = 1, kRounding, kPair, kNumber, kStubOrder };

uint64_t hash(uint64_t seed, Purpose purpose, uint64_t a, uint64_t b = 0) {
  return RandomStream(seed ^ (static_cast<uint64_t>(purpose) << 56) ^ b * 0xd6e8feb86659fd93ULL, a).bits64();
}

template <class Body>
void for_tasks(int64_t tasks, int threads, Body body) {
  parallel_for(tasks, threads, [](void* context, int64_t task, int) { (*static_cast<Body*>(context))(task); }, &body);
}

}  // namespace

Shuffle::Shuffle(uint64_t size, uint64_t key) : size_(size), key_(key), mask_(1), bits_(1) {
  while (bits_ < 32 && (uint64_t{1} << (2 * bits_)) < size) ++bits_;
  mask_ = (uint64_t{1} << bits_) - 1;
}

uint64_t Shuffle::round(uint64_t half, int number) const {
  return RandomStream(key_ + static_cast<uint64_t>(number), half).bits64() & mask_;
}

uint64_t Shuffle::operator()(uint64_t value) const {
  do {
    uint64_t left = value >> bits_, right = value & mask_;
    for (int k = 0; k < 4; ++k) {
      const uint64_t next = left ^ round(right, k);
      left = right;
      right = next;
    }
    value = left << bits_ | right;
  } while (value >= size_);
  return value;
}

uint64_t Shuffle::inverse(uint64_t value) const {
  do {
    uint64_t left = value >> bits_, right = value & mask_;
    for (int k = 3; k >= 0; --k) {
      const uint64_t before = right ^ round(left, k);
      right = left;
      left = before;
    }
    value = left << bits_ | right;
  } while (value >= size_);
  return value;
}

ImplicitGraph::ImplicitGraph(const ImplicitFigures& figures, const int64_t* starts, int64_t communities, int threads)
    : figures_(figures),
      starts_(starts, starts + communities + 1),
      total_(static_cast<size_t>(communities)),
      demand_(static_cast<size_t>(figures.nodes)),
      stubs_(static_cast<size_t>(figures.nodes)),
      first_stub_(static_cast<size_t>(figures.nodes / kStride + 2)),
      number_(static_cast<uint64_t>(figures.nodes), hash(figures.seed, kNumber, 0)),
      stub_order_(1, 0) {
  const int64_t tasks = (communities + kBlocksPerTask - 1) / kBlocksPerTask;
  for_tasks(tasks, threads, [&](int64_t task) {
    std::vector<double> wanted, running;
    std::vector<float> ranked;
    for (int64_t c = task * kBlocksPerTask; c < std::min(communities, (task + 1) * kBlocksPerTask); ++c) {
      const int64_t begin = starts_[static_cast<size_t>(c)], end = starts_[static_cast<size_t>(c) + 1];
      const double room = figures_.most_of_community * static_cast<double>(end - begin - 1);
      wanted.resize(static_cast<size_t>(end - begin));
      double total = 0;
      for (int64_t i = begin; i < end; ++i) {
        const uint64_t drawn = hash(figures_.seed, kDegree, static_cast<uint64_t>(i)) >> 32;
        const double place = (static_cast<double>(drawn) + 0.5) / kTwoTo32;
        const double degree = figures_.offset * (std::pow(1 - place * (1 - figures_.beyond), -1 / figures_.shape) - 1);
        wanted[static_cast<size_t>(i - begin)] = degree;
        const auto demand = static_cast<float>(std::min(figures_.inside * degree, room));
        demand_[static_cast<size_t>(i)] = demand;
        total += demand;
      }
      total_[static_cast<size_t>(c)] = total;
      // Largest demands first, and their running sums: probabilities above 1 are capped.
      ranked.assign(demand_.begin() + begin, demand_.begin() + end);
      std::sort(ranked.begin(), ranked.end(), std::greater<float>());
      running.assign(1, 0.0);
      for (const float demand : ranked) running.push_back(running.back() + demand);
      for (int64_t i = begin; i < end; ++i) {
        const double demand = demand_[static_cast<size_t>(i)];
        double missed = 0;
        if (demand > 0) {
          const auto certain =
              std::partition_point(ranked.begin(), ranked.end(), [&](float other) { return demand * other > total; });
          const auto count = certain - ranked.begin();
          const double itself = demand * demand / total;  // a node is not joined with itself
          missed =
              demand / total * running[static_cast<size_t>(count)] - static_cast<double>(count) + std::min(itself, 1.0);
        }
        const double lacking = wanted[static_cast<size_t>(i - begin)] - demand + missed;
        const uint64_t drawn = hash(figures_.seed, kRounding, static_cast<uint64_t>(i)) >> 32;
        const double rounded = std::floor(lacking + static_cast<double>(drawn) / kTwoTo32);
        stubs_[static_cast<size_t>(i)] = static_cast<uint16_t>(std::clamp(rounded, 0.0, 65535.0));
      }
    }
  });
  int64_t stub = 0;
  for (int64_t i = 0; i < figures_.nodes; ++i) {
    if (i % kStride == 0) first_stub_[static_cast<size_t>(i / kStride)] = stub;
    stub += stubs_[static_cast<size_t>(i)];
  }
  for (auto k = static_cast<size_t>((figures_.nodes + kStride - 1) / kStride); k < first_stub_.size(); ++k) {
    first_stub_[k] = stub;
  }
  matched_ = stub / 2 * 2;
  stub_order_ = Shuffle(static_cast<uint64_t>(std::max<int64_t>(matched_, 1)), hash(figures_.seed, kStubOrder, 0));
}

int64_t ImplicitGraph::community_of(int64_t place) const {
  return std::upper_bound(starts_.begin(), starts_.end(), place) - starts_.begin() - 1;
}

int64_t ImplicitGraph::owner_of(int64_t stub) const {
  const int64_t stride = std::upper_bound(first_stub_.begin(), first_stub_.end(), stub) - first_stub_.begin() - 1;
  int64_t node = stride * kStride, begin = first_stub_[static_cast<size_t>(stride)];
  while (begin + stubs_[static_cast<size_t>(node)] <= stub) begin += stubs_[static_cast<size_t>(node++)];
  return node;
}

void ImplicitGraph::neighbours(int64_t node, std::vector<int32_t>& found) const {
  found.clear();
  const auto i = static_cast<int64_t>(number_.inverse(static_cast<uint64_t>(node)));
  const auto add = [&](int64_t place) { found.push_back(static_cast<int32_t>(number_(static_cast<uint64_t>(place)))); };
  const auto c = static_cast<size_t>(community_of(i));
  const int64_t begin = starts_[c], end = starts_[c + 1];
  if (total_[c] > 0) {
    const double own = demand_[static_cast<size_t>(i)], scale = kTwoTo32 / total_[c];
    for (int64_t j = begin; j < end; ++j) {
      const auto low = static_cast<uint64_t>(std::min(i, j)), high = static_cast<uint64_t>(std::max(i, j));
      const auto drawn = static_cast<double>(hash(figures_.seed, kPair, low, high) >> 32);
      // The product first: it is the same from both ends.
      if (j != i && drawn < own * demand_[static_cast<size_t>(j)] * scale) add(j);
    }
  }
  int64_t stub = first_stub_[static_cast<size_t>(i / kStride)];
  for (int64_t before = i / kStride * kStride; before < i; ++before) stub += stubs_[static_cast<size_t>(before)];
  const int64_t last = std::min(stub + stubs_[static_cast<size_t>(i)], matched_);
  for (; stub < last; ++stub) {
    const auto partner = static_cast<int64_t>(stub_order_.inverse(stub_order_(static_cast<uint64_t>(stub)) ^ 1));
    const int64_t j = owner_of(partner);
    if (j < begin || j >= end) add(j);
  }
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
}

SampledRows ImplicitGraph::rows(const int64_t* wanted, int64_t count, int threads) const {
  SampledRows result;
  result.rowptr.assign(static_cast<size_t>(count) + 1, 0);
  const int64_t tasks = (count + kRowsPerTask - 1) / kRowsPerTask;
  std::vector<std::vector<int32_t>> parts(static_cast<size_t>(tasks));
  for_tasks(tasks, threads, [&](int64_t task) {
    auto& part = parts[static_cast<size_t>(task)];
    std::vector<int32_t> found;
    for (int64_t k = task * kRowsPerTask; k < std::min(count, (task + 1) * kRowsPerTask); ++k) {
      neighbours(wanted[k], found);
      part.insert(part.end(), found.begin(), found.end());
      result.rowptr[static_cast<size_t>(k) + 1] = static_cast<int64_t>(found.size());
    }
  });
  for (size_t k = 0; k < static_cast<size_t>(count); ++k) result.rowptr[k + 1] += result.rowptr[k];
  result.col.reserve(static_cast<size_t>(result.rowptr.back()));
  for (const auto& part : parts) result.col.insert(result.col.end(), part.begin(), part.end());
  return result;
}

int64_t ImplicitGraph::bytes() const {
  return static_cast<int64_t>(8 * (starts_.size() + total_.size() + first_stub_.size()) + 4 * demand_.size() +
                              2 * stubs_.size());
}

}  // namespace onehop
