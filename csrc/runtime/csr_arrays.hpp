// What making a graph and changing one share: tasks over edges, and the arrays of a graph.
#pragma once

#include <algorithm>
#include <cstring>

#include "onehop/csr.hpp"
#include "onehop/parallel.hpp"

namespace onehop {

// Runs body(task, thread) for tasks in [0, tasks).
template <class Body>
void for_tasks(int64_t tasks, int threads, const Body& body) {
  parallel_for(
      tasks, threads,
      [](void* context, int64_t task, int thread) { (*static_cast<const Body*>(context))(task, thread); },
      const_cast<Body*>(&body));
}

// Below this many edges per thread, starting threads costs more than they save.
inline constexpr int64_t kEdgesPerThread = int64_t{1} << 14;

inline int64_t chunk_count(int64_t edges, int threads) {
  return std::clamp<int64_t>(edges / kEdgesPerThread, 1, threads);
}

// The edges of chunk `chunk` of `chunks` are [begin(chunk), begin(chunk + 1)).
struct Chunks {
  int64_t edges, chunks;
  int64_t begin(int64_t chunk) const { return edges / chunks * chunk + std::min(chunk, edges % chunks); }
};

// Runs body(edge) for the edges of a chunk, which is found once: what the body writes could be numbers of chunks.
template <class Body>
void for_chunk(Chunks chunks, int64_t chunk, const Body& body) {
  const int64_t end = chunks.begin(chunk + 1);
  for (int64_t e = chunks.begin(chunk); e < end; ++e) body(e);
}

// Makes the row pointers and the columns, without content. False when memory runs out.
inline bool allocate_rows(Csr& csr) {
  csr.rowptr = Block((csr.rows + 1) * static_cast<int64_t>(sizeof(int64_t)));
  csr.col = Block((csr.edges + Csr::kPadding) * static_cast<int64_t>(sizeof(int32_t)));
  if (!csr.rowptr || !csr.col) return false;
  std::memset(csr.col.as<int32_t>() + csr.edges, 0, Csr::kPadding * sizeof(int32_t));
  if (csr.edges == 0) std::memset(csr.rowptr.data(), 0, static_cast<size_t>(csr.rows + 1) * sizeof(int64_t));
  return true;
}

// Makes the permutation, likewise.
inline bool allocate_perm(Csr& csr, bool wide) {
  const int64_t entry = wide ? 8 : 4;
  csr.perm = Block((csr.edges + Csr::kPadding) * entry);
  csr.perm_is_wide = wide;
  if (!csr.perm) return false;
  std::memset(csr.perm.as<char>() + csr.edges * entry, 0, static_cast<size_t>(Csr::kPadding * entry));
  return true;
}

}  // namespace onehop
