// Rows by their numbers: copied out of a matrix, and added into one.
#include "sweep.hpp"
#include "tables.hpp"

namespace onehop {
inline namespace ONEHOP_ISA {
namespace {

// A row of kBytes to twice as many bytes, as its first and its last ones, which overlap.
template <int kBytes>
ONEHOP_INLINE void copy_ends(char* to, const char* from, int64_t bytes) {
  const auto first = load_raw<uint8_t, kBytes>(from), last = load_raw<uint8_t, kBytes>(from + bytes - kBytes);
  store_raw<uint8_t, kBytes>(to, first);
  store_raw<uint8_t, kBytes>(to + bytes - kBytes, last);
}

ONEHOP_INLINE void copy_row(char* to, const char* from, int64_t bytes) {
  if (bytes < kVectorBytes) {
    if (bytes >= 32) return copy_ends<32>(to, from, bytes);
    std::memcpy(to, from, static_cast<size_t>(bytes));
    return;
  }
  int64_t at = 0;
  for (; at + kVectorBytes <= bytes; at += kVectorBytes) {
    store_raw<uint8_t, kVectorBytes>(to + at, load_raw<uint8_t, kVectorBytes>(from + at));
  }
  // The last vector overlaps the one before it where the bytes are no multiple of it.
  at = bytes - kVectorBytes;
  store_raw<uint8_t, kVectorBytes>(to + at, load_raw<uint8_t, kVectorBytes>(from + at));
}

// The same of a row of whole vectors, past the caches.
ONEHOP_INLINE void copy_row_past_caches(char* to, const char* from, int64_t bytes) {
  constexpr int kLanes = kVectorBytes / 4;
  for (int64_t at = 0; at < bytes; at += kVectorBytes) {
    store_past_caches<float, kLanes>(reinterpret_cast<float*>(to + at), load_raw<float, kLanes>(from + at));
  }
}

// Whether an entry of an index is the number of a row. The entry is read before, once: another thread may write to it.
ONEHOP_INLINE bool is_row(const RowsArgs& args, int64_t entry) {
  return static_cast<uint64_t>(entry) < static_cast<uint64_t>(args.matrix_rows);
}

// Rows of kBytes to twice as many bytes; they are so short that many are read at a time without prefetching.
template <int kBytes, class Index>
ONEHOP_INLINE bool copy_short_rows(const RowsArgs& args, int64_t bytes, const Index* index, const char* from, char* to,
                                   int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    const int64_t entry = index[i];
    if (!is_row(args, entry)) return false;
    copy_ends<kBytes>(to + i * bytes, from + entry * args.stride, bytes);
  }
  return true;
}

template <class Index>
bool copy_rows(const RowsArgs& args, int64_t block, int64_t begin, int64_t end) {
  const auto* index = static_cast<const Index*>(args.index);
  const auto* from = static_cast<const char*>(args.matrix) + block * args.matrix_rows * args.stride;
  auto* to = static_cast<char*>(args.rows) + block * args.count * args.row_bytes;
  const int64_t bytes = args.row_bytes;
  if (bytes == 4) return copy_short_rows<4>(args, 4, index, from, to, begin, end);
  if (bytes == 8) return copy_short_rows<8>(args, 8, index, from, to, begin, end);
  if (bytes > 8 && bytes <= 16) return copy_short_rows<8>(args, bytes, index, from, to, begin, end);
  if (bytes > 16 && bytes <= 32) return copy_short_rows<16>(args, bytes, index, from, to, begin, end);
  const bool past =
      args.nontemporal && bytes % kVectorBytes == 0 && reinterpret_cast<uintptr_t>(to) % kVectorBytes == 0;
  bool in_range = true;
  for (int64_t i = begin; i < end; ++i) {
    const char* coming = from + static_cast<int64_t>(index[smaller(i + args.prefetch, end - 1)]) * args.stride;
    for (int64_t line = 0; line < bytes; line += kLineBytes) __builtin_prefetch(coming + line, 0, kKeepRows);
    const int64_t entry = index[i];
    in_range = is_row(args, entry);
    if (!in_range) break;
    const char* row = from + entry * args.stride;
    past ? copy_row_past_caches(to + i * bytes, row, bytes) : copy_row(to + i * bytes, row, bytes);
  }
  if (past) settle_stores();
  return in_range;
}

template <class T, int kLanes = kFullLanes<T>>
ONEHOP_INLINE void add_columns(T* to, const T* from, T weight, int64_t columns) {
  for (; columns >= kLanes; columns -= kLanes, to += kLanes, from += kLanes) {
    store<T, kLanes>(to, load<T, kLanes>(to) + weight * load<T, kLanes>(from));
  }
  if constexpr (kLanes > 1) add_columns<T, kLanes / 2>(to, from, weight, columns);
}

// Adds the rows that belong to one share of the matrix, in their order, so that the result does not depend on the
// number of shares. False if a number is not one of a row.
template <class T, class Index>
bool add_share(const RowsArgs& args, int64_t share, int64_t shares) {
  const auto* index = static_cast<const Index*>(args.index);
  const auto* sources = static_cast<const Index*>(args.sources);
  const auto* weights = static_cast<const T*>(args.weights);
  auto* to = static_cast<char*>(args.matrix);
  const auto* from = static_cast<const char*>(args.rows);
  const int64_t columns = args.row_bytes / static_cast<int64_t>(sizeof(T));
  for (int64_t i = 0; i < args.count; ++i) {
    const int64_t coming = index[smaller(i + args.prefetch, args.count - 1)];
    if (coming % shares == share) {
      for (int64_t line = 0; line < args.row_bytes; line += kLineBytes) {
        __builtin_prefetch(to + coming * args.stride + line, 1, 3);
      }
    }
    // Each is read once, because another thread may write to it.
    const int64_t entry = __atomic_load_n(index + i, __ATOMIC_RELAXED);
    if (!is_row(args, entry)) return false;
    if (entry % shares != share) continue;
    const int64_t source =
        sources == nullptr ? i : static_cast<int64_t>(__atomic_load_n(sources + i, __ATOMIC_RELAXED));
    if (static_cast<uint64_t>(source) >= static_cast<uint64_t>(args.sources_rows)) return false;
    add_columns<T>(reinterpret_cast<T*>(to + entry * args.stride),
                   reinterpret_cast<const T*>(from + source * args.row_bytes), weights == nullptr ? T{1} : weights[i],
                   columns);
  }
  return true;
}

// The arguments, and whether all numbers are of rows.
struct Checked {
  const RowsArgs& args;
  bool in_range = true;

  void note(bool is) {
    if (!is) __atomic_store_n(&in_range, false, __ATOMIC_RELAXED);
  }
};

template <class T>
bool add_rows_as(const RowsArgs& args) {
  Checked checked{args};
  parallel_for(
      args.threads, args.threads,
      [](void* opaque, int64_t task, int) {
        auto& c = *static_cast<Checked*>(opaque);
        c.note(c.args.wide_index ? add_share<T, int64_t>(c.args, task, c.args.threads)
                                 : add_share<T, int32_t>(c.args, task, c.args.threads));
      },
      &checked);
  return checked.in_range;
}

// Rows of one piece of work.
constexpr int64_t kRowsPerPiece = 1024;

}  // namespace

bool copy_rows(const RowsArgs& args) {
  struct Context : Checked {
    const int64_t pieces;
  } context{{args}, (args.count + kRowsPerPiece - 1) / kRowsPerPiece};
  parallel_for(
      args.blocks * context.pieces, args.threads,
      [](void* opaque, int64_t task, int) {
        auto& c = *static_cast<Context*>(opaque);
        const int64_t block = task / c.pieces, begin = task % c.pieces * kRowsPerPiece;
        const int64_t end = smaller(begin + kRowsPerPiece, c.args.count);
        c.note(c.args.wide_index ? copy_rows<int64_t>(c.args, block, begin, end)
                                 : copy_rows<int32_t>(c.args, block, begin, end));
      },
      &context);
  return context.in_range;
}

bool add_rows(const RowsArgs& args) {
  return args.dtype == DType::float64 ? add_rows_as<double>(args) : add_rows_as<float>(args);
}

}  // namespace ONEHOP_ISA
}  // namespace onehop
