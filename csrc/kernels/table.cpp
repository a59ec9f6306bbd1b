// The table of this instruction set's kernels.
#include "aggregate.hpp"
#include "attention.hpp"
#include "sweep.hpp"
#include "tables.hpp"

#define ONEHOP_TEXT_OF(x) #x
#define ONEHOP_TEXT(x) ONEHOP_TEXT_OF(x)
#define ONEHOP_JOIN_OF(a, b) a##b
#define ONEHOP_JOIN(a, b) ONEHOP_JOIN_OF(a, b)

namespace onehop {
inline namespace ONEHOP_ISA {

void aggregate(const AggregateArgs& args) {
  with_type(args.dtype, [&]<class T>(T) { aggregate_as<T>(args); });
}
void attend(const AttendArgs& args) {
  with_type(args.dtype, [&]<class T>(T) { attend_as<T>(args); });
}
void attend_weights(const AttendArgs& args) {
  with_type(args.dtype, [&]<class T>(T) { attend_weights_as<T>(args); });
}
void attend_grad_dst(const AttendArgs& args) {
  with_type(args.dtype, [&]<class T>(T) { attend_grad_dst_as<T>(args); });
}
void attend_grad_src(const AttendArgs& args) {
  with_type(args.dtype, [&]<class T>(T) { attend_grad_src_as<T>(args); });
}

}  // namespace ONEHOP_ISA

const KernelTable& ONEHOP_JOIN(table_of_, ONEHOP_ISA)() {
  static const KernelTable table{
      .name = ONEHOP_TEXT(ONEHOP_ISA),
      .vector_bytes = kVectorBytes,
      .aggregate = aggregate,
      .extremum_grad_source = extremum_grad_source,
      .extremum_grad_weight = extremum_grad_weight,
      .arg_extremum = arg_extremum,
      .arg_extremum_grad_source = arg_extremum_grad_source,
      .arg_extremum_grad_weight = arg_extremum_grad_weight,
      .sddmm = sddmm,
      .fusedmm = fusedmm,
      .tensor_product = tensor_product,
      .tensor_product_edges = tensor_product_edges,
      .copy_rows = copy_rows,
      .add_rows = add_rows,
      .few_edges = few_edges,
      .few_edges_grad = few_edges_grad,
      .keep = keep,
      .mersenne_words = mersenne_words,
      .mersenne_below = mersenne_below,
      .mersenne_fold = mersenne_fold,
      .edge_softmax = edge_softmax,
      .edge_softmax_grad = edge_softmax_grad,
      .attend = attend,
      .attend_weights = attend_weights,
      .attend_grad_dst = attend_grad_dst,
      .attend_grad_src = attend_grad_src,
      .stream_read = stream_read,
      .gather_rows = gather_rows,
      .message = message,
      .leaf_distances = leaf_distances,
      .rank_points = rank_points,
      .next_within = next_within,
      .farthest_after = farthest_after,
  };
  return table;
}

}  // namespace onehop
