/* The declarations of the vendor's <dpu.h> that the host program uses: names and types as the vendor publishes them,
   cores emulated by dpu.c. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

typedef enum { DPU_OK, DPU_ERR_ALLOCATION, DPU_ERR_INVALID_MEMORY_TRANSFER, DPU_ERR_DPU_FAULT } dpu_error_t;
typedef enum { DPU_ASYNCHRONOUS, DPU_SYNCHRONOUS } dpu_launch_policy_t;
typedef enum { DPU_XFER_TO_DPU, DPU_XFER_FROM_DPU } dpu_xfer_t;
typedef enum { DPU_XFER_DEFAULT = 0, DPU_XFER_NO_RESET = 1, DPU_XFER_ASYNC = 2 } dpu_xfer_flags_t;

/* The host's clock: a transfer of B bytes to each of C cores takes 1,000 + B * (1 + C / 4) ns, from them twice that,
   the same to all 1,000 + B; a launch takes 5,000 ns. */
int stub_clock(clockid_t clock, struct timespec* time);
#define clock_gettime stub_clock

/* Here: a run of cores. */
struct dpu_set_t {
  uint32_t first, count;
};
struct dpu_program_t;

#define DPU_ALLOCATE_ALL UINT32_MAX
#define DPU_ASSERT(statement)                                                                      \
  do {                                                                                             \
    const dpu_error_t error_ = (statement);                                                        \
    if (error_ != DPU_OK) {                                                                        \
      fprintf(stderr, "%s:%d: DPU Error (%s)\n", __FILE__, __LINE__, dpu_error_to_string(error_)); \
      exit(EXIT_FAILURE);                                                                          \
    }                                                                                              \
  } while (0)

#define DPU_FOREACH(set, dpu, i) for (i = 0; (dpu) = stub_core((set), i), i < (set).count; ++i)
#define DPU_RANK_FOREACH(set, rank, i) for (i = 0; (rank) = stub_rank(i), (rank).count; ++i)
struct dpu_set_t stub_core(struct dpu_set_t set, uint32_t i);
struct dpu_set_t stub_rank(uint32_t i);

const char* dpu_error_to_string(dpu_error_t status);
dpu_error_t dpu_alloc(uint32_t nr_dpus, const char* profile, struct dpu_set_t* dpu_set);
dpu_error_t dpu_free(struct dpu_set_t dpu_set);
dpu_error_t dpu_get_nr_ranks(struct dpu_set_t dpu_set, uint32_t* nr_ranks);
dpu_error_t dpu_get_nr_dpus(struct dpu_set_t dpu_set, uint32_t* nr_dpus);
dpu_error_t dpu_load(struct dpu_set_t dpu_set, const char* binary_path, struct dpu_program_t** program);
dpu_error_t dpu_sync(struct dpu_set_t dpu_set);
dpu_error_t dpu_launch(struct dpu_set_t dpu_set, dpu_launch_policy_t policy);
dpu_error_t dpu_prepare_xfer(struct dpu_set_t dpu_set, void* buffer);
dpu_error_t dpu_push_xfer(struct dpu_set_t dpu_set, dpu_xfer_t xfer, const char* symbol_name, uint32_t symbol_offset,
                          size_t length, dpu_xfer_flags_t flags);
dpu_error_t dpu_broadcast_to(struct dpu_set_t dpu_set, const char* symbol_name, uint32_t symbol_offset, const void* src,
                             size_t length, dpu_xfer_flags_t flags);
