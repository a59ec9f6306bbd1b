/* Neighbour aggregation on all cores of an UPMEM machine, and measurements of the machine.

   host run PROGRAM IN OUT [SP DS]  PROGRAM: aggregate_csr.c, compiled for the cores with the same -D options as this
   host measure PROGRAM MACHINE     PROGRAM: measure.c, likewise; MACHINE: the file to write, for --machine

   IN, in this machine's byte order: uint32_t rows, columns, width, edges, unit_weights; then row bounds
   uint32_t [rows + 1], sources uint32_t [edges], weights feature_t [edges] (none with unit weights), features
   feature_t [columns, width]. OUT: sums sum_t [rows, width]. Nanoseconds and bytes of each phase are printed.

   The matrix is cut into SP blocks of columns, the features into DS, 1 each if not given. The cores of a cluster share
   one of both, and have whole rows with about equally many edges. A cluster is a rank, several, or a piece of one: the
   simulator's plan of that grid. */
#include <string.h>

#include "arguments.h"
#include "problem.h"
#include "transfers.h"
#include "types.h"

/* The cores that share one block of the matrix and one of the features; without columns they have no work. */
struct cluster {
  uint32_t part, first_source;
  struct matrix block;
  uint32_t column, width, stored;       /* feature columns, and those that a row takes in MRAM */
  uint32_t rank, first_core, cores;     /* where it begins, and its cores */
  uint32_t* starts;                     /* [cores + 1], rows */
  uint64_t bounds_bytes, sources_bytes; /* of the fullest of its cores */
};

/* Arrays in MRAM, in their order. */
enum array { SUMS, FEATURES, MATRIX, ARRAYS };

/* Bytes of each array in every core of a rank, those of the fullest: a transfer is of one size in all of them. */
struct room {
  uint64_t bytes[ARRAYS];
};

struct grid {
  struct dpu_set_t set;
  uint32_t cores, ranks, *first_cores; /* [ranks + 1] */
  uint32_t number, pieces, spanned;    /* clusters, clusters of a rank, ranks of a cluster */
  struct cluster* clusters;
  struct room* rooms; /* [ranks] */
};

/* Where an array begins; of ARRAYS, the end of all. */
static uint64_t offset_of(const struct room* room, enum array array) {
  uint64_t offset = 0;
  for (enum array before = SUMS; before < array; ++before) offset += room->bytes[before];
  return offset;
}

static void grow(uint64_t* most, uint64_t bytes) {
  const uint64_t whole = (bytes + DMA_ALIGNMENT - 1) / DMA_ALIGNMENT * DMA_ALIGNMENT;
  if (whole > *most) *most = whole;
}

/* Makes room in a rank for the fullest of a cluster's cores. */
static void fit(struct room* room, struct cluster* cluster) {
  const struct matrix* const block = &cluster->block;
  uint64_t weights = 0;
  grow(&room->bytes[FEATURES], (uint64_t)block->columns * cluster->stored * sizeof(feature_t));
  for (uint32_t core = 0; core < cluster->cores; ++core) {
    const uint64_t rows = cluster->starts[core + 1] - cluster->starts[core];
    const uint64_t edges = block->bounds[cluster->starts[core + 1]] - block->bounds[cluster->starts[core]];
    grow(&room->bytes[SUMS], rows * cluster->stored * sizeof(sum_t));
    grow(&cluster->bounds_bytes, (rows + 1) * sizeof(uint32_t));
    grow(&cluster->sources_bytes, edges * sizeof(uint32_t));
    if (block->weights != NULL) grow(&weights, edges * sizeof(feature_t));
  }
  grow(&room->bytes[MATRIX], cluster->bounds_bytes + cluster->sources_bytes + weights);
}

