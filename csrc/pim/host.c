/* Neighbour aggregation on all cores of an UPMEM machine, and measurements of the machine.

   host run PROGRAM IN OUT       PROGRAM: aggregate_csr.c, compiled for the cores with the same -D options as this
   host measure PROGRAM MACHINE  PROGRAM: measure.c, likewise; MACHINE: the file to write, for --machine

   IN, in this machine's byte order: uint32_t rows, columns, width, edges, unit_weights; then row bounds
   uint32_t [rows + 1], sources uint32_t [edges], weights feature_t [edges] (none with unit weights), features
   feature_t [columns, width]. OUT: sums sum_t [rows, width]. Nanoseconds of each phase are printed.

   Every core has whole rows with about equally many edges, and all features: the plan sp=1, ds=1. */
#include <string.h>

#include "arguments.h"
#include "transfers.h"
#include "types.h"

struct problem {
  uint32_t rows, columns, width, edges, unit_weights;
  uint32_t *bounds, *sources;
  feature_t *weights, *features;
};

static void* read_array(FILE* file, const char* path, size_t count, size_t item) {
  void* const found = allocate(count * item);
  if (fread(found, item, count, file) != count) {
    fprintf(stderr, "%s: it ends early: %zu numbers of %zu bytes were expected\n", path, count, item);
    exit(EXIT_FAILURE);
  }
  return found;
}

static struct problem read_problem(const char* path) {
  FILE* const file = fopen(path, "rb");
  if (file == NULL) {
    perror(path);
    exit(EXIT_FAILURE);
  }
  uint32_t* const sizes = read_array(file, path, 5, sizeof *sizes);
  struct problem found = {sizes[0], sizes[1], sizes[2], sizes[3], sizes[4], NULL, NULL, NULL, NULL};
  found.bounds = read_array(file, path, (size_t)found.rows + 1, sizeof(uint32_t));
  found.sources = read_array(file, path, found.edges, sizeof(uint32_t));
  if (!found.unit_weights) found.weights = read_array(file, path, found.edges, sizeof(feature_t));
  found.features = read_array(file, path, (size_t)found.columns * found.width, sizeof(feature_t));
  fclose(file);
  free(sizes);
  for (uint32_t edge = 0; edge < found.edges; ++edge) {
    if (found.sources[edge] >= found.columns) {
      fprintf(stderr, "%s: edge %u has source %u of %u\n", path, edge, found.sources[edge], found.columns);
      exit(EXIT_FAILURE);
    }
  }
  for (uint32_t row = 0; row <= found.rows; ++row) {
    const uint32_t before = row ? found.bounds[row - 1] : 0, bound = found.bounds[row];
    if (bound < before || (row == 0 && bound) || (row == found.rows && bound != found.edges)) {
      fprintf(stderr, "%s: row bounds must ascend from 0 to %u, and bound %u is %u\n", path, found.edges, row, bound);
      exit(EXIT_FAILURE);
    }
  }
  return found;
}

