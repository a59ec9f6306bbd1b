/* What the program is compiled for: -DFEATURE=int32_t, and -DSUM=int64_t where sums need more room. */
#pragma once

#include <stdint.h>

#ifndef FEATURE
#define FEATURE int32_t
#endif
#ifndef SUM
#define SUM FEATURE
#endif

typedef FEATURE feature_t; /* features and edge weights */
typedef SUM sum_t;         /* accumulators and output */

/* A transfer between MRAM and WRAM: both addresses and the size are multiples of 8 bytes, at most 2,048 bytes. */
#define DMA_ALIGNMENT 8u
#define DMA_MOST_BYTES 2048u

/* Bytes of WRAM for one block of a stream of indices or weights. */
#ifndef BLOCK_BYTES
#define BLOCK_BYTES 64u
#endif
/* Bytes of WRAM for the features, and for the sums, that a tasklet holds of one row: 512 fit for up to 23 tasklets
   with stacks of 1 KB. Longer rows are handled piece by piece. */
#ifndef ROW_BYTES
#define ROW_BYTES 512u
#endif

#if BLOCK_BYTES % 8 || BLOCK_BYTES < 8 || BLOCK_BYTES > 2048
#error "BLOCK_BYTES: a multiple of 8 from 8 to 2048"
#endif
#if ROW_BYTES % 64 || ROW_BYTES < 64 || ROW_BYTES > 2048
#error "ROW_BYTES: a multiple of 64 from 64 to 2048"
#endif

/* Columns handled at a time: a multiple of 8, so that pieces of rows begin and end on 8 bytes for every type. */
#define COLUMNS_AT_ONCE (ROW_BYTES / (sizeof(feature_t) > sizeof(sum_t) ? sizeof(feature_t) : sizeof(sum_t)))
