// The kernels of one instruction set, as its table lists them.
#pragma once

#include "onehop/kernels.hpp"

namespace onehop {
inline namespace ONEHOP_ISA {

void aggregate(const AggregateArgs& args);
void extremum_grad_source(const ExtremumGradArgs& args);
void extremum_grad_weight(const ExtremumGradArgs& args);
void arg_extremum(const ArgExtremumArgs& args);
void arg_extremum_grad_source(const ArgExtremumGradArgs& args);
void arg_extremum_grad_weight(const ArgExtremumGradArgs& args);
void sddmm(const SddmmArgs& args);
void fusedmm(const FusedmmArgs& args);
void tensor_product(const TensorProductArgs& args);
void tensor_product_edges(const TensorProductArgs& args);
void message(const MessageArgs& args);
bool copy_rows(const RowsArgs& args);
bool add_rows(const RowsArgs& args);
bool few_edges(const FewArgs& args);
bool few_edges_grad(const FewArgs& args);
void keep(const KeepArgs& args);
void mersenne_words(uint32_t* words, int64_t count);
void mersenne_below(const uint32_t* pairs, int64_t count, uint64_t bound, uint64_t* bits);
void mersenne_fold(const uint32_t* words, const int32_t* terms, int64_t count, uint32_t* block);
void edge_softmax(const EdgeSoftmaxArgs& args);
void edge_softmax_grad(const EdgeSoftmaxArgs& args);
void attend(const AttendArgs& args);
void attend_weights(const AttendArgs& args);
void attend_grad_dst(const AttendArgs& args);
void attend_grad_src(const AttendArgs& args);
uint32_t leaf_distances(const double* coordinates, const double* point, int64_t dims, double reach, double* squared);
void rank_points(double* squared, int64_t* numbers, int64_t count, int64_t most);
int64_t next_within(const ProductBounds& bounds, double share, double limit, int64_t begin, int64_t end);
int64_t farthest_after(const double* coordinates, int64_t room, int64_t dims, int64_t picked, double* squared);
float stream_read(const float* from, int64_t count, int threads);
float gather_rows(const float* x, int64_t row_floats, const int32_t* index, int64_t count, int prefetch, int threads);

}  // namespace ONEHOP_ISA
}  // namespace onehop
