/* The aggregation that the host reads from a file, and its cut into sparse parts. */
#pragma once

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "transfers.h"
#include "types.h"

/* A matrix in compressed sparse rows. */
struct matrix {
  uint32_t rows, columns, edges;
  uint32_t *bounds, *sources; /* [rows + 1], [edges] */
  feature_t* weights;         /* [edges], NULL with unit weights */
};

struct problem {
  struct matrix matrix;
  uint32_t width;
  feature_t* features; /* [columns, width] */
};

static void* read_array(FILE* file, const char* path, size_t count, size_t item) {
  void* const found = allocate(count * item);
  if (fread(found, item, count, file) != count) {
    fprintf(stderr, "%s: it ends early: %zu numbers of %zu bytes were expected\n", path, count, item);
    exit(EXIT_FAILURE);
  }
  return found;
}

static struct problem read_problem(const char* path) {
  FILE* const file = fopen(path, "rb");
  if (file == NULL) {
    perror(path);
    exit(EXIT_FAILURE);
  }
  uint32_t* const sizes = read_array(file, path, 5, sizeof *sizes);
  struct problem found = {.matrix = {sizes[0], sizes[1], sizes[3], NULL, NULL, NULL}, .width = sizes[2]};
  struct matrix* const matrix = &found.matrix;
  matrix->bounds = read_array(file, path, (size_t)matrix->rows + 1, sizeof(uint32_t));
  matrix->sources = read_array(file, path, matrix->edges, sizeof(uint32_t));
  if (!sizes[4]) matrix->weights = read_array(file, path, matrix->edges, sizeof(feature_t));
  found.features = read_array(file, path, (size_t)matrix->columns * found.width, sizeof(feature_t));
  fclose(file);
  free(sizes);
  for (uint32_t edge = 0; edge < matrix->edges; ++edge) {
    if (matrix->sources[edge] >= matrix->columns) {
      fprintf(stderr, "%s: edge %u has source %u of %u\n", path, edge, matrix->sources[edge], matrix->columns);
      exit(EXIT_FAILURE);
    }
  }
  for (uint32_t row = 0; row <= matrix->rows; ++row) {
    const uint32_t before = row ? matrix->bounds[row - 1] : 0, bound = matrix->bounds[row];
    if (bound < before || (row == 0 && bound) || (row == matrix->rows && bound != matrix->edges)) {
      fprintf(stderr, "%s: row bounds must ascend from 0 to %u, and bound %u is %u\n", path, matrix->edges, row, bound);
      exit(EXIT_FAILURE);
    }
  }
  return found;
}

/* Where piece `piece` of `pieces` begins: all are equal, but for the last, which are smaller or empty. */
static inline uint32_t begin_of(uint32_t total, uint32_t pieces, uint32_t piece) {
  const uint64_t begin = (uint64_t)piece * (((uint64_t)total + pieces - 1) / pieces);
  return begin < total ? (uint32_t)begin : total;
}

/* A block of columns: all rows, sources counted from the block's first. */
static struct matrix block_of(const struct matrix* all, uint32_t first, uint32_t last) {
  uint32_t kept = 0;
  for (uint32_t edge = 0; edge < all->edges; ++edge) kept += all->sources[edge] >= first && all->sources[edge] < last;
  struct matrix block = {.rows = all->rows, .columns = last - first, .edges = kept};
  block.bounds = allocate(((size_t)all->rows + 1) * sizeof(uint32_t));
  block.sources = allocate(kept * sizeof(uint32_t));
  if (all->weights != NULL) block.weights = allocate(kept * sizeof(feature_t));
  kept = 0;
  for (uint32_t row = 0; row < all->rows; ++row) {
    for (uint32_t edge = all->bounds[row]; edge < all->bounds[row + 1]; ++edge) {
      if (all->sources[edge] < first || all->sources[edge] >= last) continue;
      block.sources[kept] = all->sources[edge] - first;
      if (all->weights != NULL) block.weights[kept] = all->weights[edge];
      ++kept;
    }
    block.bounds[row + 1] = kept;
  }
  return block;
}

/* Rows `first` to `last` in pieces: a piece ends at the row that fills its share of the edges. What it has over its
   share is not taken from the next one; the last takes the rest. */
static void cut(const uint32_t* bounds, uint32_t first, uint32_t last, uint32_t pieces, uint32_t* starts) {
  const uint32_t all = (bounds[last] - bounds[first]) / pieces, share = all ? all : 1;
  uint32_t row = first;
  for (uint32_t piece = 0; piece < pieces; ++piece) {
    starts[piece] = row;
    const uint32_t begin = bounds[row];
    while (row < last && bounds[row] - begin < share) ++row;
  }
  starts[pieces] = last;
}
