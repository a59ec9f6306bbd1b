// The recurrence over execution windows: modules, channels and buffers wait for one another.
#include <algorithm>
#include <new>
#include <vector>

#include "ndp_clock.hpp"
#include "ndp_host.hpp"

namespace onehop::ndp {
namespace {

// The ranks' work on windows, and their bundles over the host.
struct Ranks {
  Clock& clock;
  TileLists& lists;
  Outputs& outputs;
  const Windows& layer;
  std::vector<double> ready;         // [ranks]: end of the adjacency of the current piece
  std::vector<double> bundle_ready;  // [channels]: the bundle that the channel has read last
  std::vector<double> buffer_free;   // [ranks (a pod's first in a channel), 2]
  std::vector<int64_t> sent;         // [pods]: bundles so far, which names the buffer in turn

  Ranks(Clock& shared, TileLists& tiles, Outputs& results)
      : clock(shared),
        lists(tiles),
        outputs(results),
        layer(shared.layer),
        ready(layer.ranks),
        bundle_ready(layer.channels),
        buffer_free(2 * static_cast<size_t>(layer.ranks)),
        sent(layer.ranks / layer.pod) {}

  bool in_parts() const { return layer.order == HostOrder::between || layer.order == HostOrder::early; }

  // Rank `rank` works on the bundle of rank `source`, from `from` on.
  void reduce(int64_t window, double share, int32_t rank, int32_t source, double from) {
    double& free = clock.rank_free[rank];
    const int64_t at = window * layer.ranks + source;
    if (layer.edges[at] == 0) {
      free = larger(free, from);
      return;
    }
    const double read = share * layer.reads[at] * layer.read_ns[rank];
    const double unit = share * layer.edges[at] * layer.unit_ns[rank];
    const double ns = larger(read, unit) + (layer.read_ns[rank] > 0 ? layer.fill_ns : 0);
    const double begin = larger(free, from);
    free = begin + ns;
    clock.rank_does(1, rank, ns);
    if (unit > read) clock.times.rank_busy[5 * rank + 4] += unit - read;
    clock.event(kReduce, window, rank, begin, free);
  }

  // The bundles of all pods over the host. Channels that share pods form a group. In each round every channel of a
  // group reads one bundle, then all of these are written on every one of them. Groups move their bundles side by side.
  void through_host(int64_t window, int64_t piece) {
    const int32_t per_channel = clock.ranks_per_channel;
    const int32_t pod = layer.pod, span = pod > per_channel ? pod / per_channel : 1;
    const int32_t in_channel = pod / span, group = span * per_channel;
    const double share = 1.0 / static_cast<double>(layer.pieces[window]);
    int64_t step = piece * group;
    if (in_parts() && piece == 0 && window > 0) {
      outputs.begin_parts(window - 1, layer.pieces[window] * group);
    }
    for (int32_t round = 0; round < in_channel; ++round) {
      for (int32_t p = 0; p < per_channel / in_channel; ++p) {
        for (int32_t begin = p * pod; begin < layer.ranks; begin += group) {
          for (int32_t c = 0; c < span; ++c) read_bundle(window, share, begin + c * in_channel + round);
        }
        for (int32_t c = 0; c < span; ++c, ++step) {
          for (int32_t begin = p * pod; begin < layer.ranks; begin += group) {
            write_bundle(window, share, begin, span, begin + c * in_channel + round);
          }
          if (in_parts()) outputs.keep_up(step + 1);
          if (step == 0) lists.read(window + 1);
          lists.send(false);
        }
      }
    }
  }

  void read_bundle(int64_t window, double share, int32_t source) {
    const int32_t channel = clock.channel_of(source);
    const double ns = share * layer.bundle_out_ns[window * layer.ranks + source];
    if (layer.order == HostOrder::early) outputs.begin_early(channel, ready[source]);
    const double from = larger(clock.host_free[channel], ready[source]) + (ns > 0 ? layer.poll_ns : 0);
    clock.host_free[channel] = bundle_ready[channel] = from + ns;
    clock.host_does(0, channel, ns);
    clock.event(kBundleRead, window, channel, from, from + ns);
  }

  // Writes a bundle on the `span` channels of the pod that begins with rank `begin`; its ranks work on it.
  void write_bundle(int64_t window, double share, int32_t begin, int32_t span, int32_t source) {
    const int32_t in_channel = layer.pod / span;
    const double ns = share * layer.bundle_in_ns[window * layer.ranks + source];
    const int64_t slot = sent[begin / layer.pod]++ % 2;
    for (int32_t to = 0; to < span; ++to) {
      const int32_t there = begin + to * in_channel, channel = clock.channel_of(there);
      double& free = buffer_free[2 * there + slot];
      const double from = larger(larger(clock.host_free[channel], bundle_ready[clock.channel_of(source)]), free);
      clock.host_free[channel] = from + ns;
      clock.host_does(1, channel, ns);
      clock.event(kBundleWrite, window, channel, from, from + ns);
      for (int32_t rank = there; rank < there + in_channel; ++rank) {
        reduce(window, share, rank, source, clock.host_free[channel]);
        free = larger(free, clock.rank_free[rank]);
      }
    }
  }