/* Cuts the problem for the machine's ranks and cores. */
static void place(struct grid* grid, const struct problem* all, uint32_t sp, uint32_t ds) {
  /* A row of features and a row of sums are multiples of 8 bytes. */
  const uint32_t item = sizeof(feature_t) < sizeof(sum_t) ? sizeof(feature_t) : sizeof(sum_t);
  const uint32_t step = item < DMA_ALIGNMENT ? DMA_ALIGNMENT / item : 1;
  const uint32_t ranks = grid->ranks, number = sp * ds;
  grid->number = number;
  grid->pieces = number > ranks ? number / ranks : 1;
  grid->spanned = number < ranks ? ranks / number : 1;
  grid->clusters = allocate(number * sizeof *grid->clusters);
  grid->rooms = allocate(ranks * sizeof *grid->rooms);
  for (uint32_t index = 0; index < number; ++index) {
    struct cluster* const cluster = &grid->clusters[index];
    const uint32_t dense = index % ds, piece = index % grid->pieces;
    cluster->part = index / ds;
    cluster->first_source = begin_of(all->matrix.columns, sp, cluster->part);
    cluster->block =
        dense ? cluster[-1].block
              : block_of(&all->matrix, cluster->first_source, begin_of(all->matrix.columns, sp, cluster->part + 1));
    cluster->column = begin_of(all->width, ds, dense);
    cluster->width = begin_of(all->width, ds, dense + 1) - cluster->column;
    cluster->stored = (cluster->width + step - 1) / step * step;
    cluster->rank = index / grid->pieces * grid->spanned;
    /* The first pieces of a rank have a core more where they do not divide evenly. */
    const uint32_t first = grid->first_cores[cluster->rank];
    const uint32_t within = grid->first_cores[cluster->rank + grid->spanned] - first;
    const uint32_t each = within / grid->pieces, more = within % grid->pieces;
    cluster->cores = each + (piece < more);
    cluster->first_core = first + piece * each + (piece < more ? piece : more);
    cluster->starts = allocate(((size_t)cluster->cores + 1) * sizeof(uint32_t));
    if (cluster->width == 0) continue;
    cut(cluster->block.bounds, 0, all->matrix.rows, cluster->cores, cluster->starts);
    for (uint32_t i = 0; i < grid->spanned; ++i) fit(&grid->rooms[cluster->rank + i], cluster);
  }
}

/* Writes a core's arguments, and its piece of the matrix at `own`. */
static void fill(struct arguments* arguments, uint8_t* own, const struct cluster* cluster, uint32_t core,
                 const struct room* room) {
  const struct matrix* const block = &cluster->block;
  const uint32_t first = cluster->starts[core], last = cluster->starts[core + 1], edge = block->bounds[first];
  const uint32_t edges = block->bounds[last] - edge;
  const uint64_t sources = cluster->bounds_bytes, weights = sources + cluster->sources_bytes;
  const uint64_t matrix = offset_of(room, MATRIX);
  *arguments = (struct arguments){
      .rows = last - first,
      .edges = edges,
      .width = cluster->stored,
      .unit_weights = block->weights == NULL,
      .sums = (uint32_t)offset_of(room, SUMS),
      .features = (uint32_t)offset_of(room, FEATURES),
      .row_index = (uint32_t)matrix,
      .columns = (uint32_t)(matrix + sources),
      .weights = (uint32_t)(matrix + weights),
  };
  uint32_t* const bounds = (uint32_t*)own;
  for (uint32_t row = first; row <= last; ++row) bounds[row - first] = block->bounds[row] - edge;
  memcpy(own + sources, block->sources + edge, edges * sizeof(uint32_t));
  if (block->weights != NULL) {
    memcpy(own + weights, block->weights + edge, edges * sizeof(feature_t));
  }
  cut(bounds, 0, last - first, NR_TASKLETS, arguments->part);
}

/* A cluster's features, rows padded, for the broadcast or for each of its cores. */
static uint8_t* features_of(const struct problem* all, const struct cluster* cluster, uint64_t bytes) {
  uint8_t* const found = allocate(bytes);
  for (uint32_t source = 0; source < cluster->block.columns; ++source) {
    memcpy(found + (size_t)source * cluster->stored * sizeof(feature_t),
           all->features + (size_t)(cluster->first_source + source) * all->width + cluster->column,
           cluster->width * sizeof(feature_t));
  }
  return found;
}

