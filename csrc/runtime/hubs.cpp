// A graph's most read columns, under numbers of their own.
#include <algorithm>
#include <numeric>
#include <vector>

#include "onehop/csr.hpp"

namespace onehop {
namespace {

// The `count` columns that most edges read, ascending; the first of those that are read equally often.
std::vector<int32_t> most_read(const Csr& csr, int64_t count) {
  std::vector<int64_t> reads(static_cast<size_t>(csr.cols));
  for (int64_t e = 0; e < csr.edges; ++e) ++reads[static_cast<size_t>(csr.col_data()[e])];
  std::vector<int32_t> columns(reads.size());
  std::iota(columns.begin(), columns.end(), 0);
  const auto more = [&](int32_t a, int32_t b) {
    const int64_t of_a = reads[static_cast<size_t>(a)], of_b = reads[static_cast<size_t>(b)];
    return of_a != of_b ? of_a > of_b : a < b;
  };
  std::nth_element(columns.begin(), columns.begin() + count, columns.end(), more);
  columns.resize(static_cast<size_t>(count));
  std::sort(columns.begin(), columns.end());
  return columns;
}

std::shared_ptr<const HubCols> with_hubs(const Csr& csr, int64_t count) {
  auto made = std::make_shared<HubCols>();
  made->count = count;
  made->col = Block((csr.edges + Csr::kPadding) * static_cast<int64_t>(sizeof(int32_t)));
  made->hubs = Block(count * static_cast<int64_t>(sizeof(int32_t)));
  if (!made->col || !made->hubs) return nullptr;
  const auto hubs = most_read(csr, count);
  std::copy(hubs.begin(), hubs.end(), made->hubs.as<int32_t>());
  std::vector<int32_t> number(static_cast<size_t>(csr.cols));
  std::iota(number.begin(), number.end(), 0);
  for (int64_t h = 0; h < count; ++h) {
    number[static_cast<size_t>(hubs[static_cast<size_t>(h)])] = static_cast<int32_t>(h - count);
  }
  auto* to = made->col.as<int32_t>();
  std::transform(csr.col_data(), csr.col_data() + csr.edges, to,
                 [&](int32_t column) { return number[static_cast<size_t>(column)]; });
  std::fill_n(to + csr.edges, Csr::kPadding, 0);
  return made;
}

}  // namespace

std::shared_ptr<const HubCols> Csr::hub_cols(int64_t hubs) const {
  const std::lock_guard<ForkSafeMutex> lock(mutex_);
  auto& kept = hub_cols_[hubs];
  if (kept == nullptr) kept = with_hubs(*this, std::min(hubs, cols));
  return kept;
}

void Csr::free_hub_cols(int64_t hubs) const {
  const std::lock_guard<ForkSafeMutex> lock(mutex_);
  hub_cols_.erase(hubs);
}

}  // namespace onehop
