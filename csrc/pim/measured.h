/* What measure.c leaves at the start of the MRAM heap, and host_measure.c reads. */
#pragma once

#include <stdint.h>

/* Transfers of 8, 16, ... 2,048 bytes. */
#define TRANSFER_SIZES 9
#define REPEATS 256
/* Elements that a timed loop goes through, and how often. */
#define ELEMENTS 64
#define LOOPS 16

/* Cycles of one tasklet that runs alone, of all repeats together. */
struct measured {
  uint64_t read[TRANSFER_SIZES];
  uint64_t write[TRANSFER_SIZES];
  uint64_t accumulate;    /* LOOPS * ELEMENTS additions */
  uint64_t multiply_one;  /* as many additions of products with one */
  uint64_t multiply_full; /* as many additions of products with a number that uses all bits */
  uint64_t nothing;       /* LOOPS empty loops */
};