/* The first row of piece `piece` of `pieces` of rows first to last: the row at which its share of edges is full. */
static uint32_t cut(const uint32_t* bounds, uint32_t first, uint32_t last, uint32_t piece, uint32_t pieces) {
  if (piece == pieces) return last;
  const uint64_t edges = bounds[last] - bounds[first], share = bounds[first] + edges * piece / pieces;
  uint32_t low = first, high = last;
  while (low < high) {
    const uint32_t middle = low + (high - low) / 2;
    if (bounds[middle] < share) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  /* Without edges rows are dealt out evenly. */
  return edges ? low : first + (uint32_t)((uint64_t)(last - first) * piece / pieces);
}

static uint64_t padded(uint64_t bytes) { return (bytes + DMA_ALIGNMENT - 1) / DMA_ALIGNMENT * DMA_ALIGNMENT; }

static void run(const char* program, const char* in, const char* out) {
  const struct problem all = read_problem(in);
  struct dpu_set_t set;
  uint32_t cores;
  DPU_ASSERT(dpu_alloc(DPU_ALLOCATE_ALL, NULL, &set));
  DPU_ASSERT(dpu_load(set, program, NULL));
  DPU_ASSERT(dpu_get_nr_dpus(set, &cores));

  /* A row of features and a row of sums are multiples of 8 bytes. */
  const uint32_t item = sizeof(feature_t) < sizeof(sum_t) ? sizeof(feature_t) : sizeof(sum_t);
  const uint32_t step = item < DMA_ALIGNMENT ? DMA_ALIGNMENT / item : 1;
  const uint32_t width = (all.width + step - 1) / step * step;

  uint32_t* const starts = allocate(((size_t)cores + 1) * sizeof *starts);
  uint32_t most_rows = 0, most_edges = 0;
  for (uint32_t core = 0; core <= cores; ++core) starts[core] = cut(all.bounds, 0, all.rows, core, cores);
  for (uint32_t core = 0; core < cores; ++core) {
    const uint32_t rows = starts[core + 1] - starts[core];
    const uint32_t edges = all.bounds[starts[core + 1]] - all.bounds[starts[core]];
    if (rows > most_rows) most_rows = rows;
    if (edges > most_edges) most_edges = edges;
  }

  /* One layout for every core, that of the largest: transfers to all cores are of one size. */
  const uint64_t sums_bytes = padded((uint64_t)most_rows * width * sizeof(sum_t));
  const uint64_t features_bytes = padded((uint64_t)all.columns * width * sizeof(feature_t));
  const uint64_t bounds_bytes = padded(((uint64_t)most_rows + 1) * sizeof(uint32_t));
  const uint64_t sources_bytes = padded((uint64_t)most_edges * sizeof(uint32_t));
  const uint64_t weights_bytes = all.unit_weights ? 0 : padded((uint64_t)most_edges * sizeof(feature_t));
  const uint64_t total = sums_bytes + features_bytes + bounds_bytes + sources_bytes + weights_bytes;
  if (total > MRAM_BYTES) {
    fprintf(stderr, "%s: a core would need %llu bytes of MRAM and has %u\n", in, (unsigned long long)total, MRAM_BYTES);
    exit(EXIT_FAILURE);
  }
  const uint64_t matrix_at = sums_bytes + features_bytes, matrix_bytes = bounds_bytes + sources_bytes + weights_bytes;

  struct arguments* const arguments = allocate(cores * sizeof *arguments);
  uint8_t* const matrix = allocate(cores * matrix_bytes);
  for (uint32_t core = 0; core < cores; ++core) {
    const uint32_t first = starts[core], last = starts[core + 1], edge = all.bounds[first];
    const uint32_t edges = all.bounds[last] - edge;
    arguments[core] = (struct arguments){
        .rows = last - first,
        .edges = edges,
        .width = width,
        .unit_weights = all.unit_weights,
        .sums = 0,
        .features = (uint32_t)sums_bytes,
        .row_index = (uint32_t)matrix_at,
        .columns = (uint32_t)(matrix_at + bounds_bytes),
        .weights = (uint32_t)(matrix_at + bounds_bytes + sources_bytes),
    };
    uint8_t* const own = matrix + core * matrix_bytes;
    uint32_t* const bounds = (uint32_t*)own;
    for (uint32_t row = first; row <= last; ++row) bounds[row - first] = all.bounds[row] - edge;
    memcpy(own + bounds_bytes, all.sources + edge, edges * sizeof(uint32_t));
    if (!all.unit_weights) memcpy(own + bounds_bytes + sources_bytes, all.weights + edge, edges * sizeof(feature_t));
    for (uint32_t tasklet = 0; tasklet <= NR_TASKLETS; ++tasklet) {
      arguments[core].part[tasklet] = cut(bounds, 0, last - first, tasklet, NR_TASKLETS);
    }
  }
  feature_t* const features = allocate(features_bytes);
  for (uint32_t row = 0; row < all.columns; ++row) {
    memcpy(features + (size_t)row * width, all.features + (size_t)row * all.width, all.width * sizeof(feature_t));
  }

  const char* const heap = DPU_MRAM_HEAP_POINTER_NAME;
  const double matrix_ns = transfer(set, DPU_XFER_TO_DPU, heap, (uint32_t)matrix_at, matrix, matrix_bytes);
  const double send_ns = transfer(set, DPU_XFER_TO_DPU, "arguments", 0, arguments, sizeof *arguments);
  const double broadcast_ns = broadcast(set, (uint32_t)sums_bytes, features, features_bytes);
  const double kernel_ns = launch(set);
  uint8_t* const returned = allocate(cores * sums_bytes);
  const double retrieve_ns = transfer(set, DPU_XFER_FROM_DPU, heap, 0, returned, sums_bytes);
  DPU_ASSERT(dpu_free(set));

  const double merging = now_ns();
  sum_t* const sums = allocate((size_t)all.rows * all.width * sizeof *sums);
  for (uint32_t core = 0; core < cores; ++core) {
    const sum_t* const own = (const sum_t*)(returned + core * sums_bytes);
    for (uint32_t row = starts[core]; row < starts[core + 1]; ++row) {
      memcpy(sums + (size_t)row * all.width, own + (size_t)(row - starts[core]) * width, all.width * sizeof *sums);
    }
  }
  const double merge_ns = now_ns() - merging;
  FILE* const file = fopen(out, "wb");
  const size_t count = (size_t)all.rows * all.width;
  if (file == NULL || fwrite(sums, sizeof *sums, count, file) != count || fclose(file) != 0) {
    perror(out);
    exit(EXIT_FAILURE);
  }
  printf("cores %u\nmatrix_ns %.0f\nsend_ns %.0f\nbroadcast_ns %.0f\nkernel_ns %.0f\nretrieve_ns %.0f\nmerge_ns %.0f\n",
         cores, matrix_ns, send_ns, broadcast_ns, kernel_ns, retrieve_ns, merge_ns);
}

int main(int count, char** words) {
  if (count == 5 && strcmp(words[1], "run") == 0) {
    run(words[2], words[3], words[4]);
  } else if (count == 4 && strcmp(words[1], "measure") == 0) {
    measure(words[2], words[3]);
  } else {
    fprintf(stderr, "usage: %s run PROGRAM IN OUT | measure PROGRAM MACHINE\n", words[0]);
    return 2;
  }
  return 0;
}
