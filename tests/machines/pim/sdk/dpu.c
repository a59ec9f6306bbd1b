/* Cores for the host program, emulated: memories are arrays, and a launch runs the cores' program, compiled with
   csrc/pim/shim, once for each core. CORES and RANKS fix the machine; EMULATED_FOLDER holds files between them. */
#include "dpu.h"

#include <string.h>

#include "arguments.h"

#define BANK_BYTES (64u << 20)
#define HEAP "__sys_used_mram_end"

static struct {
  uint8_t* bank;
  size_t used;
  struct arguments arguments;
  void* prepared;
} cores[CORES];
static char program_path[4096];
static double passed_ns;

int stub_clock(clockid_t clock, struct timespec* time) {
  (void)clock;
  time->tv_sec = (time_t)(passed_ns / 1e9);
  time->tv_nsec = (long)(passed_ns - (double)time->tv_sec * 1e9);
  return 0;
}

/* The first ranks have a core more where they do not divide evenly. */
static uint32_t rank_begin(uint32_t rank) {
  return rank * (CORES / RANKS) + (rank < CORES % RANKS ? rank : CORES % RANKS);
}

struct dpu_set_t stub_core(struct dpu_set_t set, uint32_t i) { return (struct dpu_set_t){set.first + i, 1}; }

struct dpu_set_t stub_rank(uint32_t i) {
  if (i >= RANKS) return (struct dpu_set_t){0, 0};
  return (struct dpu_set_t){rank_begin(i), rank_begin(i + 1) - rank_begin(i)};
}

const char* dpu_error_to_string(dpu_error_t status) {
  static const char* const texts[] = {"success", "allocation error", "invalid memory transfer", "dpu is in fault"};
  return texts[status];
}

dpu_error_t dpu_alloc(uint32_t nr_dpus, const char* profile, struct dpu_set_t* dpu_set) {
  if (nr_dpus != DPU_ALLOCATE_ALL || profile != NULL) return DPU_ERR_ALLOCATION;
  for (uint32_t core = 0; core < CORES; ++core) cores[core].bank = calloc(BANK_BYTES, 1);
  *dpu_set = (struct dpu_set_t){0, CORES};
  return DPU_OK;
}

dpu_error_t dpu_free(struct dpu_set_t dpu_set) {
  for (uint32_t core = 0; core < dpu_set.count; ++core) free(cores[dpu_set.first + core].bank);
  return DPU_OK;
}

dpu_error_t dpu_get_nr_ranks(struct dpu_set_t dpu_set, uint32_t* nr_ranks) {
  (void)dpu_set;
  *nr_ranks = RANKS;
  return DPU_OK;
}

dpu_error_t dpu_get_nr_dpus(struct dpu_set_t dpu_set, uint32_t* nr_dpus) {
  *nr_dpus = dpu_set.count;
  return DPU_OK;
}

dpu_error_t dpu_load(struct dpu_set_t dpu_set, const char* binary_path, struct dpu_program_t** program) {
  (void)dpu_set;
  (void)program;
  snprintf(program_path, sizeof program_path, "%s", binary_path);
  return DPU_OK;
}

/* Where a transfer goes in a core; NULL where the vendor's library would refuse it. */
static uint8_t* place(uint32_t core, const char* symbol, uint32_t offset, size_t length) {
  if (strcmp(symbol, "arguments") == 0) {
    if (length % 4 || offset + length > sizeof(struct arguments)) return NULL;
    return (uint8_t*)&cores[core].arguments + offset;
  }
  if (strcmp(symbol, HEAP) != 0 || length % 8 || offset % 8 || offset + length > BANK_BYTES) return NULL;
  if (offset + length > cores[core].used) cores[core].used = offset + length;
  return cores[core].bank + offset;
}

dpu_error_t dpu_prepare_xfer(struct dpu_set_t dpu_set, void* buffer) {
  if (dpu_set.count != 1 || cores[dpu_set.first].prepared != NULL) return DPU_ERR_INVALID_MEMORY_TRANSFER;
  cores[dpu_set.first].prepared = buffer;
  return DPU_OK;
}

dpu_error_t dpu_push_xfer(struct dpu_set_t dpu_set, dpu_xfer_t xfer, const char* symbol_name, uint32_t symbol_offset,
                          size_t length, dpu_xfer_flags_t flags) {
  if (flags & DPU_XFER_NO_RESET) return DPU_ERR_INVALID_MEMORY_TRANSFER;
  passed_ns += (1000 + (double)length * (1 + dpu_set.count / 4.0)) * (xfer == DPU_XFER_TO_DPU ? 1 : 2);
  for (uint32_t i = 0; i < dpu_set.count; ++i) {
    const uint32_t core = dpu_set.first + i;
    uint8_t* const there = place(core, symbol_name, symbol_offset, length);
    if (there == NULL || cores[core].prepared == NULL) return DPU_ERR_INVALID_MEMORY_TRANSFER;
    if (xfer == DPU_XFER_TO_DPU) {
      memcpy(there, cores[core].prepared, length);
    } else {
      memcpy(cores[core].prepared, there, length);
    }
    cores[core].prepared = NULL;
  }
  return DPU_OK;
}

dpu_error_t dpu_broadcast_to(struct dpu_set_t dpu_set, const char* symbol_name, uint32_t symbol_offset, const void* src,
                             size_t length, dpu_xfer_flags_t flags) {
  (void)flags;
  passed_ns += 1000 + (double)length;
  for (uint32_t i = 0; i < dpu_set.count; ++i) {
    uint8_t* const there = place(dpu_set.first + i, symbol_name, symbol_offset, length);
    if (there == NULL) return DPU_ERR_INVALID_MEMORY_TRANSFER;
    memcpy(there, src, length);
  }
  return DPU_OK;
}

/* Transfers are done when they are queued. */
dpu_error_t dpu_sync(struct dpu_set_t dpu_set) {
  (void)dpu_set;
  return DPU_OK;
}

dpu_error_t dpu_launch(struct dpu_set_t dpu_set, dpu_launch_policy_t policy) {
  if (policy != DPU_SYNCHRONOUS) return DPU_ERR_DPU_FAULT;
  passed_ns += 5000;
  for (uint32_t i = 0; i < dpu_set.count; ++i) {
    const uint32_t core = dpu_set.first + i;
    char command[8192];
    FILE* file = fopen(EMULATED_FOLDER "/core.in", "wb");
    if (file == NULL) return DPU_ERR_DPU_FAULT;
    fwrite(&cores[core].arguments, sizeof(struct arguments), 1, file);
    fwrite(cores[core].bank, 1, cores[core].used, file);
    fclose(file);
    snprintf(command, sizeof command, "'%s' " EMULATED_FOLDER "/core.in " EMULATED_FOLDER "/core.out >/dev/null",
             program_path);
    if (system(command) != 0) return DPU_ERR_DPU_FAULT;
    file = fopen(EMULATED_FOLDER "/core.out", "rb");
    if (file == NULL || fread(cores[core].bank, 1, cores[core].used, file) != cores[core].used)
      return DPU_ERR_DPU_FAULT;
    fclose(file);
  }
  return DPU_OK;
}
