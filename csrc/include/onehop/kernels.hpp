// Calls of kernels, and the table of kernels of one instruction set, with raw pointers only.
#pragma once

#include <cstdint>

#include "onehop/csr.hpp"
#include "onehop/message.hpp"

namespace onehop {

struct Generated;
struct TensorProductArgs;  // tensor_product.hpp

enum class DType : int { float32, float64, bfloat16, float16 };
enum class Reduce : int { sum, mean, max, min };

// out[r, :] = row_scale[r] * reduce over the edges e of r of (weight[e] * col_scale[c(e)] * x[c(e), :])
//
// or, where `weight_adds`, for max and min: reduce of (weight[e] + x[c(e), :]).
// "acc" is double for float64 and float for every other type. A null pointer means: left out.
struct AggregateArgs {
  const Csr* csr;
  const WorkList* work;
  Reduce reduce;
  DType dtype;      // of x
  bool out_is_acc;  // out has the accumulator's type in place of x's
  int threads;
  int prefetch;         // how many edges ahead a source row is asked for
  bool keeps_near;      // such rows go to the nearest cache, not to the second
  int64_t column_tile;  // columns done in one pass over the graph; 0 = all
  int register_block;   // most vectors of a row's columns held in registers at a time; 0 = as many as there are
  bool nontemporal;     // write out past the caches, where its lines allow
  int64_t width;
  const void* x;  // [cols, width], rows x_stride apart
  int64_t x_stride;
  const void* weight;  // acc [edges], in the caller's edge order, weight_stride apart
  int64_t weight_stride;
  bool weight_in_graph_order;  // then in the order of the columns
  bool weight_adds;
  const void* col_scale;  // acc [cols]; for sum and mean
  const void* row_scale;  // acc [rows]
  void* out;              // [rows, width], rows out_stride apart
  int64_t out_stride;
  void* ties;                  // acc [rows, width], max and min only: how many edges reach the extremum
  void* slots;                 // acc [2, work->slots, width]: pieces of cut rows, and of their ties
  const Generated* generated;  // a kernel for exactly this width and type, used where it fits
};

// The gradient of max and min with respect to x, on the transposed graph:
// out[s, :] = sum over the edges e of s of (weight[e] * x[s, :] == extremum[d(e), :]) * weight[e] * share[d(e), :]
// or, with `out_weight`, on the graph itself, with respect to the weights:
// out[e] = sum over columns of (weight[e] * x[s(e), :] == extremum[d, :]) * share[d, :] * x[s(e), :]
// Where `weight_adds`, messages are weight[e] + x[s(e), :] and both end in share[d(e), :] alone.
struct ExtremumGradArgs {
  const Csr* csr;
  const WorkList* work;
  DType dtype;  // of x
  bool extremum_is_acc;
  int threads;
  int prefetch;
  int64_t width;
  const void* x;
  int64_t x_stride;
  const void* extremum;  // rows extremum_stride apart
  int64_t extremum_stride;
  const void* share;  // acc, rows `width` apart: gradient divided by the number of ties
  const void* weight;
  int64_t weight_stride;
  bool weight_adds;
  void* out;    // acc: [rows, width] or [edges]
  void* slots;  // acc [work->slots, width]
};

// The max or min of weight[e] * x[c(e), :] over the edges e of r, and winner[r, :], the place in the graph's order of
// the one edge that it is taken from: the first, or the last, of those that tie. NaN never wins; where nothing wins the
// result is infinite and the winner -1. Of float32 and float64 alone.
struct ArgExtremumArgs {
  const Csr* csr;
  const WorkList* work;
  DType dtype;
  bool minimum;
  bool last;
  int threads;
  int prefetch;
  int64_t width;
  const void* x;  // [cols, width], rows x_stride apart
  int64_t x_stride;
  const void* weight;  // [edges], in the caller's edge order, weight_stride apart; null: 1
  int64_t weight_stride;
  void* out;  // [rows, width], rows out_stride apart
  int64_t out_stride;
  int32_t* winner;  // likewise, rows winner_stride apart
  int64_t winner_stride;
  void* slots;            // [work->slots, width]: pieces of cut rows
  int32_t* winner_slots;  // likewise
};

// Its gradient, all of which goes to the winners; added to zeros.
// With respect to x, [cols, width]: out[c(e), i] += weight[e] * grad[r, i] for e = winner[r, i].
// With respect to the weights, [edges] in the caller's order: out[e] += x[c(e), i] * grad[r, i].
struct ArgExtremumGradArgs {
  const Csr* csr;
  DType dtype;
  int threads;
  int64_t width;
  const void* grad;  // [rows, width], rows grad_stride apart
  int64_t grad_stride;
  const int32_t* winner;  // likewise, rows winner_stride apart
  int64_t winner_stride;
  const void* x;  // read for the weights' gradient
  int64_t x_stride;
  const void* weight;  // read for that of x; null: 1
  int64_t weight_stride;
  void* out;
  int64_t out_stride;  // between rows of x's gradient, or between the weights'
};

// out[e] = dot(row_vectors[r(e), :], col_vectors[c(e), :]), in the caller's edge order.
struct SddmmArgs {
  const Csr* csr;
  const WorkList* work;
  DType dtype;
  bool out_is_acc;
  int threads;
  int prefetch;
  int64_t width;
  const void* row_vectors;
  int64_t row_stride;
  const void* col_vectors;
  int64_t col_stride;
  void* out;
  int64_t out_stride;
};

// How a pair of rows x (of the destination) and y (of the source) is weighed, and what is added up:
// dot       factor * x.y                              times y
// sigmoid   1 / (1 + exp(-factor * x.y))              times y
// tdist     1 / (1 + factor * |x - y|^2)              times x - y
enum class PairRule : int { dot, sigmoid, tdist };

// out[r, :] = the sum over the edges of r of weight(r, c(e)) * message(r, c(e)).
struct FusedmmArgs {
  const Csr* csr;
  const WorkList* work;
  PairRule rule;
  DType dtype;
  int threads;
  int prefetch;
  double factor;
  int64_t width;
  const void* row_vectors;  // [rows, width], rows row_stride apart
  int64_t row_stride;
  const void* col_vectors;  // [cols, width]
  int64_t col_stride;
  void* out;    // [rows, width], no gaps
  void* slots;  // acc [work->slots, width]: pieces of cut rows
};

// rows[i, :] = matrix[index[i], :], whatever a row's bytes mean, in each block of rows; or matrix[index[i], :] +=
// rows[i, :], for all i in order, of float or double, in one block, with an index that nobody else writes to.
struct RowsArgs {
  int threads;
  int prefetch;
  bool nontemporal;  // write copies past the caches, where their lines allow
  DType dtype;       // for addition
  int64_t count;
  const void* index;  // int32 or int64 [count]
  bool wide_index;
  int64_t row_bytes;
  void* matrix;  // its rows `stride` bytes apart
  int64_t stride;
  int64_t blocks, matrix_rows;  // blocks of so many rows, one after the other
  void* rows;                   // [blocks, count], no gaps
  // For addition: entry i adds the row of number sources[i] of `sources_rows`, times weights[i].
  const void* sources;  // as the index; null: i
  const void* weights;  // [count] of dtype; null: 1
  int64_t sources_rows;
};

// out[i] = x[i] * (scale where bit i % 64 of bits[i / 64] is 1, else 0): the last step of a dropout.
struct KeepArgs {
  DType dtype;
  bool nontemporal;  // write out past the caches, where its lines allow
  int64_t count;
  double scale;   // exact in dtype
  const void* x;  // [count]; null stands for ones
  const uint64_t* bits;
  void* out;  // [count]
};

// Softmax over every row's edges, for each head: out = exp(s - max s) / (sum of exp(s - max s) + 1e-16),
// or, given the softmax a in place of the scores, and a gradient g: out = a (g - sum of a g).
// All arrays are [edges, heads], without gaps, in the caller's edge order.
struct EdgeSoftmaxArgs {
  const Csr* csr;
  const WorkList* work;
  DType dtype;
  int threads;
  int64_t heads;
  const void* scores;
  const void* grad;  // for the gradient only
  void* out;
  void* slots;  // acc [work->slots, 2 * heads]: what pieces of cut rows come to
};

// How attention scores an edge from source j to destination i, for each head:
// gat     leaky(key[j] + query[i] + edge)             key and query are numbers of nodes
// gatv2   att . leaky(value[j] + query[i] + edge)
// dot     factor * query[i] . (key[j] + edge)         and edge is added to value[j] too
enum class ScoreRule : int { gat, gatv2, dot };

// out[i] = the sum over edges of weight * value[j], with the weights of a softmax of scores over the edges of i.
//
// One struct for the forward pass and both sweeps of the backward pass. Rows of T are as far apart as their
// strides say; what is "acc" has no gaps. Only `csr` and `work` of the source sweep are those of the transpose.
struct AttendArgs {
  const Csr* csr;
  const WorkList* work;
  ScoreRule rule;
  DType dtype;  // of value, and T below
  int threads;
  int prefetch;
  int64_t heads, key_width, value_width;
  const void* value;  // T [src, heads, value_width]
  int64_t value_stride;
  const void* key;  // gat: acc [src, heads]; dot: T [src, heads, key_width]
  int64_t key_stride;
  const void* query;  // gat: acc [dst, heads]; else T [dst, heads, key_width]
  int64_t query_stride;
  const void* att;   // gatv2: acc [heads, key_width]
  const void* edge;  // gat: acc [edges, heads]; else T, rows in the caller's order
  int64_t edge_stride;
  int64_t edge_width;       // columns of `edge` where it is to be projected; 0 where it is [edges, heads, key_width]
  const void* edge_weight;  // acc [edge_width, heads * key_width]
  const void* mask;         // acc [edges, heads]
  double factor;            // slope of the leaky relu, or scale of the dot product
  double dropout;
  uint64_t seed;
  void* out;      // T [dst, heads, value_width]
  void* softmax;  // acc [dst, 2, heads]: largest score; 1 / sum of exponentials of the scores less that
  void* weights;  // acc [edges, heads], written by attend_weights
  // Of the backward pass.
  const void* grad;  // T, to out
  int64_t grad_stride;
  const void* grad_weights;     // acc [edges, heads], to the weights
  const void* weights_product;  // acc [dst, heads]: sum of weights * grad_weights
  bool weights_masked;          // whether the returned weights are those after mask and dropout
  void* statistics;             // acc [dst, 3, heads]: softmax, and the sum of weight * its gradient
  void* grad_query;             // of query's type, no gaps
  void* grad_att;               // acc, or null
  void* grad_edge;              // of edge's type, or null
  void* grad_edge_weight;       // acc, or null
  void* grad_value;             // T
  void* grad_key;               // of key's type
  void* slots;                  // acc [work->slots, attend_slot_width]: pieces of cut rows
};

// Numbers of a slot, enough for each of the kernels.
inline int64_t attend_slot_width(int64_t heads, int64_t key_width, int64_t value_width) {
  return heads * (key_width + value_width + 2);
}

// Over few edges, in the order in which they come: sums and means of weight * value, extrema of values, and attention,
// whose weights are softmaxes over each target's edges of
//   gat:   leaky(of_source + of_target), numbers of heads
//   gatv2: the sum over columns of att * leaky(of_source + of_target)
//   dot:   factor * the sum over columns of of_source * of_target
// float32 or float64. Arrays have no gaps; null pointers mean: left out.
enum class FewKind : int { sum, mean, max, min, gat, gatv2, dot, softmax };

struct FewArgs {
  DType dtype;
  FewKind kind;
  int64_t edges, sources, targets;  // sources and targets: rows
  const int64_t* source_ends;       // `stride` numbers apart; null: row i is that of edge i
  const int64_t* target_ends;
  int64_t stride;
  int64_t heads, columns;  // 1 head for sums
  double factor;           // of scores; the slope of leaky
  const void* values;      // [sources, heads, columns], what is added up; of softmax the scores, [edges, heads]
  const void* weight;      // [edges], of sums
  const void* of_source;   // [sources, heads] for gat, else [sources, heads, columns]
  const void* of_target;   // likewise, of targets
  const void* att;         // [heads, columns]
  void* out;               // [targets, heads, columns]; gradients of extrema read it
  void* alpha;             // [edges, heads], the weights of attention, and softmax
  void* scratch;           // [targets, heads] twice; for gradients [edges, heads] more, of extrema as out
  const void* grad;        // as out; of softmax as alpha
  void* grad_values;       // as values; so are the others
  void* grad_weight;
  void* grad_of_source;  // gatv2: grad_values
  void* grad_of_target;
  void* grad_att;
};

// Searches among points: points of a leaf of a tree, and points whose distances are computed at once.
constexpr int64_t kLeafPoints = 16, kFarthestPoints = 64, kRankedPoints = 64;

// Products of one point with all points of a cloud, and their squared norms.
struct ProductBounds {
  const double* products;
  const double* norms;
  double norm;  // of the one point
};

struct KernelTable {
  const char* name;
  int vector_bytes;
  void (*aggregate)(const AggregateArgs&);
  void (*extremum_grad_source)(const ExtremumGradArgs&);
  void (*extremum_grad_weight)(const ExtremumGradArgs&);
  void (*arg_extremum)(const ArgExtremumArgs&);
  void (*arg_extremum_grad_source)(const ArgExtremumGradArgs&);
  void (*arg_extremum_grad_weight)(const ArgExtremumGradArgs&);
  void (*sddmm)(const SddmmArgs&);
  void (*fusedmm)(const FusedmmArgs&);
  void (*tensor_product)(const TensorProductArgs&);
  void (*tensor_product_edges)(const TensorProductArgs&);
  // Return false if an entry of the index was not in [0, matrix_rows), or a source not in [0, sources_rows); each is
  // read and checked once, as it is used.
  bool (*copy_rows)(const RowsArgs&);
  bool (*add_rows)(const RowsArgs&);
  // Return false if an end of an edge was out of range.
  bool (*few_edges)(const FewArgs&);
  bool (*few_edges_grad)(const FewArgs&);
  void (*keep)(const KeepArgs&);
  // MT19937: words[624, 624 + count) from the 624 words before each; may write a vector's length further.
  void (*mersenne_words)(uint32_t* words, int64_t count);
  // bits: 1 for each pair of words whose 53-bit number, as torch makes it, is below `bound`; 0 in what is left over.
  void (*mersenne_below)(const uint32_t* pairs, int64_t count, uint64_t bound, uint64_t* bits);
  // block[k] = the exclusive or of words[k + term] over the terms, for the 624 words of a block.
  void (*mersenne_fold)(const uint32_t* words, const int32_t* terms, int64_t count, uint32_t* block);
  void (*edge_softmax)(const EdgeSoftmaxArgs&);
  void (*edge_softmax_grad)(const EdgeSoftmaxArgs&);
  void (*attend)(const AttendArgs&);
  void (*attend_weights)(const AttendArgs&);
  void (*attend_grad_dst)(const AttendArgs&);
  void (*attend_grad_src)(const AttendArgs&);
  // Adds up `count` floats.
  float (*stream_read)(const float* from, int64_t count, int threads);
  // Adds up rows of x, each of row_floats floats (a multiple of 16), chosen by index.
  float (*gather_rows)(const float* x, int64_t row_floats, const int32_t* index, int64_t count, int prefetch,
                       int threads);
  void (*message)(const MessageArgs&);
  // The squared distances of a point to those of a leaf, coordinates[dims, kLeafPoints]; returns a bit for each that
  // is not above `reach`.
  uint32_t (*leaf_distances)(const double* coordinates, const double* point, int64_t dims, double reach,
                             double* squared);
  // Sorts points by their squared distance, then by their number, and keeps the first `most`. The arrays have room for
  // kRankedPoints.
  void (*rank_points)(double* squared, int64_t* numbers, int64_t count, int64_t most);
  // The first of the points from `begin` on whose sum of squared norms, times `share`, less twice the product is not
  // above `limit`; `end` if there is none.
  int64_t (*next_within)(const ProductBounds& bounds, double share, double limit, int64_t begin, int64_t end);
  // Lowers squared[room] to the squared distances to the point that is picked, and returns the first of the largest.
  // coordinates[dims, room]; room is a multiple of kFarthestPoints.
  int64_t (*farthest_after)(const double* coordinates, int64_t room, int64_t dims, int64_t picked, double* squared);
};

// The table in use: the best the processor has, or what select_isa asked for.
const KernelTable& kernels();
// Null-terminated names of the levels this processor and this build have, best first.
const char* const* available_isas();
bool select_isa(const char* name);

}  // namespace onehop
