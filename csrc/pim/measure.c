/* Cycles of transfers and of the kernels' inner loops, on one tasklet of a core; the others return. */
#include <alloc.h>
#include <defs.h>
#include <mram.h>
#include <perfcounter.h>

#include "arguments.h"
#include "measured.h"
#include "types.h"

__host struct arguments arguments;

/* Far enough from the results. */
#define SCRATCH 65536u

/* Kept apart from their callers, so that what the loops multiply by is not known when they are compiled. */
static __attribute__((noinline)) void add(sum_t* sums, const feature_t* features) {
  for (uint32_t k = 0; k < ELEMENTS; ++k) sums[k] += (sum_t)features[k];
}

static __attribute__((noinline)) void multiply(sum_t* sums, const feature_t* features, sum_t weight) {
  for (uint32_t k = 0; k < ELEMENTS; ++k) sums[k] += weight * (sum_t)features[k];
}

static __attribute__((noinline)) void nothing(sum_t* sums) { __asm__ volatile("" : : "r"(sums) : "memory"); }

static uint64_t multiplying(sum_t* sums, const feature_t* features, sum_t weight) {
  const uint64_t began = perfcounter_get();
  for (uint32_t i = 0; i < LOOPS; ++i) multiply(sums, features, weight);
  return perfcounter_get() - began;
}

int main(void) {
  if (me() != 0) return 0;
  mem_reset();
  __mram_ptr uint8_t* const heap = (__mram_ptr uint8_t*)DPU_MRAM_HEAP_POINTER;
  struct measured* const found = mem_alloc(sizeof *found);
  uint8_t* const block = mem_alloc(DMA_MOST_BYTES);
  feature_t* const features = mem_alloc(ELEMENTS * sizeof(feature_t));
  sum_t* const sums = mem_alloc(ELEMENTS * sizeof(sum_t));
  perfcounter_config(COUNT_CYCLES, true);

  for (uint32_t size = 0; size < TRANSFER_SIZES; ++size) {
    uint64_t began = perfcounter_get();
    for (uint32_t i = 0; i < REPEATS; ++i) mram_read(heap + SCRATCH, block, DMA_ALIGNMENT << size);
    found->read[size] = perfcounter_get() - began;
    began = perfcounter_get();
    for (uint32_t i = 0; i < REPEATS; ++i) mram_write(block, heap + SCRATCH, DMA_ALIGNMENT << size);
    found->write[size] = perfcounter_get() - began;
  }
  /* All bits but the sign's: the routine that multiplies exits early once the smaller operand has none left. */
  const feature_t full = (feature_t)((((uint64_t)1 << (8 * sizeof(feature_t) - 2)) - 1) * 2 + 1);
  for (uint32_t k = 0; k < ELEMENTS; ++k) {
    features[k] = full;
    sums[k] = 0;
  }
  uint64_t began = perfcounter_get();
  for (uint32_t i = 0; i < LOOPS; ++i) add(sums, features);
  found->accumulate = perfcounter_get() - began;
  found->multiply_one = multiplying(sums, features, 1);
  found->multiply_full = multiplying(sums, features, (sum_t)full);
  began = perfcounter_get();
  for (uint32_t i = 0; i < LOOPS; ++i) nothing(sums);
  found->nothing = perfcounter_get() - began;
  mram_write(found, heap, sizeof *found);
  return 0;
}
