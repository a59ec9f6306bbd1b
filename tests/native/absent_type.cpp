// Stands in for aggregation and attention of a type that this build of kernel_check leaves out.
#include <cstdlib>

#include "aggregate.hpp"
#include "attention.hpp"

namespace onehop {
inline namespace ONEHOP_ISA {

template <class T>
void aggregate_as(const AggregateArgs&) {
  std::abort();
}
template <class T>
void attend_as(const AttendArgs&) {
  std::abort();
}
template <class T>
void attend_weights_as(const AttendArgs&) {
  std::abort();
}
template <class T>
void attend_grad_dst_as(const AttendArgs&) {
  std::abort();
}
template <class T>
void attend_grad_src_as(const AttendArgs&) {
  std::abort();
}

template void aggregate_as<ONEHOP_TYPE>(const AggregateArgs& args);
template void attend_as<ONEHOP_TYPE>(const AttendArgs& args);
template void attend_weights_as<ONEHOP_TYPE>(const AttendArgs& args);
template void attend_grad_dst_as<ONEHOP_TYPE>(const AttendArgs& args);
template void attend_grad_src_as<ONEHOP_TYPE>(const AttendArgs& args);

}  // namespace ONEHOP_ISA
}  // namespace onehop
