// The recurrence over execution windows: modules, channels and buffers wait for one another.
#include <cstring>
#include <limits>
#include <memory>
#include <new>

#include "ndp.hpp"

namespace onehop::ndp {
namespace {

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

double larger(double a, double b) { return a > b ? a : b; }

struct State {
  const Windows& layer;
  WindowTimes& times;
  int32_t ranks_per_channel;
  double* rank_free;     // [ranks]
  double* reduced;       // [lag + 1, ranks]: end of the reduction of recent windows
  double* posted;        // [lag + 1, channels]: end of their finals
  double* host_free;     // [channels]
  double* bundle_ready;  // [channels]: the bundle that the channel has read last
  double* buffer_free;   // [ranks (a pod's first in a channel), 2]
  double* window_rank;   // [ranks]: busy time inside the current window
  double* window_host;   // [channels]
  int64_t* sent;         // [pods]: bundles so far, which names the buffer in turn
  double* scanned;       // [channels]: when their ranks have listed the targets of window `listing`
  double* listed;        // [channels]: end of the tile list that was written last
  int64_t* parts_done;   // [channels]: of the host's work on the outputs of window `posting`
  int64_t* unsent;       // [channels]: 1 until the tile list of window `listing` is written
  int64_t listing;
  double merged;  // when that list is there
  int64_t posting, output_parts, final_parts;
  int32_t reading;       // channels that have not read all of its outputs
  double outputs_begin;  // when the first channel began
  double outputs_end;    // when the channels have read what they have, and at last the host has added it up

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

  // Rank `rank` works on the bundle of rank `source`, from `ready` on.
  void reduce(int64_t window, double share, int32_t rank, int32_t source, double ready, double& free) {
    const int64_t at = window * layer.ranks + source;
    if (layer.edges[at] == 0) {
      free = larger(free, ready);
      return;
    }
    const double read = share * layer.reads[at] * layer.read_ns[rank];
    const double unit = share * layer.edges[at] * layer.unit_ns[rank];
    const double ns = larger(read, unit) + (layer.read_ns[rank] > 0 ? layer.fill_ns : 0);
    const double begin = larger(free, ready);
    free = begin + ns;
    rank_does(1, rank, ns);
    if (unit > read) times.rank_busy[5 * rank + 4] += unit - read;
    event(kReduce, window, rank, begin, free);
  }

  // The bundles of all pods over the host. Channels that share pods form a group. In each round every channel of a
  // group reads one bundle, then all of these are written on every one of them. Groups move their bundles side by side.
  void through_host(int64_t window, int64_t piece, const double* ready) {
    const int32_t pod = layer.pod, span = pod > ranks_per_channel ? pod / ranks_per_channel : 1;
    const int32_t in_channel = pod / span, group = span * ranks_per_channel;
    const double share = 1.0 / static_cast<double>(layer.pieces[window]);
    int64_t step = piece * group;
    if (in_parts() && piece == 0 && window > 0) {
      begin_parts(window - 1, layer.pieces[window] * group);
    }
    for (int32_t round = 0; round < in_channel; ++round) {
      for (int32_t p = 0; p < ranks_per_channel / in_channel; ++p) {
        for (int32_t begin = p * pod; begin < layer.ranks; begin += group) {
          for (int32_t c = 0; c < span; ++c) {
            read_bundle(window, share, begin + c * in_channel + round, ready);
          }
        }
        for (int32_t c = 0; c < span; ++c, ++step) {
          for (int32_t begin = p * pod; begin < layer.ranks; begin += group) {
            write_bundle(window, share, begin, span, begin + c * in_channel + round);
          }
          if (in_parts()) keep_up(step + 1);
          if (step == 0) read_lists(window + 1);
          send_tiles(false);
        }
      }
    }
  }

  bool lists(int64_t window) const {
    return layer.scan_ns != nullptr && window < layer.windows && layer.tiles_ns[window] > 0;
  }

