/* Stands in for the vendor's header of this name: MRAM is an array, and a transfer that breaks a rule ends the run. */
#pragma once

#include <stdint.h>

#define __mram_ptr
#define SHIM_MRAM_BYTES (64u << 20)

extern uint8_t shim_mram[SHIM_MRAM_BYTES];
#define DPU_MRAM_HEAP_POINTER ((__mram_ptr void*)shim_mram)

void mram_read(const __mram_ptr void* from, void* to, unsigned int nb_of_bytes);
void mram_write(const void* from, __mram_ptr void* to, unsigned int nb_of_bytes);