  // Every rank reads its adjacency of a piece of a window.
  void read_adjacency(int64_t window) {
    const double share = 1.0 / static_cast<double>(layer.pieces[window]);
    for (int32_t rank = 0; rank < layer.ranks; ++rank) {
      const double ns = share * layer.adjacency_ns[window * layer.ranks + rank];
      const double begin = larger(clock.rank_free[rank], lists.listed[clock.channel_of(rank)]);
      clock.event(kAdjacency, window, rank, begin, begin + ns);
      clock.rank_does(0, rank, ns);
      ready[rank] = clock.rank_free[rank] = begin + ns;
    }
  }

  // A pod's bundles are passed on once all of its ranks have read theirs.
  void wait_for_pods() {
    for (int32_t first = 0; first < layer.ranks; first += layer.pod) {
      double all = 0;
      for (int32_t rank = first; rank < first + layer.pod; ++rank) all = larger(all, ready[rank]);
      for (int32_t rank = first; rank < first + layer.pod; ++rank) ready[rank] = all;
    }
  }

  void work_on(int64_t window) {
    const int64_t pieces = layer.pieces[window];
    const double share = 1.0 / static_cast<double>(pieces);
    for (int64_t piece = 0; piece < pieces; ++piece) {
      const bool is_read = piece == 0 && window > 0 && layer.order != HostOrder::after;
      if (!is_read) read_adjacency(window);
      if (piece == 0) {
        lists.scan(window + 1);
        if (layer.transfer != Transfer::host) lists.read(window + 1);
      }
      if (layer.transfer == Transfer::none) {
        for (int32_t rank = 0; rank < layer.ranks; ++rank) reduce(window, share, rank, rank, ready[rank]);
        continue;
      }
      wait_for_pods();
      if (layer.transfer == Transfer::host) {
        through_host(window, piece);
        continue;
      }
      for (int32_t rank = 0; rank < layer.ranks; ++rank) {
        const int32_t first = rank / layer.pod * layer.pod;
        for (int32_t source = first; source < first + layer.pod; ++source) {
          reduce(window, share, rank, source, ready[rank]);
        }
      }
    }
    std::copy(clock.rank_free.begin(), clock.rank_free.end(), outputs.reduced_in(window));
  }

  void write_back(int64_t window) {
    const double* end = outputs.posted_in(window);
    for (int32_t rank = 0; rank < layer.ranks; ++rank) {
      const double ns = layer.write_ns[window * layer.ranks + rank];
      const double begin = larger(clock.rank_free[rank], end[clock.channel_of(rank)]);
      clock.rank_free[rank] = begin + ns;
      clock.rank_does(2, rank, ns);
      clock.event(kWriteBack, window, rank, begin, clock.rank_free[rank]);
    }
  }
};

void run(const Windows& layer, WindowTimes& times) {
  Clock clock(layer, times);
  TileLists lists(clock);
  Outputs outputs(clock, lists);
  Ranks ranks(clock, lists, outputs);
  lists.scan(0);
  lists.read(0);
  lists.send(true);
  for (int64_t window = 0; window < layer.windows; ++window) {
    ranks.work_on(window);
    if (window > 0) {
      if (ranks.in_parts()) {
        outputs.finish();
      } else {
        outputs.all(window - 1);
      }
    }
    lists.send(true);
    if (layer.order != HostOrder::after && window + 1 < layer.windows) ranks.read_adjacency(window + 1);
    if (window >= layer.lag) ranks.write_back(window - layer.lag);
    clock.close_window(window);
  }
  if (layer.windows == 0) return;
  outputs.all(layer.windows - 1);
  for (int64_t window = layer.windows - layer.lag; window < layer.windows; ++window) {
    if (window >= 0) ranks.write_back(window);
  }
  // What is left to drain belongs to the last window.
  double* last = times.window + 4 * (layer.windows - 1);
  const double before[3] = {last[1], last[2], last[3]};
  clock.close_window(layer.windows - 1);
  for (int i = 0; i < 3; ++i) last[i + 1] += before[i];
}

}  // namespace

bool run_windows(const Windows& layer, WindowTimes* times) {
  try {
    run(layer, *times);
  } catch (const std::bad_alloc&) {
    return false;
  }
  return true;
}

}  // namespace onehop::ndp