  // Every rank lists the targets of a window.
  void scan(int64_t window) {
    if (!lists(window)) return;
    memset(scanned, 0, static_cast<size_t>(layer.channels) * sizeof(double));
    for (int32_t rank = 0; rank < layer.ranks; ++rank) {
      const double ns = layer.scan_ns[window * layer.ranks + rank], begin = rank_free[rank];
      event(kListing, window, rank, begin, begin + ns);
      rank_does(3, rank, ns);
      rank_free[rank] = begin + ns;
      scanned[channel_of(rank)] = larger(scanned[channel_of(rank)], rank_free[rank]);
    }
  }

  // The host reads these lists and begins to merge them.
  void read_lists(int64_t window) {
    if (!lists(window)) return;
    listing = window, merged = 0;
    for (int32_t c = 0; c < layer.channels; ++c) {
      const double ns = layer.lists_ns[window * layer.channels + c], begin = larger(host_free[c], scanned[c]);
      host_free[c] = begin + ns;
      host_does(4, c, ns);
      event(kLists, window, c, begin, begin + ns);
      merged = larger(merged, host_free[c]);
      unsent[c] = 1;
    }
    merged += layer.merge_ns[window];
  }

  // The tile list goes out where a channel is at leisure after the merge, or at last waits for it.
  void send_tiles(bool wait) {
    for (int32_t c = 0; c < layer.channels; ++c) send_tiles(c, wait);
  }
  void send_tiles(int32_t channel, bool wait) {
    if (unsent[channel] == 0 || (!wait && host_free[channel] < merged)) return;
    const double ns = layer.tiles_ns[listing], begin = larger(host_free[channel], merged);
    host_free[channel] = listed[channel] = begin + ns;
    host_does(4, channel, ns);
    event(kTiles, listing, channel, begin, begin + ns);
    unsent[channel] = 0;
  }

  void read_bundle(int64_t window, double share, int32_t source, const double* ready) {
    const int32_t channel = channel_of(source);
    const double ns = share * layer.bundle_out_ns[window * layer.ranks + source];
    if (layer.order == HostOrder::early) begin_early(channel, ready[source]);
    const double from = larger(host_free[channel], ready[source]) + (ns > 0 ? layer.poll_ns : 0);
    host_free[channel] = bundle_ready[channel] = from + ns;
    host_does(0, channel, ns);
    event(kBundleRead, window, channel, from, from + ns);
  }

  // Writes a bundle on the `span` channels of the pod that begins with rank `begin`; its ranks work on it.
  void write_bundle(int64_t window, double share, int32_t begin, int32_t span, int32_t source) {
    const int32_t in_channel = layer.pod / span;
    const double ns = share * layer.bundle_in_ns[window * layer.ranks + source];
    const int64_t slot = sent[begin / layer.pod]++ % 2;
    for (int32_t to = 0; to < span; ++to) {
      const int32_t there = begin + to * in_channel, channel = channel_of(there);
      double* free = buffer_free + 2 * there + slot;
      const double from = larger(larger(host_free[channel], bundle_ready[channel_of(source)]), *free);
      host_free[channel] = from + ns;
      host_does(1, channel, ns);
      event(kBundleWrite, window, channel, from, from + ns);
      for (int32_t rank = there; rank < there + in_channel; ++rank) {
        reduce(window, share, rank, source, host_free[channel], rank_free[rank]);
        *free = larger(*free, rank_free[rank]);
      }
    }
  }

  // Every rank reads its adjacency of a piece of a window.
  void read_adjacency(int64_t window, double* ready) {
    const double share = 1.0 / static_cast<double>(layer.pieces[window]);
    for (int32_t rank = 0; rank < layer.ranks; ++rank) {
      const double ns = share * layer.adjacency_ns[window * layer.ranks + rank];
      const double begin = larger(rank_free[rank], listed[channel_of(rank)]);
      event(kAdjacency, window, rank, begin, begin + ns);
      rank_does(0, rank, ns);
      ready[rank] = rank_free[rank] = begin + ns;
    }
  }

