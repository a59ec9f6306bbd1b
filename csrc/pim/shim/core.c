/* One core on this machine: runs the program's main in NR_TASKLETS threads.

   core IN OUT: IN holds the arguments (struct arguments), then the contents of MRAM. OUT is MRAM afterwards, as
   long as it was. The transfers made are printed: reads, bytes read, writes, bytes written, bytes of WRAM. A rule
   that is broken ends the run with status 3 and a sentence. */
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../arguments.h"
#include "../types.h"
#include "alloc.h"
#include "barrier.h"
#include "defs.h"
#include "mram.h"
#include "perfcounter.h"

/* A core's 64 KB, of which the heap has what stacks (1 KB a tasklet) and variables (1 KB in all) leave. */
#define WRAM_BYTES (64u << 10)
#define HEAP_BYTES (WRAM_BYTES - 1024u - NR_TASKLETS * 1024u)

int tasklet_main(void); /* the program's main, renamed by the compiler's -D */

extern struct arguments arguments;
_Alignas(8) uint8_t shim_mram[SHIM_MRAM_BYTES];

static _Alignas(8) uint8_t wram[HEAP_BYTES];
static pthread_mutex_t heap_lock = PTHREAD_MUTEX_INITIALIZER;
static size_t heap_used, heap_most;
static atomic_ulong reads, read_bytes, writes, written_bytes;
static _Thread_local sysname_t tasklet;

static _Noreturn void fail(const char* format, ...) {
  va_list values;
  va_start(values, format);
  vfprintf(stderr, format, values);
  va_end(values);
  fputc('\n', stderr);
  _Exit(3);
}

sysname_t me(void) { return tasklet; }

void* mem_reset(void) {
  pthread_mutex_lock(&heap_lock);
  heap_used = 0;
  pthread_mutex_unlock(&heap_lock);
  return wram;
}

void* mem_alloc(size_t size) {
  pthread_mutex_lock(&heap_lock);
  const size_t begin = heap_used;
  heap_used += (size + 7) & ~(size_t)7;
  if (heap_used > heap_most) heap_most = heap_used;
  const int fits = heap_used <= HEAP_BYTES;
  pthread_mutex_unlock(&heap_lock);
  if (!fits) fail("WRAM: %zu bytes wanted, the heap has %u", begin + size, HEAP_BYTES);
  return wram + begin;
}

void barrier_wait(barrier_t* barrier) {
  pthread_mutex_lock(&barrier->mutex);
  const unsigned int round = barrier->round;
  if (++barrier->waiting == barrier->expected) {
    barrier->waiting = 0;
    ++barrier->round;
    pthread_cond_broadcast(&barrier->everybody_came);
  }
  while (round == barrier->round) pthread_cond_wait(&barrier->everybody_came, &barrier->mutex);
  pthread_mutex_unlock(&barrier->mutex);
}

static void check_transfer(const char* what, const void* mram, const void* in_wram, unsigned int bytes) {
  const uintptr_t place = (uintptr_t)mram - (uintptr_t)shim_mram, near = (uintptr_t)in_wram - (uintptr_t)wram;
  if (bytes < DMA_ALIGNMENT || bytes > DMA_MOST_BYTES || bytes % DMA_ALIGNMENT) {
    fail("%s: %u bytes; a transfer has 8 to 2048, a multiple of 8", what, bytes);
  }
  if (place % DMA_ALIGNMENT || place > SHIM_MRAM_BYTES - bytes) {
    fail("%s: MRAM address %#zx of %u bytes is unaligned or outside", what, (size_t)place, bytes);
  }
  if (near % DMA_ALIGNMENT || near > HEAP_BYTES - bytes) {
    fail("%s: WRAM address %#zx of %u bytes is unaligned or outside the heap", what, (size_t)near, bytes);
  }
}

void mram_read(const __mram_ptr void* from, void* to, unsigned int nb_of_bytes) {
  check_transfer("mram_read", from, to, nb_of_bytes);
  memcpy(to, from, nb_of_bytes);
  atomic_fetch_add(&reads, 1);
  atomic_fetch_add(&read_bytes, nb_of_bytes);
}

void mram_write(const void* from, __mram_ptr void* to, unsigned int nb_of_bytes) {
  check_transfer("mram_write", to, from, nb_of_bytes);
  memcpy(to, from, nb_of_bytes);
  atomic_fetch_add(&writes, 1);
  atomic_fetch_add(&written_bytes, nb_of_bytes);
}

perfcounter_t perfcounter_get(void) {
  static perfcounter_t passed, step = 64 * 11264;
  step -= 11264;
  passed += step;
  return passed + 77 * reads + read_bytes / 2 + 61 * writes + written_bytes / 2;
}

perfcounter_t perfcounter_config(perfcounter_config_t config, bool reset_value) {
  (void)config, (void)reset_value;
  return perfcounter_get();
}

static void* run_tasklet(void* number) {
  tasklet = (sysname_t)(uintptr_t)number;
  tasklet_main();
  return NULL;
}

int main(int count, char** words) {
  if (count != 3) fail("usage: %s IN OUT", words[0]);
  FILE* in = fopen(words[1], "rb");
  if (in == NULL || fread(&arguments, sizeof arguments, 1, in) != 1) fail("%s: no arguments in it", words[1]);
  const size_t bytes = fread(shim_mram, 1, SHIM_MRAM_BYTES, in);
  fclose(in);

  pthread_t threads[NR_TASKLETS];
  for (uintptr_t t = 0; t < NR_TASKLETS; ++t) {
    if (pthread_create(&threads[t], NULL, run_tasklet, (void*)t) != 0) fail("a thread could not be started");
  }
  for (int t = 0; t < NR_TASKLETS; ++t) pthread_join(threads[t], NULL);

  FILE* out = fopen(words[2], "wb");
  if (out == NULL || fwrite(shim_mram, 1, bytes, out) != bytes || fclose(out) != 0) fail("%s: not written", words[2]);
  printf("%lu %lu %lu %lu %zu\n", reads, read_bytes, writes, written_bytes, heap_most);
  return 0;
}
