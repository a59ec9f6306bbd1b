// The near-rank machine's loops. Addresses come from onehop.machines.ndp, which has checked every array.
#include <nanobind/nanobind.h>
#include <nanobind/stl/tuple.h>

#include <new>
#include <tuple>

#include "../machines/ndp.hpp"

namespace nb = nanobind;
using namespace nb::literals;
namespace ndp = onehop::ndp;

namespace {

using Address = uintptr_t;  // of an array's first element; 0 = omitted
using Released = nb::call_guard<nb::gil_scoped_release>;

template <class T>
T* at(Address address) {
  return reinterpret_cast<T*>(address);
}

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
  m.def(
      "ndp_count",
      [](const ndp::Work& work, int64_t tile, int64_t block, int64_t entry_bytes, int64_t burst_bytes, Address pod,
         int32_t levels, Address edges, Address reads, Address row_bursts, Address touched, int64_t touched_stride,
         int threads) {
        need(ndp::count(work,
                        {tile, block, entry_bytes, burst_bytes, at<const int32_t>(pod), levels, at<int64_t>(edges),
                         at<int64_t>(reads), at<int64_t>(row_bursts), at<int64_t>(touched), touched_stride},
                        threads));
      },
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
  m.def(
      "ndp_aggregate",
      [](const ndp::Work& work, int32_t pod, Address slice, Address row_list, int64_t listed, Address x,
         int64_t x_stride, Address weight, Address out, int64_t out_stride, int threads) {
        need(ndp::aggregate(work,
                            {pod, at<const int64_t>(slice), at<const int64_t>(row_list), listed, at<const float>(x),
                             x_stride, at<const float>(weight), at<float>(out), out_stride},
                            threads));
      },
      Released());
  m.def(
      "ndp_windows",
      [](int64_t windows, int32_t ranks, int32_t channels, int32_t pod, int transfer, int order, int32_t lag,
         int64_t record, Address pieces, Address adjacency_ns, Address reads, Address edges, Address read_ns,
         Address unit_ns, double fill_ns, Address bundle_out_ns, Address bundle_in_ns, Address outputs_ns,
         Address reduce_ns, Address finals_ns, Address write_ns, double poll_ns, double again_ns, Address scan_ns,
         Address lists_ns, Address merge_ns, Address tiles_ns, Address rank_busy, Address channel_busy, Address window,
         Address event_what, Address event_time, int64_t most_events) {
        ndp::WindowTimes times{at<double>(rank_busy),
                               at<double>(channel_busy),
                               at<double>(window),
                               at<int32_t>(event_what),
                               at<double>(event_time),
                               most_events,
                               0,
                               0};
        need(ndp::run_windows({windows,
                               ranks,
                               channels,
                               pod,
                               static_cast<ndp::Transfer>(transfer),
                               static_cast<ndp::HostOrder>(order),
                               lag,
                               record,
                               at<const int64_t>(pieces),
                               at<const double>(adjacency_ns),
                               at<const double>(reads),
                               at<const double>(edges),
                               at<const double>(read_ns),
                               at<const double>(unit_ns),
                               fill_ns,
                               at<const double>(bundle_out_ns),
                               at<const double>(bundle_in_ns),
                               at<const double>(outputs_ns),
                               at<const double>(reduce_ns),
                               at<const double>(finals_ns),
                               at<const double>(write_ns),
                               poll_ns,
                               again_ns,
                               at<const double>(scan_ns),
                               at<const double>(lists_ns),
                               at<const double>(merge_ns),
                               at<const double>(tiles_ns)},
                              &times));
        return std::make_tuple(times.total_ns, times.events);
      },
      Released());
}
