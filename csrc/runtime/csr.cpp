#include "onehop/csr.hpp"

#include <algorithm>

#include "csr_arrays.hpp"

namespace onehop {
namespace {

// Smallest row whose place on the line of edges and rows, rowptr[r] + kEdgesPerRow * r, is beyond `place`;
// minus one.
int64_t row_at(const int64_t* rowptr, int64_t rows, int64_t place) {
  int64_t low = 0, high = rows;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (rowptr[middle + 1] + kEdgesPerRow * (middle + 1) <= place) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

std::unique_ptr<WorkList> cut(const Csr& csr, int64_t edges_per_item) {
  auto list = std::make_unique<WorkList>();
  const int64_t* rowptr = csr.rowptr_data();
  const int64_t length = csr.edges + kEdgesPerRow * csr.rows;
  const int64_t pieces = std::max<int64_t>(1, (length + edges_per_item - 1) / edges_per_item);
  list->items.reserve(static_cast<size_t>(pieces));
  int64_t row = 0, edge = 0;  // begin of the next item
  for (int64_t piece = 1; piece <= pieces; ++piece) {
    int64_t end_row = csr.rows, end_edge = csr.edges;
    if (piece < pieces) {
      const int64_t place = piece * edges_per_item;
      end_row = row_at(rowptr, csr.rows, place);
      end_edge = end_row < csr.rows ? rowptr[end_row] : csr.edges;
      if (end_row < csr.rows && rowptr[end_row + 1] - end_edge > edges_per_item) {
        end_edge = std::clamp(place - kEdgesPerRow * end_row, end_edge, rowptr[end_row + 1]);
        if (end_edge == rowptr[end_row + 1]) ++end_row;
      }
    }
    const bool cuts_last = end_row < csr.rows && end_edge > rowptr[end_row];
    const int64_t row_end = cuts_last ? end_row + 1 : end_row;
    if (row_end <= row && end_edge <= edge) continue;
    WorkItem item{row, row_end, edge, end_edge, -1, -1};
    const bool cuts_first = row < csr.rows && edge > rowptr[row];
    if (cuts_first) {
      item.head_slot = list->slots++;
      list->cut_rows.back().slot_end = list->slots;
    }
    if (cuts_last) {
      if (cuts_first && end_row == row) {
        item.tail_slot = item.head_slot;  // the item lies inside one row
      } else {
        item.tail_slot = list->slots++;
        list->cut_rows.push_back({end_row, item.tail_slot, list->slots});
      }
    }
    list->most_edges = std::max(list->most_edges, end_edge - edge);
    list->items.push_back(item);
    row = end_row;
    edge = end_edge;
  }
  return list;
}

template <class Perm>
void copy_rows(const Csr& from, Csr& to, int threads) {
  constexpr int64_t kRowsPerTask = 1024;
  const int64_t* source = from.rowptr_data();
  const int64_t* target = to.rowptr_data();
  const auto* row_of = to.row_of.as<int32_t>();
  const auto* old_perm = from.perm ? from.perm.as<Perm>() : nullptr;
  auto* new_perm = to.perm.as<Perm>();
  for_tasks((to.rows + kRowsPerTask - 1) / kRowsPerTask, threads, [&](int64_t task, int) {
    const int64_t end = std::min(to.rows, (task + 1) * kRowsPerTask);
    for (int64_t r = task * kRowsPerTask; r < end; ++r) {
      const int64_t first = source[row_of[r]], edges = target[r + 1] - target[r];
      std::copy_n(from.col_data() + first, edges, to.col.as<int32_t>() + target[r]);
      for (int64_t e = 0; e < edges; ++e) {
        new_perm[target[r] + e] = old_perm != nullptr ? old_perm[first + e] : static_cast<Perm>(first + e);
      }
    }
  });
}

}  // namespace

const WorkList& Csr::work(int64_t edges_per_item) const {
  const std::lock_guard<ForkSafeMutex> lock(mutex_);
  auto& list = work_[edges_per_item];
  if (list == nullptr) list = cut(*this, edges_per_item);
  return *list;
}

int64_t Csr::bytes() const { return rowptr.bytes() + col.bytes() + perm.bytes() + row_of.bytes(); }

std::shared_ptr<Csr> with_rows(const Csr& csr, const int32_t* order, bool wide_perm, int threads) {
  auto result = std::make_shared<Csr>();
  result->rows = csr.rows;
  result->cols = csr.cols;
  result->edges = csr.edges;
  result->row_of = Block(csr.rows * static_cast<int64_t>(sizeof(int32_t)));
  if (!result->row_of || !allocate_rows(*result) || !allocate_perm(*result, wide_perm)) return nullptr;
  std::copy_n(order, csr.rows, result->row_of.as<int32_t>());
  const int64_t* old = csr.rowptr_data();
  auto* rowptr = result->rowptr.as<int64_t>();
  rowptr[0] = 0;
  for (int64_t r = 0; r < csr.rows; ++r) rowptr[r + 1] = rowptr[r] + old[order[r] + 1] - old[order[r]];
  wide_perm ? copy_rows<int64_t>(csr, *result, threads) : copy_rows<int32_t>(csr, *result, threads);
  return result;
}

}  // namespace onehop
