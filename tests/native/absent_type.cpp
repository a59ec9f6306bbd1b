// Stands in for aggregation of a type that this build of kernel_check leaves out.
#include <cstdlib>

#include "aggregate.hpp"

namespace onehop {
inline namespace ONEHOP_ISA {

template <class T>
void aggregate_as(const AggregateArgs&) {
  std::abort();
}

template void aggregate_as<ONEHOP_TYPE>(const AggregateArgs& args);

}  // namespace ONEHOP_ISA
}  // namespace onehop
