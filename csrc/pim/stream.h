/* Reads an array in MRAM from front to back, a block at a time; every block is transferred once. */
#pragma once

#include <alloc.h>
#include <mram.h>
#include <stdint.h>

#include "types.h"

struct stream {
  __mram_ptr uint8_t* array;
  uint8_t* block;       /* in WRAM, BLOCK_BYTES */
  uint32_t array_bytes; /* padded */
  uint32_t begin, end;  /* bytes of the array that the block holds */
};

static inline uint32_t padded(uint32_t bytes) { return (bytes + DMA_ALIGNMENT - 1) & ~(DMA_ALIGNMENT - 1); }

/* A stream that holds nothing yet; its block stays allocated. */
static void open_stream(struct stream* stream, __mram_ptr uint8_t* array, uint32_t bytes) {
  stream->array = array;
  stream->array_bytes = padded(bytes);
  stream->begin = stream->end = 0;
}

static void allocate_stream(struct stream* stream) { stream->block = mem_alloc(BLOCK_BYTES); }

/* Where byte `offset` of the array lies in WRAM. An element never crosses a block: both begin on 8 bytes. */
static inline void* stream_at(struct stream* stream, uint32_t offset) {
  if (offset < stream->begin || offset >= stream->end) {
    const uint32_t begin = offset & ~(DMA_ALIGNMENT - 1);
    const uint32_t left = stream->array_bytes - begin;
    const uint32_t bytes = left < BLOCK_BYTES ? left : BLOCK_BYTES;
    mram_read(stream->array + begin, stream->block, bytes);
    stream->begin = begin;
    stream->end = begin + bytes;
  }
  return stream->block + (offset - stream->begin);
}

static inline uint32_t index_at(struct stream* stream, uint32_t number) {
  return *(uint32_t*)stream_at(stream, number * (uint32_t)sizeof(uint32_t));
}

static inline feature_t weight_at(struct stream* stream, uint32_t number) {
  return *(feature_t*)stream_at(stream, number * (uint32_t)sizeof(feature_t));
}
