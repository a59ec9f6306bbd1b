// Edges sorted by a radix sort of their rows and columns as one number.

#include <stdexcept>
#include <vector>

#include "edge_columns.hpp"
#include "key_sort.hpp"

namespace onehop {

EdgeEnds edge_ends(const EdgeColumns& edges, int threads) {
  const Chunks chunks = pieces_of(edges);
  struct Limits {
    int64_t row = -1, col = -1, all = 0;
  };
  std::vector<Limits> limits(static_cast<size_t>(chunks.chunks));
  with_columns(edges, [&](const auto* row, const auto* col) {
    for_tasks(chunks.chunks, threads, [&](int64_t chunk, int) {
      auto most_row = static_cast<std::remove_cvref_t<decltype(*row)>>(-1), most_col = most_row;
      decltype(most_row) all = 0;  // negative once a number was
      for_chunk(chunks, chunk, [&](int64_t e) {
        most_row = std::max(most_row, row[e]);
        most_col = std::max(most_col, col[e]);
        all |= row[e] | col[e];
      });
      limits[static_cast<size_t>(chunk)] = {most_row, most_col, all};
    });
  });
  Limits total;
  for (const Limits& each : limits) {
    total = {std::max(total.row, each.row), std::max(total.col, each.col), total.all | each.all};
  }
  return total.all < 0 ? EdgeEnds{-1, -1} : EdgeEnds{total.row + 1, total.col + 1};
}

SortedEdges::SortedEdges(EdgeEnds ends, int64_t count, int note_bits)
    : col_bits_(bits_below(ends.cols)), keys_(count, bits_below(ends.rows) + col_bits_, note_bits) {}

SortedEdges::SortedEdges(const EdgeColumns& edges, EdgeEnds ends, bool mirrored, bool numbered, int threads)
    : SortedEdges(mirrored ? EdgeEnds{std::max(ends.rows, ends.cols), std::max(ends.rows, ends.cols)} : ends,
                  mirrored ? 2 * edges.count : edges.count,
                  numbered ? bits_below(mirrored ? 2 * edges.count : edges.count) : 0) {
  are_wide_ = edges.is_wide;
  with_columns(edges, [&](const auto* row, const auto* col) {
    const auto sorted = [&](const auto& key_of) {
      numbered ? sort(key_of, Place(), threads) : sort(key_of, NoNote(), threads);
    };
    const auto key = [shift = col_bits_](auto r, auto c) {
      return static_cast<uint64_t>(r) << shift | static_cast<uint64_t>(c);
    };
    if (mirrored) {
      sorted([=, given = edges.count](int64_t e) {
        return e < given ? key(row[e], col[e]) : key(col[e - given], row[e - given]);
      });
    } else {
      sorted([=](int64_t e) { return key(row[e], col[e]); });
    }
  });
}

bool SortedEdges::are_paired(const EdgeColumns& edges, EdgeEnds ends, int threads) {
  const int64_t nodes = std::max(ends.rows, ends.cols);
  // Keyed by the smaller end, then the larger; the note is the direction.
  SortedEdges sorted({nodes, nodes}, edges.count, 1);
  with_columns(edges, [&](const auto* row, const auto* col) {
    const auto key_of = [=, shift = sorted.col_bits_](int64_t e) {
      return static_cast<uint64_t>(std::min(row[e], col[e])) << shift | static_cast<uint64_t>(std::max(row[e], col[e]));
    };
    sorted.sort(key_of, [=](int64_t e) { return static_cast<uint64_t>(row[e] < col[e]); }, threads);
  });
  std::atomic<bool> paired{true};
  sorted.keys_.for_buckets(threads, [&](const auto* words, const SortedKeys::Bucket& bucket) {
    for (int64_t i = 0, end; i < bucket.count; i = end) {
      int64_t more = 0;  // edges of one direction than of the other
      for (end = i; end < bucket.count && (end == i || !bucket.begins(words, end)); ++end) {
        more += bucket.note(words[end]) != 0 ? 1 : -1;
      }
      const uint64_t key = bucket.key(words[i]);
      if (more != 0 && key >> sorted.col_bits_ != (key & mask_of(sorted.col_bits_))) {
        paired.store(false, std::memory_order_relaxed);
        return;
      }
    }
  });
  return paired.load();
}

template <class KeyOf, class NoteOf>
void SortedEdges::sort(const KeyOf& key_of, const NoteOf& note_of, int threads) {
  if (!keys_.sort(key_of, note_of, threads)) {
    throw std::runtime_error(
        "edge_index: another thread wrote to it while it was sorted; write to it before or after.");
  }
}

template <class Index>
void SortedEdges::write_ends_as(Index* row, Index* col, bool once, int threads) const {
  keys_.for_buckets(threads, [&](const auto* words, const SortedKeys::Bucket& bucket) {
    int64_t next = once ? bucket.first_distinct : bucket.first;
    for (int64_t i = 0; i < bucket.count; ++i) {
      if (once && !bucket.begins(words, i)) continue;
      const uint64_t key = bucket.key(words[i]);
      row[next] = static_cast<Index>(key >> col_bits_);
      col[next++] = static_cast<Index>(key & mask_of(col_bits_));
    }
  });
}

void SortedEdges::write_ends(void* row, void* col, bool once, int threads) const {
  are_wide_ ? write_ends_as(static_cast<int64_t*>(row), static_cast<int64_t*>(col), once, threads)
            : write_ends_as(static_cast<int32_t*>(row), static_cast<int32_t*>(col), once, threads);
}

}  // namespace onehop
