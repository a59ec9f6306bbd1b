/* Stands in for the vendor's header of this name: tasklets are threads of this machine. */
#pragma once

#include <stdint.h>

#define __host
#define __dma_aligned __attribute__((aligned(8)))

typedef uint32_t sysname_t;

/* The number of the calling tasklet, from 0 to NR_TASKLETS - 1. */
sysname_t me(void);
