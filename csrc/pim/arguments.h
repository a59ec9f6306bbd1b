/* What the host writes before a launch: the core's slice, and each tasklet's part of it. */
#pragma once

#include <stdint.h>

/* Offsets are bytes from the start of the MRAM heap, multiples of 8. Arrays are padded to multiples of 8 bytes. */
struct arguments {
  uint32_t rows;         /* of the slice */
  uint32_t edges;        /* of the slice */
  uint32_t width;        /* columns of features and sums, such that a row of either is a multiple of 8 bytes */
  uint32_t unit_weights; /* not 0: every weight is 1; there are no weights, and nothing is multiplied */
  uint32_t sums;         /* offset: [rows, width], sum_t: the output */
  uint32_t features;     /* offset: [columns of the slice, width], feature_t */
  uint32_t row_index;    /* offset: CSR [rows + 1], where rows begin; COO [edges], the row of every edge; uint32_t */
  uint32_t columns;      /* offset: [edges], uint32_t */
  uint32_t weights;      /* offset: [edges], feature_t; unused with unit weights */
  uint32_t reserved;     /* keeps what follows on 8 bytes */
  /* Tasklet t has rows (CSR) or edges (COO) part[t] to part[t + 1]. An entry more where their number is even. */
  uint32_t part[(NR_TASKLETS + 2) / 2 * 2];
};
