#include "onehop/few_edges.hpp"

#include <cmath>

namespace onehop {
namespace {

int64_t end_of(const FewList& list, int64_t row, int64_t edge) {
  return __atomic_load_n(list.numbers + row * list.row_stride + edge * list.edge_stride, __ATOMIC_RELAXED);
}

template <class T>
bool norm_as(const FewNorm& norm) {
  T *out = static_cast<T*>(norm.out), *degrees = static_cast<T*>(norm.degrees);
  const auto* weight = static_cast<const T*>(norm.weight);
  const int64_t listed = norm.edges - norm.loops;
  const auto in_range = [&](int64_t node) { return static_cast<uint64_t>(node) < static_cast<uint64_t>(norm.nodes); };
  const T fill = weight == nullptr ? T{1} : static_cast<T>(norm.fill);
  for (int64_t edge = weight == nullptr ? 0 : listed; edge < norm.edges; ++edge) out[edge] = fill;
  if (weight != nullptr) {
    int64_t next = 0;
    for (int64_t edge = 0; edge < norm.list->edges; ++edge) {
      const int64_t source = end_of(*norm.list, 0, edge);
      const bool loops = norm.loops > 0 && source == end_of(*norm.list, 1, edge);
      if (!in_range(source) || (!loops && next == listed)) return false;
      out[loops ? listed + source : next++] = weight[edge];
    }
    if (next != listed) return false;
  }
  for (int64_t node = 0; node < norm.nodes; ++node) degrees[node] = 0;
  const int64_t *rows = norm.edge_index, *columns = norm.edge_index + norm.edges;
  const int64_t* counted = norm.counted == 0 ? rows : columns;
  for (int64_t edge = 0; edge < norm.edges; ++edge) {
    if (!in_range(rows[edge]) || !in_range(columns[edge])) return false;
    degrees[counted[edge]] += out[edge];
  }
  for (int64_t node = 0; node < norm.nodes; ++node) {
    const T scale = 1 / std::sqrt(degrees[node]);
    degrees[node] = std::isinf(scale) ? T{0} : scale;
  }
  for (int64_t edge = 0; edge < norm.edges; ++edge)
    out[edge] = degrees[rows[edge]] * out[edge] * degrees[columns[edge]];
  return true;
}

}  // namespace

int64_t count_unlooped(const FewList& list) {
  int64_t count = 0;
  for (int64_t edge = 0; edge < list.edges; ++edge) count += end_of(list, 0, edge) != end_of(list, 1, edge);
  return count;
}

bool write_loops(const FewList& list, bool removes, int64_t nodes, int64_t most, int64_t* out) {
  int64_t *rows = out, *columns = out + most, next = 0;
  for (int64_t edge = 0; edge < list.edges; ++edge) {
    const int64_t source = end_of(list, 0, edge), target = end_of(list, 1, edge);
    if (removes && source == target) continue;
    if (next + nodes >= most) return false;
    rows[next] = source;
    columns[next++] = target;
  }
  for (int64_t node = 0; node < nodes; ++node, ++next) rows[next] = columns[next] = node;
  return next == most;
}

bool few_norm(const FewNorm& norm) {
  return norm.dtype == DType::float64 ? norm_as<double>(norm) : norm_as<float>(norm);
}

}  // namespace onehop
