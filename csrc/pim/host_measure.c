/* Measures transfers between host and cores, and what measure.c finds on a core; writes a machine file in TOML.

   The file names upmem_v1a as its base: what is not measured (power, the host, the cost of an edge) stays that
   machine's. Copy further [arithmetic.TYPE] tables from runs that were compiled with another FEATURE. */
#include <string.h>

#include "arguments.h"
#include "measured.h"
#include "transfers.h"
#include "types.h"

/* A tasklet that runs alone issues every so many cycles. */
#define REISSUE_CYCLES 11.0
#define ROUNDS 5
#define NAME_OF(type) #type
#define TEXT_OF(type) NAME_OF(type)

/* Cores that take part, in 10^9 bytes a second each way, blocks of `bytes`: the best of ROUNDS. */
static double rate(struct dpu_set_t set, uint32_t cores, dpu_xfer_t way, uint8_t* blocks, size_t bytes) {
  double best = 0;
  for (int i = 0; i < ROUNDS; ++i) {
    const double took = transfer(set, way, DPU_MRAM_HEAP_POINTER_NAME, 0, blocks, bytes);
    const double gbps = (double)cores * (double)bytes / took;
    if (gbps > best) best = gbps;
  }
  return best;
}

static double broadcast_rate(struct dpu_set_t set, uint32_t cores, const uint8_t* from, size_t bytes) {
  double best = 0;
  for (int i = 0; i < ROUNDS; ++i) {
    const double gbps = (double)cores * (double)bytes / broadcast(set, 0, from, bytes);
    if (gbps > best) best = gbps;
  }
  return best;
}

/* The table's name of the type that this was compiled for. */
static const char* type_name(void) {
  const char* const type = TEXT_OF(FEATURE);
  if (strcmp(type, "float") == 0) return "float32";
  if (strcmp(type, "double") == 0) return "float64";
  static char name[16];
  snprintf(name, sizeof name, "%.*s", (int)(strlen(type) - strlen("_t")), type);
  return name;
}

static void write_curve(FILE* file, const char* name, const uint64_t* cycles) {
  fprintf(file, "%s = [", name);
  for (int size = 0; size < TRANSFER_SIZES; ++size) {
    fprintf(file, "%s[%u, %.2f]", size ? ", " : "", DMA_ALIGNMENT << size, (double)cycles[size] / REPEATS);
  }
  fprintf(file, "]\n");
}

void measure(const char* program, const char* machine_file) {
  struct dpu_set_t set, rank, core, one_rank, one_core;
  uint32_t cores, ranks, rank_cores, i;
  DPU_ASSERT(dpu_alloc(DPU_ALLOCATE_ALL, NULL, &set));
  DPU_ASSERT(dpu_load(set, program, NULL));
  DPU_ASSERT(dpu_get_nr_dpus(set, &cores));
  DPU_ASSERT(dpu_get_nr_ranks(set, &ranks));
  one_rank = set;
  one_core = set;
  DPU_RANK_FOREACH(set, rank, i) {
    if (i == 0) one_rank = rank;
  }
  DPU_FOREACH(one_rank, core, i) {
    if (i == 0) one_core = core;
  }
  DPU_ASSERT(dpu_get_nr_dpus(one_rank, &rank_cores));

  const size_t block = 1u << 20;
  uint8_t* const blocks = allocate(cores * block);
  const double push = rate(set, cores, DPU_XFER_TO_DPU, blocks, block);
  const double core_push = rate(one_core, 1, DPU_XFER_TO_DPU, blocks, block);
  const double core_pull = rate(one_core, 1, DPU_XFER_FROM_DPU, blocks, block);
  const double rank_push = rate(one_rank, rank_cores, DPU_XFER_TO_DPU, blocks, block);
  const double rank_pull = rate(one_rank, rank_cores, DPU_XFER_FROM_DPU, blocks, block);
  const double rank_broadcast = broadcast_rate(one_rank, rank_cores, blocks, block);
  const double all_broadcast = broadcast_rate(set, cores, blocks, block);
  double call_ns = 0;
  for (i = 0; i < ROUNDS; ++i) {
    const double took = transfer(one_rank, DPU_XFER_TO_DPU, DPU_MRAM_HEAP_POINTER_NAME, 0, blocks, 8);
    if (i == 0 || took < call_ns) call_ns = took;
  }

  FILE* const file = fopen(machine_file, "w");
  if (file == NULL) {
    perror(machine_file);
    exit(EXIT_FAILURE);
  }
  fprintf(file, "base = \"upmem_v1a\"\nname = \"measured\"\ncores = %u\nranks = %u\n\n[links]\n", cores, ranks);
  fprintf(file, "push_gbps = %.4f\npull_gbps = [", push);
  for (size_t kilobytes = 64; kilobytes <= 480; kilobytes += 32) {
    const double gbps = rate(set, cores, DPU_XFER_FROM_DPU, blocks, kilobytes << 10);
    fprintf(file, "%s[%zu, %.4f]", kilobytes > 64 ? ", " : "", kilobytes, gbps);
  }
  fprintf(file, "]\ncore_push_gbps = %.4f\ncore_pull_gbps = %.4f\n", core_push, core_pull);
  fprintf(file, "rank_push_gbps = %.4f\nrank_pull_gbps = %.4f\n", rank_push, rank_pull);
  fprintf(file, "full_rank_cores = %u\ncall_us = %.2f\n", rank_cores, call_ns / 1e3);
  fprintf(file, "broadcast_gbps = [[1, %.4f], [%u, %.4f]]\n", rank_broadcast, ranks > 1 ? ranks : 2, all_broadcast);

  struct measured* const found = allocate(cores * sizeof *found);
  struct arguments* const none = allocate(cores * sizeof *none);
  transfer(set, DPU_XFER_TO_DPU, "arguments", 0, none, sizeof *none);
  launch(set);
  transfer(set, DPU_XFER_FROM_DPU, DPU_MRAM_HEAP_POINTER_NAME, 0, found, sizeof *found);
  DPU_ASSERT(dpu_free(set));
  const double elements = (double)LOOPS * ELEMENTS * REISSUE_CYCLES, calls = (double)found->nothing;
  const double add = ((double)found->accumulate - calls) / elements;
  const double one = ((double)found->multiply_one - calls) / elements;
  const double full = ((double)found->multiply_full - calls) / elements;
  /* The loop is in what an accumulate takes. */
  fprintf(file, "\n[core]\nelement_instructions = 0.0\n");
  write_curve(file, "dma_read_cycles", found->read);
  write_curve(file, "dma_write_cycles", found->write);
  fprintf(file, "\n[arithmetic.%s]\naccumulate = %.3f\n", type_name(), add);
  fprintf(file, "multiply_one = %.3f\nmultiply_full = %.3f\n", one > add ? one - add : 0, full > add ? full - add : 0);
  const int bits = strcmp(type_name(), "float32") == 0   ? 24
                   : strcmp(type_name(), "float64") == 0 ? 53
                                                         : (int)(8 * sizeof(feature_t));
  fprintf(file, "significant_bits = %d\n", bits);
  if (ferror(file) || fclose(file) != 0) {
    perror(machine_file);
    exit(EXIT_FAILURE);
  }
}
