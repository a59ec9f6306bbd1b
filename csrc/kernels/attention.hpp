// Attention for one type of features; compiled once per type, to keep each compilation short.
#pragma once

#include "onehop/kernels.hpp"
#include "simd.hpp"

namespace onehop {
inline namespace ONEHOP_ISA {

template <class T>
void attend_as(const AttendArgs& args);
template <class T>
void attend_weights_as(const AttendArgs& args);
template <class T>
void attend_grad_dst_as(const AttendArgs& args);
template <class T>
void attend_grad_src_as(const AttendArgs& args);

}  // namespace ONEHOP_ISA
}  // namespace onehop
