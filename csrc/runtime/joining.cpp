#include "onehop/joining.hpp"

#include <algorithm>
#include <cstring>

namespace onehop {

bool join_bounds(const ChosenGraphs& chosen, const int64_t* slices, int64_t* bounds) {
  bounds[0] = 0;
  for (int64_t i = 0; i < chosen.count; ++i) {
    const int64_t size = slices[chosen.numbers[i] + 1] - slices[chosen.numbers[i]];
    if (size < 0) return false;
    bounds[i + 1] = bounds[i] + size;
  }
  return true;
}

bool join_rows(const ChosenGraphs& chosen, const GraphRows& all, const int64_t* bounds, const int64_t* added,
               void* out) {
  const auto* values = static_cast<const char*>(all.values);
  auto* joined = static_cast<char*>(out);
  for (int64_t block = 0; block < all.blocks; ++block) {
    for (int64_t i = 0; i < chosen.count; ++i) {
      const int64_t begin = all.slices[chosen.numbers[i]], size = bounds[i + 1] - bounds[i];
      if (begin < 0 || begin > all.rows - size) return false;
      if (size == 0) continue;
      std::memcpy(joined, values + begin * all.row_bytes, size * all.row_bytes);
      if (added != nullptr) {
        auto* numbers = reinterpret_cast<int64_t*>(joined);
        const int64_t more = added[i];
        std::for_each_n(numbers, size * all.row_bytes / sizeof(int64_t), [more](int64_t& number) { number += more; });
      }
      joined += size * all.row_bytes;
    }
    values += all.rows * all.row_bytes;
  }
  return true;
}

void write_graphs(const int64_t* bounds, int64_t count, int64_t* graphs) {
  for (int64_t i = 0; i < count; ++i) std::fill(graphs + bounds[i], graphs + bounds[i + 1], i);
}

}  // namespace onehop
