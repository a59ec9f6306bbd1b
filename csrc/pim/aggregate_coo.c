/* Sums over the rows of a slice in coordinates, edges ordered by row. Edges are dealt out, so that tasklets may
   share a row; -DSYNC says how they then agree:
     SYNC_ROWS       no row is shared: the host cuts between rows
     SYNC_LOCK_FREE  a tasklet's first row waits in WRAM until all are done; then tasklet 0 adds these in order,
                     so the result does not depend on who was first. */
#include <alloc.h>
#include <barrier.h>
#include <defs.h>

#include "row.h"

#define SYNC_ROWS 0
#define SYNC_LOCK_FREE 1
#ifndef SYNC
#define SYNC SYNC_LOCK_FREE
#endif

__host struct arguments arguments;

BARRIER_INIT(all_tasklets, NR_TASKLETS);
#if SYNC == SYNC_LOCK_FREE
/* A tasklet's sums of its first row; rows[t] is NO_ROW where tasklet t has no edges. */
#define NO_ROW UINT32_MAX
static struct {
  uint32_t rows[NR_TASKLETS];
  sum_t* sums[NR_TASKLETS];
} first_rows;
#endif

#if SYNC != SYNC_ROWS
static void add_to_row(struct worker* worker, uint32_t row, const sum_t* sums, sum_t* scratch) {
  mram_read(output_row(worker, row), scratch, worker->count * (uint32_t)sizeof(sum_t));
  for (uint32_t k = 0; k < worker->count; ++k) scratch[k] += sums[k];
  write_row(worker, row, scratch);
}
#endif

/* All rows, dealt out in turn: rows without edges are written by nobody else. */
static void clear_output(struct worker* worker) {
  clear(worker, worker->sums);
  for (uint32_t row = me(); row < worker->call->rows; row += NR_TASKLETS) write_row(worker, row, worker->sums);
}

int main(void) {
  if (me() == 0) mem_reset();
  barrier_wait(&all_tasklets); /* nobody allocates before the reset */

  const struct arguments* call = &arguments;
  const uint32_t first = call->part[me()], last = call->part[me() + 1];
  struct worker worker;
  allocate_worker(&worker, call);
#if SYNC != SYNC_ROWS
  sum_t* const other = mem_alloc(COLUMNS_AT_ONCE * sizeof(sum_t));
#endif
#if SYNC == SYNC_LOCK_FREE
  first_rows.sums[me()] = other;
#endif

  /* Every tasklet comes to every barrier, also one without edges. */
  for (uint32_t column = 0; column < call->width; column += (uint32_t)COLUMNS_AT_ONCE) {
    begin_columns(&worker, column, call->edges);
    clear_output(&worker);
#if SYNC == SYNC_LOCK_FREE
    first_rows.rows[me()] = NO_ROW;
#endif
    barrier_wait(&all_tasklets);

    uint32_t edge = first;
    while (edge < last) {
      const uint32_t row = index_at(&worker.row_index, edge);
#if SYNC != SYNC_ROWS
      const int is_first = edge == first;
#endif
#if SYNC == SYNC_LOCK_FREE
      sum_t* const sums = is_first ? other : worker.sums;
#else
      sum_t* const sums = worker.sums;
#endif
      clear(&worker, sums);
      do {
        add_edge(&worker, edge++, sums);
      } while (edge < last && index_at(&worker.row_index, edge) == row);
#if SYNC == SYNC_LOCK_FREE
      if (is_first) {
        first_rows.rows[me()] = row;
        continue;
      }
#endif
      /* Nobody else writes this row now: those who share it hold their part in first_rows. */
      write_row(&worker, row, sums);
    }

#if SYNC == SYNC_LOCK_FREE
    barrier_wait(&all_tasklets);
    if (me() == 0) {
      for (uint32_t t = 0; t < NR_TASKLETS; ++t) {
        if (first_rows.rows[t] != NO_ROW) add_to_row(&worker, first_rows.rows[t], first_rows.sums[t], worker.sums);
      }
    }
    barrier_wait(&all_tasklets); /* the sums are folded before they are used for the next columns */
#endif
  }
  return 0;
}
