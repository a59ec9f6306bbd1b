// Inner loops of the near-rank machine: counting, re-tiling, execution windows, the result itself. Raw pointers only.
#pragma once

#include <cstdint>

namespace onehop::ndp {

// A graph as the machine sees it: rows in the order of processing, every source with the rank that holds its column.
struct Work {
  const int64_t* rowptr;  // [rows + 1]
  const int32_t* col;     // [edges]
  const int32_t* order;   // [rows]: the order of processing; null = by number
  int64_t rows, cols;
  const uint8_t* owner;  // [cols], below `ranks`
  int32_t ranks;
};

// Per block of `block` rows (a multiple of `tile`) and rank. Null where not requested.
struct Counts {
  int64_t tile, block;
  int64_t entry_bytes;     // of one adjacency entry
  int64_t burst_bytes;     // of one DRAM burst
  const int32_t* pod;      // [levels]: ranks of a pod
  int32_t levels;          //
  int64_t* edges;          // [blocks, ranks]
  int64_t* reads;          // [blocks, ranks]: distinct sources, tile by tile
  int64_t* row_bursts;     // [blocks, ranks]: bursts when every row's part is read by itself
  int64_t* touched;        // [blocks, sum over levels of ranks / pod]: rows with an edge in the pod
  int64_t touched_stride;  // columns of `touched`
};
// False if memory runs out.
bool count(const Work& work, const Counts& counts, int threads);

enum class Merge : int { rows, ranks, round_robin };

// What the units scan until each batch of `nodes` nodes is listed; the last batch may have fewer. All zero before.
struct Batches {
  int64_t nodes;   // at least 1
  int64_t* rows;   // [batches]: rows that are begun
  int64_t* edges;  // [batches, ranks]
};
// Writes the order of rows after re-tiling: [rows]. Rows and sources must be the same nodes. Lists are merged once they
// have a batch's nodes, with `rows` after each row. False if memory runs out.
bool retile(const Work& work, Merge merge, const Batches& batches, int32_t* order);

// The number of the graph's reads that miss a `ways`-way LRU cache of `entries` vectors.
int64_t cache_misses(const Work& work, int64_t entries, int32_t ways);

// The result through the mapping: each rank of a pod adds up its columns [slice[j], slice[j + 1]) over the bundles of
// its pod in order of their ranks; the host adds up the pods' parts.
struct Aggregate {
  int32_t pod;              // ranks of a pod
  const int64_t* slice;     // [pod + 1]
  const int64_t* row_list;  // [listed]: rows wanted; null = all of them
  int64_t listed;
  const float* x;  // [cols, width], rows x_stride apart
  int64_t x_stride;
  const float* weight;  // [edges] in the graph's order, or null
  float* out;           // [listed or rows, width], rows out_stride apart
  int64_t out_stride;
};
bool aggregate(const Work& work, const Aggregate& args, int threads);

// Path of bundles to the other ranks of a pod.
enum class Transfer : int { none, link, host };

// When the outputs of a window are read and its finals written: after the next window's bundles; in parts between
// these; or in such parts from when the outputs are there, before the ranks have read these bundles. And when a rank
// reads the next window's adjacency: when that window begins (`after`), or ahead, before it waits for the finals of an
// earlier one.
enum class HostOrder : int { after, ahead, between, early };

// One layer in windows. Times in ns; [W, R] windows times ranks, [W, C] windows times channels.
struct Windows {
  int64_t windows;
  int32_t ranks, channels, pod;
  Transfer transfer;
  HostOrder order;              // the last two with bundles over the host only
  int32_t lag;                  // windows between a reduction and its write-back: output buffers less one
  int64_t record;               // events are written for windows below this
  const int64_t* pieces;        // [W]
  const double* adjacency_ns;   // [W, R]
  const double* reads;          // [W, R]: of the bundle of this rank
  const double* edges;          // [W, R]
  const double* read_ns;        // [R]: one read of the rank's slice
  const double* unit_ns;        // [R]: one edge in the rank's unit
  double fill_ns;               // of the pipeline, for each phase
  const double* bundle_out_ns;  // [W, R]: read by the host
  const double* bundle_in_ns;   // [W, R]: written on every channel of the pod, all copies
  const double* outputs_ns;     // [W, C]
  const double* reduce_ns;      // [W]: the host's own adding up
  const double* finals_ns;      // [W, C]
  const double* write_ns;       // [W, R]
  double poll_ns;               // before the host reads a module's output
  double again_ns;              // on a channel, for each part of outputs or finals after the first
  // Re-tiling: a window's targets are listed before it begins, while the one before is worked on. Null without it.
  const double* scan_ns;   // [W, R]: a rank lists nodes
  const double* lists_ns;  // [W, C]: the host reads the lists
  const double* merge_ns;  // [W]: and merges them
  const double* tiles_ns;  // [W]: it writes the tile list on every channel; 0 where nothing is listed
};
struct WindowTimes {
  double* rank_busy;     // [R, 5]: adjacency, reads, write-back, listing, time that the unit adds to reads
  double* channel_busy;  // [C, 5]: bundles read, bundles written, outputs, finals, lists
  double* window;        // [W, 4]: end, busiest channel, busiest rank, mean over ranks
  // Events: what (0 adjacency, 1 reduce, 2 write-back, 3 listing, 4 bundle read, 5 bundle write, 6 outputs, 7 finals,
  // 8 lists read, 9 tile list written), window, rank or channel, and two times.
  int32_t* event_what;  // [most_events, 3]
  double* event_time;   // [most_events, 2]
  int64_t most_events;
  int64_t events;
  double total_ns;
};
// False if memory runs out.
bool run_windows(const Windows& layer, WindowTimes* times);

}  // namespace onehop::ndp
