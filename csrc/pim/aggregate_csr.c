/* Sums over the rows of a slice in compressed sparse rows. Every row belongs to one tasklet, so none waits. */
#include <alloc.h>
#include <barrier.h>
#include <defs.h>

#include "row.h"

__host struct arguments arguments;

BARRIER_INIT(wram_is_empty, NR_TASKLETS);

int main(void) {
  if (me() == 0) mem_reset();
  barrier_wait(&wram_is_empty); /* nobody allocates before the reset */

  const struct arguments* call = &arguments;
  const uint32_t first = call->part[me()], last = call->part[me() + 1];
  struct worker worker;
  allocate_worker(&worker, call);
  if (first == last) return 0;
  for (uint32_t column = 0; column < call->width; column += (uint32_t)COLUMNS_AT_ONCE) {
    begin_columns(&worker, column, call->rows + 1);
    uint32_t edge = index_at(&worker.row_index, first);
    for (uint32_t row = first; row < last; ++row) {
      const uint32_t end = index_at(&worker.row_index, row + 1);
      clear(&worker, worker.sums);
      for (; edge < end; ++edge) add_edge(&worker, edge, worker.sums);
      write_row(&worker, row, worker.sums);
    }
  }
  return 0;
}
