/* Stands in for the vendor's header of this name. */
#pragma once

#include <pthread.h>

typedef pthread_mutex_t* mutex_id_t;

#define MUTEX_INIT(name)                                                \
  static pthread_mutex_t shim_mutex_##name = PTHREAD_MUTEX_INITIALIZER; \
  static const mutex_id_t name = &shim_mutex_##name

static inline void mutex_lock(mutex_id_t mutex) { pthread_mutex_lock(mutex); }
static inline void mutex_unlock(mutex_id_t mutex) { pthread_mutex_unlock(mutex); }
