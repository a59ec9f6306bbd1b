// The host's work beside bundles: tile lists before a window, outputs and finals after it.
#pragma once

#include <algorithm>
#include <limits>
#include <vector>

#include "ndp_clock.hpp"

namespace onehop::ndp {

// Re-tiling: ranks list the targets of a window while the one before is worked on, the host merges the lists.
struct TileLists {
  Clock& clock;
  const Windows& layer;
  std::vector<double> scanned;  // [channels]: when their ranks have listed the targets of window `listing`
  std::vector<double> listed;   // [channels]: end of the tile list that was written last
  std::vector<char> unsent;     // [channels]: 1 until the tile list of window `listing` is written
  int64_t listing = 0;
  double merged = 0;  // when that list is there

  explicit TileLists(Clock& shared)
      : clock(shared), layer(shared.layer), scanned(layer.channels), listed(layer.channels), unsent(layer.channels) {}

  bool has(int64_t window) const {
    return layer.scan_ns != nullptr && window < layer.windows && layer.tiles_ns[window] > 0;
  }

  // Every rank lists the targets of a window.
  void scan(int64_t window) {
    if (!has(window)) return;
    std::fill(scanned.begin(), scanned.end(), 0.0);
    for (int32_t rank = 0; rank < layer.ranks; ++rank) {
      const double ns = layer.scan_ns[window * layer.ranks + rank], begin = clock.rank_free[rank];
      clock.event(kListing, window, rank, begin, begin + ns);
      clock.rank_does(3, rank, ns);
      clock.rank_free[rank] = begin + ns;
      double& end = scanned[clock.channel_of(rank)];
      end = larger(end, clock.rank_free[rank]);
    }
  }

  // The host reads these lists and begins to merge them.
  void read(int64_t window) {
    if (!has(window)) return;
    listing = window, merged = 0;
    for (int32_t c = 0; c < layer.channels; ++c) {
      const double ns = layer.lists_ns[window * layer.channels + c], begin = larger(clock.host_free[c], scanned[c]);
      clock.host_free[c] = begin + ns;
      clock.host_does(4, c, ns);
      clock.event(kLists, window, c, begin, begin + ns);
      merged = larger(merged, clock.host_free[c]);
      unsent[c] = 1;
    }
    merged += layer.merge_ns[window];
  }

  // The tile list goes out where a channel is at leisure after the merge, or at last waits for it.
  void send(bool wait) {
    for (int32_t c = 0; c < layer.channels; ++c) send(c, wait);
  }
  void send(int32_t channel, bool wait) {
    double& free = clock.host_free[channel];
    if (unsent[channel] == 0 || (!wait && free < merged)) return;
    const double ns = layer.tiles_ns[listing], begin = larger(free, merged);
    free = listed[channel] = begin + ns;
    clock.host_does(4, channel, ns);
    clock.event(kTiles, listing, channel, begin, begin + ns);
    unsent[channel] = 0;
  }
};

// The host reads a window's outputs on every channel, adds them up, and writes its finals: in one go, or in parts
// between the next window's bundles.
struct Outputs {
  Clock& clock;
  TileLists& lists;
  const Windows& layer;
  std::vector<double> reduced;      // [lag + 1, ranks]: end of the reduction of recent windows
  std::vector<double> posted;       // [lag + 1, channels]: end of their finals
  std::vector<int64_t> parts_done;  // [channels]: of window `posting`
  int64_t posting = 0, output_parts = 0, final_parts = 0;
  int32_t reading = 0;       // channels that have not read all of its outputs
  double outputs_begin = 0;  // when the first channel began
  double outputs_end = 0;    // when the channels have read what they have, and at last the host has added it up

  Outputs(Clock& shared, TileLists& tiles)
      : clock(shared),
        lists(tiles),
        layer(shared.layer),
        reduced((layer.lag + 1) * static_cast<size_t>(layer.ranks)),
        posted((layer.lag + 1) * static_cast<size_t>(layer.channels)),
        parts_done(layer.channels) {}

  double* reduced_in(int64_t window) { return reduced.data() + window % (layer.lag + 1) * layer.ranks; }
  double* posted_in(int64_t window) { return posted.data() + window % (layer.lag + 1) * layer.channels; }

