/* A piece of a row: features of one source are read and added to sums in WRAM, which then go to MRAM. */
#pragma once

#include <alloc.h>
#include <mram.h>
#include <stdint.h>

#include "arguments.h"
#include "stream.h"
#include "types.h"

/* What one tasklet works with. */
struct worker {
  const struct arguments* call;
  __mram_ptr uint8_t* heap;
  struct stream row_index, columns, weights;
  feature_t* features; /* WRAM: a piece of one source's row */
  sum_t* sums;         /* WRAM: a piece of one output row */
  uint32_t column;     /* where the piece begins */
  uint32_t count;      /* columns of the piece */
};

static void allocate_worker(struct worker* worker, const struct arguments* call) {
  worker->call = call;
  worker->heap = (__mram_ptr uint8_t*)DPU_MRAM_HEAP_POINTER;
  allocate_stream(&worker->row_index);
  allocate_stream(&worker->columns);
  allocate_stream(&worker->weights);
  worker->features = mem_alloc(COLUMNS_AT_ONCE * sizeof(feature_t));
  worker->sums = mem_alloc(COLUMNS_AT_ONCE * sizeof(sum_t));
}

/* Turns to the columns from `column` on; streams begin anew. */
static void begin_columns(struct worker* worker, uint32_t column, uint32_t row_entries) {
  const struct arguments* call = worker->call;
  const uint32_t left = call->width - column;
  worker->column = column;
  worker->count = left < COLUMNS_AT_ONCE ? left : (uint32_t)COLUMNS_AT_ONCE;
  open_stream(&worker->row_index, worker->heap + call->row_index, row_entries * (uint32_t)sizeof(uint32_t));
  open_stream(&worker->columns, worker->heap + call->columns, call->edges * (uint32_t)sizeof(uint32_t));
  open_stream(&worker->weights, worker->heap + call->weights, call->edges * (uint32_t)sizeof(feature_t));
}

static inline void clear(struct worker* worker, sum_t* sums) {
  for (uint32_t k = 0; k < worker->count; ++k) sums[k] = 0;
}

/* Adds edge `edge` to the sums. */
static inline void add_edge(struct worker* worker, uint32_t edge, sum_t* sums) {
  const struct arguments* call = worker->call;
  const uint32_t source = index_at(&worker->columns, edge);
  const uint32_t place = call->features + (source * call->width + worker->column) * (uint32_t)sizeof(feature_t);
  mram_read(worker->heap + place, worker->features, worker->count * (uint32_t)sizeof(feature_t));
  if (call->unit_weights) {
    for (uint32_t k = 0; k < worker->count; ++k) sums[k] += (sum_t)worker->features[k];
  } else {
    const sum_t weight = (sum_t)weight_at(&worker->weights, edge);
    for (uint32_t k = 0; k < worker->count; ++k) sums[k] += weight * (sum_t)worker->features[k];
  }
}

static inline __mram_ptr uint8_t* output_row(const struct worker* worker, uint32_t row) {
  const struct arguments* call = worker->call;
  return worker->heap + call->sums + (row * call->width + worker->column) * (uint32_t)sizeof(sum_t);
}

static inline void write_row(const struct worker* worker, uint32_t row, const sum_t* sums) {
  mram_write(sums, output_row(worker, row), worker->count * (uint32_t)sizeof(sum_t));
}
