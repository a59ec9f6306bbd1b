// The interpreter of messages: runs a program over tiles of edges, whose rows and temporaries stay in the first cache,
// and adds up, or writes, what comes out. One sweep of a backward pass is such a program too.
#include "onehop/message.hpp"

#include "message_reductions.hpp"
#include "tables.hpp"

namespace onehop {
inline namespace ONEHOP_ISA {
namespace {

// One item of work on one thread's tile.
template <class T>
class Tiles {
 public:
  Tiles(const MessageArgs& args, const WorkItem& item, T* memory, T* totals)
      : args_(args), item_(item), memory_(memory), totals_(totals), rowptr_(args.csr->rowptr_data()) {
    for (int i = 0; i < args.operand_count; ++i) {
      const MessageOperand& operand = args.operands[i];
      const T* data = static_cast<const T*>(args.inputs[i].data);
      Rows<T>& rows = values_[i];
      rows = {nullptr, pointers_[i], operand.width};
      if (operand.of == RowOf::matrix) rows.flat = data;
      if (operand.of != RowOf::fixed) continue;
      for (int64_t edge = 0; edge < kMostTileEdges; ++edge) pointers_[i][edge] = data;
      copy(i, args.tile);
    }
    for (int i = 0; i < args.step_count; ++i) {
      values_[args.operand_count + i] = {memory + args.steps[i].place, nullptr, args.steps[i].width};
    }
  }

  void run() {
    for (int64_t row = item_.row_begin; row < item_.row_end; ++row) {
      if (rowptr_[row] == rowptr_[row + 1]) clear(row);
    }
    int64_t row = item_.row_begin;
    for (int64_t e = item_.edge_begin; e < item_.edge_end; e += args_.tile) {
      const int64_t edges = smaller(args_.tile, item_.edge_end - e);
      for (int64_t i = 0; i < edges; ++i) {
        while (e + i >= rowptr_[row + 1]) ++row;
        rows_[i] = row;
      }
      gather(e, edges);
      for (int i = 0; i < args_.step_count; ++i) {
        run_step(args_.steps[i], values_, edges, memory_ + args_.steps[i].place);
      }
      for (int i = 0; i < args_.result_count; ++i) give(args_.results[i], args_.outputs[i], e, edges);
    }
  }

 private:
  void clear(int64_t row) const {
    for (int i = 0; i < args_.result_count; ++i) {
      const MessageResult& result = args_.results[i];
      if (!is_by_row(result.sink)) continue;
      T* to = static_cast<T*>(args_.outputs[i].data) + row * args_.outputs[i].stride;
      for (int64_t column = 0; column < result.width; ++column) to[column] = 0;
    }
  }

  // Copies an operand's rows side by side, if it is one of those.
  void copy(int at, int64_t edges) {
    const MessageOperand& operand = args_.operands[at];
    if (operand.place < 0) return;
    T* to = memory_ + operand.place;
    values_[at].flat = to;
    for (int64_t edge = 0; edge < edges; ++edge, to += operand.width) {
      for (int64_t column = 0; column < operand.width; ++column) to[column] = pointers_[at][edge][column];
    }
  }

  ONEHOP_INLINE static void ask_for(const T* row, int64_t bytes) {
    if (bytes == 0) return;
    const char* from = reinterpret_cast<const char*>(row);
    for (int64_t offset = 0; offset < bytes; offset += kLineBytes) __builtin_prefetch(from + offset, 0, kKeepRows);
    __builtin_prefetch(from + bytes - 1, 0, kKeepRows);
  }

  void gather(int64_t e, int64_t edges) {
    const int32_t* col = args_.csr->col_data() + e;
    const int ahead = args_.prefetch;
    for (int i = 0; i < args_.operand_count; ++i) {
      const MessageOperand& operand = args_.operands[i];
      if (operand.of == RowOf::fixed || operand.of == RowOf::matrix) continue;
      const T* data = static_cast<const T*>(args_.inputs[i].data);
      const int64_t stride = args_.inputs[i].stride, bytes = operand.width * static_cast<int64_t>(sizeof(T));
      const T** to = pointers_[i];
      if (operand.of == RowOf::row) {
        for (int64_t edge = 0; edge < edges; ++edge) to[edge] = data + rows_[edge] * stride;
      } else if (operand.of == RowOf::col) {
        for (int64_t edge = 0; edge < edges; ++edge) {
          to[edge] = data + col[edge] * stride;
          ask_for(data + col[edge + ahead] * stride, bytes);
        }
      } else {
        for (int64_t edge = 0; edge < edges; ++edge) {
          to[edge] = data + edge_number(*args_.csr, e + edge) * stride;
          const int64_t coming = e + edge + ahead;
          if (coming < args_.csr->edges) ask_for(data + edge_number(*args_.csr, coming) * stride, bytes);
        }
      }
      copy(i, edges);
    }
  }

  // Where the reduction of a row goes: into the result, or into a slot where the item has a part of the row only.
  T* target(const MessageResult& result, const MessageArray& out, int64_t row) const {
    int64_t slot = -1;
    if (row == item_.row_begin && item_.head_slot >= 0) {
      slot = item_.head_slot;
    } else if (row == item_.row_end - 1 && item_.tail_slot >= 0) {
      slot = item_.tail_slot;
    }
    if (slot < 0) return static_cast<T*>(out.data) + row * out.stride;
    return static_cast<T*>(args_.slots) + slot * args_.slot_width + result.offset;
  }

  void give(const MessageResult& result, const MessageArray& out, int64_t e, int64_t edges) const {
    const Rows<T>& value = values_[result.value];
    switch (result.sink) {
      case Sink::row_sum:
      case Sink::row_max:
      case Sink::row_min:
        for (int64_t begin = 0, end; begin < edges; begin = end) {
          const int64_t row = rows_[begin];
          for (end = begin + 1; end < edges && rows_[end] == row; ++end) {
          }
          const bool first = e + begin == larger(rowptr_[row], item_.edge_begin);
          reduce_rows(result.sink, value, begin, end, first, target(result, out, row));
        }
        return;
      case Sink::edge:
        for (int64_t edge = 0; edge < edges; ++edge) {
          T* to = static_cast<T*>(out.data) + edge_number(*args_.csr, e + edge) * out.stride;
          std::memcpy(to, value[edge], static_cast<size_t>(result.width) * sizeof(T));
        }
        return;
      case Sink::total:
        return reduce_rows<T, Sink::row_sum>(value, 0, edges, false, totals_ + result.offset);
      case Sink::outer:
        return add_outer(value, values_[result.other], edges, totals_ + result.offset);
    }
  }

  const MessageArgs& args_;
  const WorkItem& item_;
  T* memory_;
  T* totals_;
  const int64_t* rowptr_;
  Rows<T> values_[kMostMessageValues];
  const T* pointers_[kMostMessageOperands][kMostTileEdges];
  int64_t rows_[kMostTileEdges];
};

// Runs body(group, thread) for every group.
template <class Body>
void for_groups(int64_t groups, int threads, const Body& body) {
  parallel_for(
      groups, threads,
      [](void* opaque, int64_t group, int thread) { (*static_cast<const Body*>(opaque))(group, thread); },
      const_cast<Body*>(&body));
}

template <class T>
void run(const MessageArgs& args) {
  const WorkList& work = *args.work;
  const int64_t items = static_cast<int64_t>(work.items.size());
  auto *memory = static_cast<T*>(args.memory), *totals = static_cast<T*>(args.totals);
  // Rows side by side are computed up to a whole vector, and numbers that were never written may be slow to compute
  // with.
  std::memset(memory, 0, static_cast<size_t>(args.threads * args.memory_width) * sizeof(T));
  const int64_t groups = message_groups(items, args.total_width);
  std::memset(totals, 0, static_cast<size_t>(groups * args.total_width) * sizeof(T));
  for_groups(groups, args.threads, [&](int64_t group, int thread) {
    for (int64_t item = group * items / groups; item < (group + 1) * items / groups; ++item) {
      Tiles<T>(args, work.items.data()[item], memory + thread * args.memory_width, totals + group * args.total_width)
          .run();
    }
  });
  for_cut_rows(work, args.threads, [&](const CutRow& cut) {
    const T* slots = static_cast<const T*>(args.slots);
    for (int i = 0; i < args.result_count; ++i) {
      const MessageResult& result = args.results[i];
      if (!is_by_row(result.sink)) continue;
      T* to = static_cast<T*>(args.outputs[i].data) + cut.row * args.outputs[i].stride;
      for (int64_t slot = cut.slot_begin; slot < cut.slot_end; ++slot) {
        const Rows<T> piece{slots + slot * args.slot_width + result.offset, nullptr, result.width};
        reduce_rows(result.sink, piece, 0, 1, slot == cut.slot_begin, to);
      }
    }
  });
  for (int i = 0; i < args.result_count; ++i) {
    const MessageResult& result = args.results[i];
    if (result.sink != Sink::total && result.sink != Sink::outer) continue;
    T* to = static_cast<T*>(args.outputs[i].data);
    for (int64_t column = 0; column < result.width; ++column) to[column] = 0;
    for (int64_t group = 0; group < groups; ++group) {
      const T* part = totals + group * args.total_width + result.offset;
      for (int64_t column = 0; column < result.width; ++column) to[column] += part[column];
    }
  }
}

}  // namespace

void message(const MessageArgs& args) {
  if (args.dtype == DType::float64) return run<double>(args);
  run<float>(args);
}

}  // namespace ONEHOP_ISA
}  // namespace onehop