  void work_on(int64_t window, double* ready) {
    const int64_t pieces = layer.pieces[window];
    const double share = 1.0 / static_cast<double>(pieces);
    for (int64_t piece = 0; piece < pieces; ++piece) {
      const bool is_read = piece == 0 && window > 0 && layer.order != HostOrder::after;
      if (!is_read) read_adjacency(window, ready);
      if (piece == 0) {
        scan(window + 1);
        if (layer.transfer != Transfer::host) read_lists(window + 1);
      }
      if (layer.transfer == Transfer::none) {
        for (int32_t rank = 0; rank < layer.ranks; ++rank) {
          reduce(window, share, rank, rank, ready[rank], rank_free[rank]);
        }
        continue;
      }
      if (layer.transfer == Transfer::link) {
        for (int32_t first = 0; first < layer.ranks; first += layer.pod) {
          double all = 0;
          for (int32_t rank = first; rank < first + layer.pod; ++rank) all = larger(all, ready[rank]);
          for (int32_t rank = first; rank < first + layer.pod; ++rank) {
            for (int32_t source = first; source < first + layer.pod; ++source) {
              reduce(window, share, rank, source, all, rank_free[rank]);
            }
          }
        }
        continue;
      }
      // A pod's bundles go out once all of its ranks have read theirs.
      for (int32_t first = 0; first < layer.ranks; first += layer.pod) {
        double all = 0;
        for (int32_t rank = first; rank < first + layer.pod; ++rank) all = larger(all, ready[rank]);
        for (int32_t rank = first; rank < first + layer.pod; ++rank) ready[rank] = all;
      }
      through_host(window, piece, ready);
    }
    memcpy(reduced + window % (layer.lag + 1) * layer.ranks, rank_free,
           static_cast<size_t>(layer.ranks) * sizeof(double));
  }

  bool in_parts() const { return layer.order == HostOrder::between || layer.order == HostOrder::early; }

  // The host's work on the outputs of a window in one go.
  void post(int64_t window) {
    begin_post(window, 1, 1);
    finish_post();
  }

  // The work on a window's outputs is about to begin: on every channel in parts, `outputs` that read outputs and then
  // `finals` that write finals.
  void begin_post(int64_t window, int64_t outputs, int64_t finals) {
    posting = window, output_parts = outputs, final_parts = finals, reading = layer.channels;
    outputs_begin = std::numeric_limits<double>::infinity(), outputs_end = 0;
    memset(parts_done, 0, static_cast<size_t>(layer.channels) * sizeof(int64_t));
  }

  // As many parts as the next window has bundles, for each kind in proportion to its time.
  void begin_parts(int64_t window, int64_t steps) {
    double outputs = 0, finals = 0;
    for (int32_t c = 0; c < layer.channels; ++c) {
      outputs += layer.outputs_ns[window * layer.channels + c];
      finals += layer.finals_ns[window * layer.channels + c];
    }
    const double both = outputs + finals;
    const int64_t first = both > 0 ? static_cast<int64_t>(static_cast<double>(steps) * outputs / both + 0.5) : 1;
    const int64_t of_outputs = first < 1 ? 1 : first < steps ? first : steps - 1;
    begin_post(window, of_outputs, steps - of_outputs);
  }

  // Finals need every channel's outputs, and the host's own work on them.
  bool has_part(int32_t channel) const {
    if (parts_done[channel] < output_parts) return true;
    return reading == 0 && parts_done[channel] < output_parts + final_parts;
  }

  void do_part(int32_t channel) {
    send_tiles(channel, false);
    const int64_t part = parts_done[channel]++, at = posting * layer.channels + channel;
    if (part >= output_parts) {
      const double begin = larger(host_free[channel], outputs_end);
      const double ns = part_of(layer.finals_ns[at], part - output_parts, final_parts);
      host_free[channel] = posted[posting % (layer.lag + 1) * layer.channels + channel] = begin + ns;
      host_does(3, channel, ns);
      event(kFinals, posting, channel, begin, begin + ns);
      return;
    }
    double begin = host_free[channel];
    if (part == 0) {
      const double* done = reduced + posting % (layer.lag + 1) * layer.ranks;
      for (int32_t r = channel * ranks_per_channel; r < (channel + 1) * ranks_per_channel; ++r) {
        begin = larger(begin, done[r]);
      }
      begin += layer.poll_ns;
      outputs_begin = begin < outputs_begin ? begin : outputs_begin;
    }
    const double ns = part_of(layer.outputs_ns[at], part, output_parts);
    host_free[channel] = begin + ns;
    host_does(2, channel, ns);
    event(kOutputs, posting, channel, begin, begin + ns);
    outputs_end = larger(outputs_end, host_free[channel]);
    if (part + 1 == output_parts && --reading == 0) {
      outputs_end = larger(outputs_end, outputs_begin + layer.reduce_ns[posting]);
    }
  }

