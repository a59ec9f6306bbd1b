// The near-rank machine's loops. Addresses come from onehop.machines.ndp, which has checked every array.
#include <nanobind/nanobind.h>

#include <new>

#include "../machines/ndp.hpp"
#include "calls.hpp"

namespace nb = nanobind;
using namespace nb::literals;
namespace ndp = onehop::ndp;

namespace {

void need(bool done) {
  if (!done) throw std::bad_alloc();
}

}  // namespace

void bind_ndp(nb::module_& m) {
  nb::class_<ndp::Work>(m, "NdpWork")
      .def("__init__", [](ndp::Work* self, Address rowptr, Address col, Address order, int64_t rows, int64_t cols,
                          Address owner, int32_t ranks) {
        new (self) ndp::Work{at<const int64_t>(rowptr),
                             at<const int32_t>(col),
                             at<const int32_t>(order),
                             rows,
                             cols,
                             at<const uint8_t>(owner),
                             ranks};
      });
  Call<ndp::Counts>(m, "NdpCounts")
      .field<&ndp::Counts::tile>("tile")
      .field<&ndp::Counts::block>("block")
      .field<&ndp::Counts::entry_bytes>("entry_bytes")
      .field<&ndp::Counts::burst_bytes>("burst_bytes")
      .field<&ndp::Counts::pod>("pod")
      .field<&ndp::Counts::levels>("levels")
      .field<&ndp::Counts::edges>("edges")
      .field<&ndp::Counts::reads>("reads")
      .field<&ndp::Counts::row_bursts>("row_bursts")
      .field<&ndp::Counts::touched>("touched")
      .field<&ndp::Counts::touched_stride>("touched_stride");
  m.def(
      "ndp_count",
      [](const ndp::Work& work, const ndp::Counts& counts, int threads) { need(ndp::count(work, counts, threads)); },
      Released());
  m.def(
      "ndp_retile",
      [](const ndp::Work& work, int merge, int64_t batch, Address rows, Address edges, Address order) {
        need(ndp::retile(work, static_cast<ndp::Merge>(merge), {batch, at<int64_t>(rows), at<int64_t>(edges)},
                         at<int32_t>(order)));
      },
      Released());
  m.def(
      "ndp_cache_misses",
      [](const ndp::Work& work, int64_t entries, int32_t ways) { return ndp::cache_misses(work, entries, ways); },
      Released());
  Call<ndp::Aggregate>(m, "NdpAggregate")
      .field<&ndp::Aggregate::pod>("pod")
      .field<&ndp::Aggregate::slice>("slice")
      .field<&ndp::Aggregate::row_list>("row_list")
      .field<&ndp::Aggregate::listed>("listed")
      .field<&ndp::Aggregate::x>("x")
      .field<&ndp::Aggregate::x_stride>("x_stride")
      .field<&ndp::Aggregate::weight>("weight")
      .field<&ndp::Aggregate::out>("out")
      .field<&ndp::Aggregate::out_stride>("out_stride");
  m.def(
      "ndp_aggregate",
      [](const ndp::Work& work, const ndp::Aggregate& args, int threads) { need(ndp::aggregate(work, args, threads)); },
      Released());
  Call<ndp::Windows>(m, "NdpWindows")
      .field<&ndp::Windows::windows>("windows")
      .field<&ndp::Windows::ranks>("ranks")
      .field<&ndp::Windows::channels>("channels")
      .field<&ndp::Windows::pod>("pod")
      .field<&ndp::Windows::transfer>("transfer")
      .field<&ndp::Windows::order>("order")
      .field<&ndp::Windows::lag>("lag")
      .field<&ndp::Windows::record>("record")
      .field<&ndp::Windows::pieces>("pieces")
      .field<&ndp::Windows::adjacency_ns>("adjacency_ns")
      .field<&ndp::Windows::reads>("reads")
      .field<&ndp::Windows::edges>("edges")
      .field<&ndp::Windows::read_ns>("read_ns")
      .field<&ndp::Windows::unit_ns>("unit_ns")
      .field<&ndp::Windows::fill_ns>("fill_ns")
      .field<&ndp::Windows::bundle_out_ns>("bundle_out_ns")
      .field<&ndp::Windows::bundle_in_ns>("bundle_in_ns")
      .field<&ndp::Windows::outputs_ns>("outputs_ns")
      .field<&ndp::Windows::reduce_ns>("reduce_ns")
      .field<&ndp::Windows::finals_ns>("finals_ns")
      .field<&ndp::Windows::write_ns>("write_ns")
      .field<&ndp::Windows::poll_ns>("poll_ns")
      .field<&ndp::Windows::again_ns>("again_ns")
      .field<&ndp::Windows::scan_ns>("scan_ns")
      .field<&ndp::Windows::lists_ns>("lists_ns")
      .field<&ndp::Windows::merge_ns>("merge_ns")
      .field<&ndp::Windows::tiles_ns>("tiles_ns");
  Call<ndp::WindowTimes>(m, "NdpWindowTimes")
      .field<&ndp::WindowTimes::rank_busy>("rank_busy")
      .field<&ndp::WindowTimes::channel_busy>("channel_busy")
      .field<&ndp::WindowTimes::window>("window")
      .field<&ndp::WindowTimes::event_what>("event_what")
      .field<&ndp::WindowTimes::event_time>("event_time")
      .field<&ndp::WindowTimes::most_events>("most_events")
      .field<&ndp::WindowTimes::events>("events")
      .field<&ndp::WindowTimes::total_ns>("total_ns");
  m.def(
      "ndp_windows", [](const ndp::Windows& layer, ndp::WindowTimes& times) { need(ndp::run_windows(layer, &times)); },
      Released());
}
