// The kernels of one instruction set, as its table lists them.
#pragma once

#include "onehop/kernels.hpp"

namespace onehop {
inline namespace ONEHOP_ISA {

void aggregate(const AggregateArgs& args);
void extremum_grad_source(const ExtremumGradArgs& args);
void extremum_grad_weight(const ExtremumGradArgs& args);
void sddmm(const SddmmArgs& args);

}  // namespace ONEHOP_ISA
}  // namespace onehop
