/* Stands in for the vendor's header of this name. */
#pragma once

#include <pthread.h>

typedef struct {
  pthread_mutex_t mutex;
  pthread_cond_t everybody_came;
  unsigned int expected, waiting, round;
} barrier_t;

#define BARRIER_INIT(name, count) barrier_t name = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, count, 0, 0}

void barrier_wait(barrier_t* barrier);