  // What the channel does until the ranks have read a bundle, at `until`: parts that it can begin before.
  void begin_early(int32_t channel, double until) {
    while (has_part(channel)) {
      const bool is_final = parts_done[channel] >= output_parts;
      if ((is_final ? larger(host_free[channel], outputs_end) : host_free[channel]) >= until) return;
      do_part(channel);
    }
  }

  // No channel is behind: as many parts as bundles, where they can be done.
  void keep_up(int64_t bundles) {
    for (int32_t c = 0; c < layer.channels; ++c) {
      while (parts_done[c] < bundles && has_part(c)) do_part(c);
    }
  }

  void finish_post() {
    for (int kind = 0; kind < 2; ++kind) {
      for (int32_t c = 0; c < layer.channels; ++c) {
        while (has_part(c)) do_part(c);
      }
    }
  }

  double part_of(double whole, int64_t part, int64_t parts) const {
    return whole / static_cast<double>(parts) + (part > 0 && whole > 0 ? layer.again_ns : 0);
  }

  void write_back(int64_t window) {
    const double* end = posted + window % (layer.lag + 1) * layer.channels;
    for (int32_t rank = 0; rank < layer.ranks; ++rank) {
      const double ns = layer.write_ns[window * layer.ranks + rank];
      const double begin = larger(rank_free[rank], end[channel_of(rank)]);
      rank_free[rank] = begin + ns;
      rank_does(2, rank, ns);
      event(kWriteBack, window, rank, begin, rank_free[rank]);
    }
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

}  // namespace

bool run_windows(const Windows& layer, WindowTimes* times) {
  const int64_t ranks = layer.ranks, channels = layer.channels, kept = layer.lag + 1;
  const int64_t doubles = ranks * (1 + kept + 2 + 1 + 1) + channels * (kept + 5);
  const std::unique_ptr<double[]> memory(new (std::nothrow) double[doubles]());
  const std::unique_ptr<int64_t[]> sent(new (std::nothrow) int64_t[ranks + 2 * channels]());
  if (memory == nullptr || sent == nullptr) return false;
  double* next = memory.get();
  const auto take = [&next](int64_t count) { return next += count, next - count; };
  State state{layer,
              *times,
              layer.ranks / layer.channels,
              take(ranks),
              take(kept * ranks),
              take(kept * channels),
              take(channels),
              take(channels),
              take(2 * ranks),
              take(ranks),
              take(channels),
              sent.get(),
              take(channels),
              take(channels),
              sent.get() + ranks,
              sent.get() + ranks + channels,
              0,
              0,
              0,
              0,
              0,
              0,
              0,
              0};
  double* ready = take(ranks);
  times->events = 0;
  times->total_ns = 0;
  state.scan(0);
  state.read_lists(0);
  state.send_tiles(true);
  for (int64_t window = 0; window < layer.windows; ++window) {
    state.work_on(window, ready);
    if (window > 0) {
      if (state.in_parts()) {
        state.finish_post();
      } else {
        state.post(window - 1);
      }
    }
    state.send_tiles(true);
    if (layer.order != HostOrder::after && window + 1 < layer.windows) state.read_adjacency(window + 1, ready);
    if (window >= layer.lag) state.write_back(window - layer.lag);
    state.close_window(window);
  }
  if (layer.windows == 0) return true;
  state.post(layer.windows - 1);
  for (int64_t window = layer.windows - layer.lag; window < layer.windows; ++window) {
    if (window >= 0) state.write_back(window);
  }
  // What is left to drain belongs to the last window.
  double* last = times->window + 4 * (layer.windows - 1);
  double before[3] = {last[1], last[2], last[3]};
  state.close_window(layer.windows - 1);
  for (int i = 0; i < 3; ++i) last[i + 1] += before[i];
  return true;
}

}  // namespace onehop::ndp