static void add_up(sum_t* sums, uint32_t width, const struct cluster* cluster, uint8_t* const* returned) {
  for (uint32_t core = 0; core < cluster->cores; ++core) {
    const sum_t* const own = (const sum_t*)returned[cluster->first_core + core];
    for (uint32_t row = cluster->starts[core]; row < cluster->starts[core + 1]; ++row) {
      const sum_t* const from = own + (size_t)(row - cluster->starts[core]) * cluster->stored;
      sum_t* const to = sums + (size_t)row * width + cluster->column;
      for (uint32_t k = 0; k < cluster->width; ++k) to[k] = cluster->part ? to[k] + from[k] : from[k];
    }
  }
}

/* Moves an array of every core, of which `blocks` has one each; all ranks at once. Prints nanoseconds and bytes. */
static void move(const char* phase, const struct grid* grid, enum array array, uint8_t* const* blocks) {
  const int shared = array == FEATURES && grid->pieces == 1;
  const dpu_xfer_t way = array == SUMS ? DPU_XFER_FROM_DPU : DPU_XFER_TO_DPU;
  struct dpu_set_t rank, core;
  uint32_t r, i;
  uint64_t moved = 0;
  const double began = now_ns();
  DPU_RANK_FOREACH(grid->set, rank, r) {
    const uint32_t first = grid->first_cores[r], offset = (uint32_t)offset_of(&grid->rooms[r], array);
    const uint64_t bytes = grid->rooms[r].bytes[array];
    moved += bytes * (grid->first_cores[r + 1] - first);
    if (bytes == 0) continue;
    if (shared) {
      DPU_ASSERT(dpu_broadcast_to(rank, DPU_MRAM_HEAP_POINTER_NAME, offset, blocks[first], bytes, DPU_XFER_ASYNC));
      continue;
    }
    DPU_FOREACH(rank, core, i) { DPU_ASSERT(dpu_prepare_xfer(core, blocks[first + i])); }
    DPU_ASSERT(dpu_push_xfer(rank, way, DPU_MRAM_HEAP_POINTER_NAME, offset, bytes, DPU_XFER_ASYNC));
  }
  DPU_ASSERT(dpu_sync(grid->set));
  printf("%s_ns %.0f\n%s_bytes %llu\n", phase, now_ns() - began, phase, (unsigned long long)moved);
}

static void check_grid(const struct grid* grid, uint32_t sp, uint32_t ds) {
  const uint64_t number = (uint64_t)sp * ds;
  uint32_t fewest = grid->cores;
  for (uint32_t r = 0; r < grid->ranks; ++r) {
    const uint32_t own = grid->first_cores[r + 1] - grid->first_cores[r];
    if (own < fewest) fewest = own;
  }
  if (number == 0 || (number % grid->ranks && grid->ranks % number) || number > (uint64_t)grid->ranks * fewest) {
    fprintf(
        stderr,
        "SP, DS: expected a product that is a divisor of the %u ranks, or a multiple of at most %u clusters a rank, "
        "got %u * %u\n",
        grid->ranks, fewest, sp, ds);
    exit(EXIT_FAILURE);
  }
}

