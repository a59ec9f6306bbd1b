// Messages: programs as Python makes them, and sweeps that run them over a graph.
#include "onehop/message.hpp"

#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <tuple>
#include <utility>
#include <vector>

#include "arguments.hpp"

namespace {

using Operands = std::vector<std::tuple<int, int64_t, int64_t>>;
using Steps = std::vector<std::tuple<int, int, int, int64_t, int64_t, double, double>>;
using Results = std::vector<std::tuple<int, int, int, int64_t, int64_t>>;
using Arrays = std::vector<std::tuple<Address, int64_t>>;

// A program, laid out for tiles of one size.
struct MessageCode {
  std::vector<onehop::MessageOperand> operands;
  std::vector<onehop::MessageStep> steps;
  std::vector<onehop::MessageResult> results;
  int64_t tile, memory, slot_width, total_width;

  MessageCode(const Operands& given_operands, const Steps& given_steps, const Results& given_results,
              int64_t tile_edges, int64_t memory_numbers, int64_t slot_numbers, int64_t total_numbers)
      : tile(tile_edges), memory(memory_numbers), slot_width(slot_numbers), total_width(total_numbers) {
    for (const auto& [of, width, place] : given_operands) {
      operands.push_back({static_cast<onehop::RowOf>(of), width, place});
    }
    for (const auto& [op, a, b, width, place, p, q] : given_steps) {
      steps.push_back({static_cast<onehop::MessageOp>(op), a, b, width, place, p, q});
    }
    for (const auto& [sink, value, other, width, offset] : given_results) {
      results.push_back({static_cast<onehop::Sink>(sink), value, other, width, offset});
    }
  }
};

std::vector<onehop::MessageArray> arrays_of(const Arrays& given) {
  std::vector<onehop::MessageArray> arrays;
  for (const auto& [address, stride] : given) arrays.push_back({at(address), stride});
  return arrays;
}

void message(const MessageCode& code, const onehop::Csr& csr, int dtype, int threads, int prefetch,
             int64_t edges_per_item, const Arrays& given_inputs, const Arrays& given_outputs) {
  const auto inputs = arrays_of(given_inputs), outputs = arrays_of(given_outputs);
  const nanobind::gil_scoped_release release;
  const onehop::WorkList& work = csr.work(edges_per_item);
  const auto type = static_cast<onehop::DType>(dtype);
  const auto slots = slots_for(work, code.slot_width * acc_bytes(type));
  const onehop::Block totals(onehop::message_groups(static_cast<int64_t>(work.items.size()), code.total_width) *
                             code.total_width * acc_bytes(type));
  const onehop::Block memory(threads * code.memory * acc_bytes(type));
  if (!totals || !memory) throw std::bad_alloc();
  onehop::kernels().message({
      .csr = &csr,
      .work = &work,
      .dtype = type,
      .threads = threads,
      .prefetch = prefetch,
      .tile = code.tile,
      .memory_width = code.memory,
      .slot_width = code.slot_width,
      .total_width = code.total_width,
      .operand_count = static_cast<int>(code.operands.size()),
      .step_count = static_cast<int>(code.steps.size()),
      .result_count = static_cast<int>(code.results.size()),
      .operands = code.operands.data(),
      .steps = code.steps.data(),
      .results = code.results.data(),
      .inputs = inputs.data(),
      .outputs = outputs.data(),
      .memory = memory.data(),
      .slots = slots.data(),
      .totals = totals.data(),
  });
}

}  // namespace

void bind_message(nanobind::module_& m) {
  nanobind::class_<MessageCode>(m, "MessageCode")
      .def(nanobind::init<const Operands&, const Steps&, const Results&, int64_t, int64_t, int64_t, int64_t>());
  m.def("message", &message);
}
