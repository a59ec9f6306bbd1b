// Aggregation for one type of features; compiled once per type, to keep each compilation short.
#pragma once

#include "onehop/kernels.hpp"
#include "simd.hpp"

namespace onehop {
inline namespace ONEHOP_ISA {

template <class T>
void aggregate_as(const AggregateArgs& args);

}  // namespace ONEHOP_ISA
}  // namespace onehop