static void run(const char* program, const char* in, const char* out, uint32_t sp, uint32_t ds) {
  const struct problem all = read_problem(in);
  struct grid grid = {0};
  struct dpu_set_t rank;
  uint32_t r;
  DPU_ASSERT(dpu_alloc(DPU_ALLOCATE_ALL, NULL, &grid.set));
  DPU_ASSERT(dpu_load(grid.set, program, NULL));
  DPU_ASSERT(dpu_get_nr_dpus(grid.set, &grid.cores));
  DPU_ASSERT(dpu_get_nr_ranks(grid.set, &grid.ranks));
  grid.first_cores = allocate(((size_t)grid.ranks + 1) * sizeof(uint32_t));
  DPU_RANK_FOREACH(grid.set, rank, r) {
    DPU_ASSERT(dpu_get_nr_dpus(rank, &grid.first_cores[r + 1]));
    grid.first_cores[r + 1] += grid.first_cores[r];
  }
  check_grid(&grid, sp, ds);
  place(&grid, &all, sp, ds);

  uint8_t **const matrix = allocate(grid.cores * sizeof *matrix),
                  **const features = allocate(grid.cores * sizeof *matrix);
  uint8_t** const returned = allocate(grid.cores * sizeof *returned);
  for (r = 0; r < grid.ranks; ++r) {
    const struct room* const room = &grid.rooms[r];
    const uint64_t total = offset_of(room, ARRAYS);
    if (total > MRAM_BYTES) {
      fprintf(stderr, "%s: a core would need %llu bytes of MRAM and has %u\n", in, (unsigned long long)total,
              MRAM_BYTES);
      exit(EXIT_FAILURE);
    }
    for (uint32_t core = grid.first_cores[r]; core < grid.first_cores[r + 1]; ++core) {
      matrix[core] = allocate(room->bytes[MATRIX]);
      returned[core] = allocate(room->bytes[SUMS]);
    }
  }
  struct arguments* const arguments = allocate(grid.cores * sizeof *arguments);
  for (uint32_t index = 0; index < grid.number; ++index) {
    const struct cluster* const cluster = &grid.clusters[index];
    const struct room* const room = &grid.rooms[cluster->rank];
    uint8_t* const own = features_of(&all, cluster, room->bytes[FEATURES]);
    for (uint32_t i = 0; i < cluster->cores; ++i) {
      const uint32_t core = cluster->first_core + i;
      features[core] = own;
      if (cluster->width) fill(&arguments[core], matrix[core], cluster, i, room);
    }
  }

  printf("cores %u\n", grid.cores);
  move("matrix", &grid, MATRIX, matrix);
  printf("send_ns %.0f\nsend_bytes %zu\n",
         transfer(grid.set, DPU_XFER_TO_DPU, "arguments", 0, arguments, sizeof *arguments),
         grid.cores * sizeof *arguments);
  move(grid.pieces == 1 ? "broadcast" : "push", &grid, FEATURES, features);
  printf("kernel_ns %.0f\n", launch(grid.set));
  move("retrieve", &grid, SUMS, returned);
  DPU_ASSERT(dpu_free(grid.set));

  const double merging = now_ns();
  sum_t* const sums = allocate((size_t)all.matrix.rows * all.width * sizeof *sums);
  for (uint32_t index = 0; index < grid.number; ++index) add_up(sums, all.width, &grid.clusters[index], returned);
  printf("merge_ns %.0f\n", now_ns() - merging);
  FILE* const file = fopen(out, "wb");
  const size_t count = (size_t)all.matrix.rows * all.width;
  if (file == NULL || fwrite(sums, sizeof *sums, count, file) != count || fclose(file) != 0) {
    perror(out);
    exit(EXIT_FAILURE);
  }
}

/* A number of parts; 0 for any other word, which no grid has. */
static uint32_t parts_of(const char* word) {
  char* end;
  const unsigned long found = strtoul(word, &end, 10);
  return *end == '\0' && found <= UINT32_MAX ? (uint32_t)found : 0;
}

int main(int count, char** words) {
  if ((count == 5 || count == 7) && strcmp(words[1], "run") == 0) {
    run(words[2], words[3], words[4], count == 7 ? parts_of(words[5]) : 1, count == 7 ? parts_of(words[6]) : 1);
  } else if (count == 4 && strcmp(words[1], "measure") == 0) {
    measure(words[2], words[3]);
  } else {
    fprintf(stderr, "usage: %s run PROGRAM IN OUT [SP DS] | measure PROGRAM MACHINE\n", words[0]);
    return 2;
  }
  return 0;
}
