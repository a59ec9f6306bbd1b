#include "onehop/communities.hpp"

#include <algorithm>
#include <numeric>
#include <vector>

namespace onehop {
namespace {

// Sweeps over all nodes end when fewer than one in kFewMoves moves, or after kMostSweeps.
constexpr int64_t kFewMoves = 50;
constexpr int kMostSweeps = 6;
// A level that joins fewer than one node in kFewJoined is the last.
constexpr int64_t kFewJoined = 20;

// A graph whose nodes are the communities of the previous level; edges inside a community are omitted, and counted only
// in `volume`: the weights of all edge ends of the nodes.
struct Level {
  std::vector<int64_t> rowptr;
  std::vector<int32_t> col;
  std::vector<float> weight;
  std::vector<double> volume;
};

// The neighbours of a node and the weights of the edges to them, summed by community.
class Neighbourhood {
 public:
  explicit Neighbourhood(size_t communities) : sum_(communities, 0.0F) {}
  void add(int32_t community, float weight) {
    float& sum = sum_[static_cast<size_t>(community)];
    if (sum == 0.0F) touched_.push_back(community);
    sum += weight;
  }
  const std::vector<int32_t>& touched() const { return touched_; }
  float weight(int32_t community) const { return sum_[static_cast<size_t>(community)]; }
  void clear() {
    for (const int32_t community : touched_) sum_[static_cast<size_t>(community)] = 0.0F;
    touched_.clear();
  }

 private:
  std::vector<float> sum_;
  std::vector<int32_t> touched_;
};

// Edges of either kind of graph: a Csr's weigh 1 each.
struct Edges {
  const int64_t* rowptr;
  const int32_t* col;
  const float* weight;  // null: 1
  int64_t nodes;
  float of(int64_t e) const { return weight != nullptr ? weight[e] : 1.0F; }
};

// The community of every node.
std::vector<int32_t> communities_of(const Edges& edges, const std::vector<double>& volume) {
  const auto nodes = static_cast<size_t>(edges.nodes);
  std::vector<int32_t> community(nodes);
  std::iota(community.begin(), community.end(), 0);
  std::vector<double> total(volume);  // of each community
  const double all = std::accumulate(volume.begin(), volume.end(), 0.0);
  if (all == 0.0) return community;
  Neighbourhood near(nodes);
  for (int sweep = 0; sweep < kMostSweeps; ++sweep) {
    int64_t moves = 0;
    for (size_t v = 0; v < nodes; ++v) {
      for (int64_t e = edges.rowptr[v]; e < edges.rowptr[v + 1]; ++e) {
        const auto other = static_cast<size_t>(edges.col[e]);
        if (other != v) near.add(community[other], edges.of(e));
      }
      const int32_t own = community[v];
      total[static_cast<size_t>(own)] -= volume[v];
      const auto gain = [&](int32_t c) {
        return static_cast<double>(near.weight(c)) - volume[v] * total[static_cast<size_t>(c)] / all;
      };
      int32_t best = own;
      double most = gain(own);
      for (const int32_t c : near.touched()) {
        const double g = gain(c);
        if (g > most) {
          best = c;
          most = g;
        }
      }
      near.clear();
      total[static_cast<size_t>(best)] += volume[v];
      community[v] = best;
      moves += best != own;
    }
    if (moves * kFewMoves < edges.nodes) break;
  }
  return community;
}

// Numbers the communities from 0 in the order of their first nodes; returns their number.
int64_t renumber(std::vector<int32_t>& community) {
  std::vector<int32_t> number(community.size(), -1);
  int32_t next = 0;
  for (int32_t& c : community) {
    int32_t& n = number[static_cast<size_t>(c)];
    if (n < 0) n = next++;
    c = n;
  }
  return next;
}

// The nodes, sorted by key, in the order of their numbers where keys are the same.
std::vector<int32_t> sorted_by(const std::vector<int32_t>& key, int64_t keys) {
  std::vector<int64_t> place(static_cast<size_t>(keys) + 1, 0);
  for (const int32_t k : key) ++place[static_cast<size_t>(k) + 1];
  std::partial_sum(place.begin(), place.end(), place.begin());
  std::vector<int32_t> nodes(key.size());
  for (size_t v = 0; v < key.size(); ++v) {
    nodes[static_cast<size_t>(place[static_cast<size_t>(key[v])]++)] = static_cast<int32_t>(v);
  }
  return nodes;
}

Level joined(const Edges& edges, const std::vector<double>& volume, const std::vector<int32_t>& community,
             int64_t count) {
  Level level;
  level.volume.assign(static_cast<size_t>(count), 0.0);
  level.rowptr.reserve(static_cast<size_t>(count) + 1);
  level.rowptr.push_back(0);
  const std::vector<int32_t> members = sorted_by(community, count);
  Neighbourhood near(static_cast<size_t>(count));
  for (size_t m = 0; m < members.size();) {
    const int32_t own = community[static_cast<size_t>(members[m])];
    for (; m < members.size() && community[static_cast<size_t>(members[m])] == own; ++m) {
      const auto v = static_cast<size_t>(members[m]);
      level.volume[static_cast<size_t>(own)] += volume[v];
      for (int64_t e = edges.rowptr[v]; e < edges.rowptr[v + 1]; ++e) {
        const int32_t other = community[static_cast<size_t>(edges.col[e])];
        if (other != own) near.add(other, edges.of(e));
      }
    }
    for (const int32_t c : near.touched()) {
      level.col.push_back(c);
      level.weight.push_back(near.weight(c));
    }
    near.clear();
    level.rowptr.push_back(static_cast<int64_t>(level.col.size()));
  }
  return level;
}

}  // namespace

void community_order(const Csr& csr, int32_t* order) {
  std::vector<double> volume(static_cast<size_t>(csr.rows));
  for (size_t v = 0; v < volume.size(); ++v) {
    volume[v] = static_cast<double>(csr.rowptr_data()[v + 1] - csr.rowptr_data()[v]);
  }
  // The community of every node of each level, the graph itself being the first.
  std::vector<std::vector<int32_t>> tree;
  std::vector<int64_t> counts;
  Level level;
  Edges edges{csr.rowptr_data(), csr.col_data(), nullptr, csr.rows};
  for (;;) {
    std::vector<int32_t> community = communities_of(edges, volume);
    const int64_t count = renumber(community);
    const int64_t before = edges.nodes;
    const bool last = (before - count) * kFewJoined < before;
    if (!last) {
      level = joined(edges, volume, community, count);
      volume = level.volume;
      edges = {level.rowptr.data(), level.col.data(), level.weight.data(), count};
    }
    tree.push_back(std::move(community));
    counts.push_back(count);
    if (last) break;
  }
  // From the top of the tree down: nodes sorted by the places of their communities.
  std::vector<int32_t> place(static_cast<size_t>(counts.back()));
  std::iota(place.begin(), place.end(), 0);
  std::vector<int32_t> nodes;
  for (size_t l = tree.size(); l-- > 0;) {
    std::vector<int32_t>& community = tree[l];
    for (int32_t& c : community) c = place[static_cast<size_t>(c)];
    nodes = sorted_by(community, counts[l]);
    place.resize(nodes.size());
    for (size_t i = 0; i < nodes.size(); ++i) place[static_cast<size_t>(nodes[i])] = static_cast<int32_t>(i);
  }
  std::copy(nodes.begin(), nodes.end(), order);
}

}  // namespace onehop