  void all(int64_t window) {
    begin(window, 1, 1);
    finish();
  }

  // On every channel in parts, `outputs` that read outputs and then `finals` that write finals.
  void begin(int64_t window, int64_t outputs, int64_t finals) {
    posting = window, output_parts = outputs, final_parts = finals, reading = layer.channels;
    outputs_begin = std::numeric_limits<double>::infinity(), outputs_end = 0;
    std::fill(parts_done.begin(), parts_done.end(), 0);
  }

  // As many parts as the next window has bundles, for each kind in proportion to its time.
  void begin_parts(int64_t window, int64_t bundles) {
    double outputs = 0, finals = 0;
    for (int32_t c = 0; c < layer.channels; ++c) {
      outputs += layer.outputs_ns[window * layer.channels + c];
      finals += layer.finals_ns[window * layer.channels + c];
    }
    const double both = outputs + finals;
    const int64_t first = both > 0 ? static_cast<int64_t>(static_cast<double>(bundles) * outputs / both + 0.5) : 1;
    const int64_t of_outputs = first < 1 ? 1 : first < bundles ? first : bundles - 1;
    begin(window, of_outputs, bundles - of_outputs);
  }

  // Finals need every channel's outputs, and the host's own work on them.
  bool has_part(int32_t channel) const {
    if (parts_done[channel] < output_parts) return true;
    return reading == 0 && parts_done[channel] < output_parts + final_parts;
  }

  void do_part(int32_t channel) {
    lists.send(channel, false);
    const int64_t part = parts_done[channel]++;
    if (part < output_parts) {
      read_part(channel, part);
    } else {
      write_part(channel, part - output_parts);
    }
  }

  void read_part(int32_t channel, int64_t part) {
    double begin = clock.host_free[channel];
    if (part == 0) {
      const double* done = reduced_in(posting);
      for (int32_t r = channel * clock.ranks_per_channel; r < (channel + 1) * clock.ranks_per_channel; ++r) {
        begin = larger(begin, done[r]);
      }
      begin += layer.poll_ns;
      outputs_begin = begin < outputs_begin ? begin : outputs_begin;
    }
    const double ns = part_of(layer.outputs_ns[posting * layer.channels + channel], part, output_parts);
    clock.host_free[channel] = begin + ns;
    clock.host_does(2, channel, ns);
    clock.event(kOutputs, posting, channel, begin, begin + ns);
    outputs_end = larger(outputs_end, clock.host_free[channel]);
    if (part + 1 == output_parts && --reading == 0) {
      outputs_end = larger(outputs_end, outputs_begin + layer.reduce_ns[posting]);
    }
  }

  void write_part(int32_t channel, int64_t part) {
    const double begin = larger(clock.host_free[channel], outputs_end);
    const double ns = part_of(layer.finals_ns[posting * layer.channels + channel], part, final_parts);
    clock.host_free[channel] = posted_in(posting)[channel] = begin + ns;
    clock.host_does(3, channel, ns);
    clock.event(kFinals, posting, channel, begin, begin + ns);
  }

  // What the channel does until the ranks have read a bundle, at `until`: parts that it can begin before.
  void begin_early(int32_t channel, double until) {
    while (has_part(channel)) {
      const bool is_final = parts_done[channel] >= output_parts;
      const double free = clock.host_free[channel];
      if ((is_final ? larger(free, outputs_end) : free) >= until) return;
      do_part(channel);
    }
  }

  // No channel is behind: as many parts as bundles, where they can be done.
  void keep_up(int64_t bundles) {
    for (int32_t c = 0; c < layer.channels; ++c) {
      while (parts_done[c] < bundles && has_part(c)) do_part(c);
    }
  }

  void finish() {
    for (int kind = 0; kind < 2; ++kind) {
      for (int32_t c = 0; c < layer.channels; ++c) {
        while (has_part(c)) do_part(c);
      }
    }
  }

  double part_of(double whole, int64_t part, int64_t parts) const {
    return whole / static_cast<double>(parts) + (part > 0 && whole > 0 ? layer.again_ns : 0);
  }
};

}  // namespace onehop::ndp
