// A block model too large to be stored: only its nodes' degrees are in memory, and any row can be computed.
#pragma once

#include <cstdint>
#include <vector>

namespace onehop {

struct ImplicitFigures {
  int64_t nodes;
  uint64_t seed;
  // Degrees: quantiles of a Lomax distribution of this offset and shape, of which the share `beyond` is cut off.
  double offset, shape, beyond;
  double inside;             // share of a node's degree that is wanted inside its community
  double most_of_community;  // share of a community that a node is joined with at most
};

// Rows in compressed form: rowptr has one entry more than rows were asked for; columns ascend in every row.
struct SampledRows {
  std::vector<int64_t> rowptr;
  std::vector<int32_t> col;
};

// A permutation of [0, size) that needs no table: a Feistel network of four rounds, walked until the result lies
// inside. M. Luby, C. Rackoff, SIAM Journal on Computing 17 (1988); J. Black, P. Rogaway, CT-RSA 2002 (cycle walking).
class Shuffle {
 public:
  Shuffle(uint64_t size, uint64_t key);
  uint64_t operator()(uint64_t value) const;
  uint64_t inverse(uint64_t value) const;

 private:
  uint64_t round(uint64_t half, int number) const;

  uint64_t size_, key_, mask_;
  int bits_;  // of a half
};

// Two nodes of a community are joined with a probability decided by a hash of the pair; two stubs' owners are joined if
// a permutation of all stubs makes the stubs adjacent. Both can be evaluated from either end, so the graph is
// symmetric.
class ImplicitGraph {
 public:
  // `starts`: [communities + 1], where each community's nodes begin.
  ImplicitGraph(const ImplicitFigures& figures, const int64_t* starts, int64_t communities, int threads);

  // The rows of these nodes, which must lie in [0, nodes). The same for any number of threads.
  SampledRows rows(const int64_t* wanted, int64_t count, int threads) const;

  int64_t bytes() const;

 private:
  void neighbours(int64_t node, std::vector<int32_t>& found) const;
  int64_t community_of(int64_t place) const;
  int64_t owner_of(int64_t stub) const;

  ImplicitFigures figures_;
  std::vector<int64_t> starts_;
  std::vector<double> total_;        // [communities]: sum of the demands
  std::vector<float> demand_;        // [nodes]: degree that is wanted inside
  std::vector<uint16_t> stubs_;      // [nodes]: of edges between communities
  std::vector<int64_t> first_stub_;  // of every kStride-th node, and of the end
  int64_t matched_ = 0;              // stubs that have a partner: all, or all but one
  Shuffle number_, stub_order_;
};

}  // namespace onehop
