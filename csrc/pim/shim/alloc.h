/* Stands in for the vendor's header of this name: the heap in WRAM, as large as that of a core. */
#pragma once

#include <stddef.h>

void* mem_alloc(size_t size);
void* mem_reset(void);
