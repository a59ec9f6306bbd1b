// What the near-rank machine's ranks and channels have done so far, window by window: when each is free, its busy time
// by phase, events.
#pragma once

#include <cstdint>
#include <vector>

#include "ndp.hpp"

namespace onehop::ndp {

enum What : int32_t {
  kAdjacency,
  kReduce,
  kWriteBack,
  kListing,
  kBundleRead,
  kBundleWrite,
  kOutputs,
  kFinals,
  kLists,
  kTiles
};

inline double larger(double a, double b) { return a > b ? a : b; }

struct Clock {
  const Windows& layer;
  WindowTimes& times;
  const int32_t ranks_per_channel;
  std::vector<double> rank_free;    // [ranks]
  std::vector<double> host_free;    // [channels]
  std::vector<double> window_rank;  // [ranks]: busy time inside the current window
  std::vector<double> window_host;  // [channels]

  Clock(const Windows& windows, WindowTimes& found)
      : layer(windows),
        times(found),
        ranks_per_channel(windows.ranks / windows.channels),
        rank_free(layer.ranks),
        host_free(layer.channels),
        window_rank(layer.ranks),
        window_host(layer.channels) {
    times.events = 0;
    times.total_ns = 0;
  }

  int32_t channel_of(int32_t rank) const { return rank / ranks_per_channel; }

  void event(What what, int64_t window, int32_t where, double begin, double end) {
    if (window >= layer.record || times.events == times.most_events || end <= begin) return;
    int32_t* named = times.event_what + 3 * times.events;
    named[0] = what, named[1] = static_cast<int32_t>(window), named[2] = where;
    times.event_time[2 * times.events] = begin, times.event_time[2 * times.events + 1] = end;
    ++times.events;
  }
  void rank_does(int32_t phase, int32_t rank, double ns) {
    times.rank_busy[5 * rank + phase] += ns;
    window_rank[rank] += ns;
  }
  void host_does(int32_t phase, int32_t channel, double ns) {
    times.channel_busy[5 * channel + phase] += ns;
    window_host[channel] += ns;
  }

  void close_window(int64_t window) {
    double end = 0, host = 0, rank = 0, sum = 0;
    for (int32_t c = 0; c < layer.channels; ++c) host = larger(host, window_host[c]), window_host[c] = 0;
    for (int32_t r = 0; r < layer.ranks; ++r) {
      end = larger(end, rank_free[r]);
      rank = larger(rank, window_rank[r]);
      sum += window_rank[r];
      window_rank[r] = 0;
    }
    double* out = times.window + 4 * window;
    out[0] = end, out[1] = host, out[2] = rank, out[3] = sum / layer.ranks;
    times.total_ns = larger(times.total_ns, end);
  }
};

}  // namespace onehop::ndp
