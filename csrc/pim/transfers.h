/* Calls into the vendor's host library: every error ends the program, with the place and the vendor's text. */
#pragma once

#include <dpu.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* Where arrays go: arguments.h counts offsets from here. */
#ifndef DPU_MRAM_HEAP_POINTER_NAME
#define DPU_MRAM_HEAP_POINTER_NAME "__sys_used_mram_end"
#endif
#define MRAM_BYTES (64u << 20)

static inline double now_ns(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static inline void* allocate(size_t bytes) {
  void* const found = calloc(bytes ? bytes : 1, 1);
  if (found == NULL) {
    fprintf(stderr, "no memory for %zu bytes\n", bytes);
    exit(EXIT_FAILURE);
  }
  return found;
}

/* To or from every core of a set: core i has `each` bytes at `blocks + i * each`. Returns nanoseconds. */
static inline double transfer(struct dpu_set_t set, dpu_xfer_t way, const char* symbol, uint32_t offset, void* blocks,
                              size_t each) {
  struct dpu_set_t core;
  uint32_t i;
  if (each == 0) return 0;
  const double began = now_ns();
  DPU_FOREACH(set, core, i) { DPU_ASSERT(dpu_prepare_xfer(core, (uint8_t*)blocks + (size_t)i * each)); }
  DPU_ASSERT(dpu_push_xfer(set, way, symbol, offset, each, DPU_XFER_DEFAULT));
  return now_ns() - began;
}

/* The same to every core of a set. Returns nanoseconds. */
static inline double broadcast(struct dpu_set_t set, uint32_t offset, const void* from, size_t bytes) {
  if (bytes == 0) return 0;
  const double began = now_ns();
  DPU_ASSERT(dpu_broadcast_to(set, DPU_MRAM_HEAP_POINTER_NAME, offset, from, bytes, DPU_XFER_DEFAULT));
  return now_ns() - began;
}

/* Runs the loaded program on every core and waits. Returns nanoseconds. */
static inline double launch(struct dpu_set_t set) {
  const double began = now_ns();
  DPU_ASSERT(dpu_launch(set, DPU_SYNCHRONOUS));
  return now_ns() - began;
}

/* Measures the machine with the program measure.c, and writes a machine file. */
void measure(const char* program, const char* machine_file);
