// Denormal numbers: below 2^-126, float's least with all bits. Processors take a hundred cycles and more for each.
#pragma once

#include <cstdint>

namespace onehop {

// Whether a product is much slower for the denormals of an operand, and none the more exact: some of 512 places have
// one, and the largest of these numbers is at least 2^-64, so that what rounds there is far above all denormals.
bool meets_denormals(const float* x, int64_t count);

// Copies x[count] with 0 for each denormal.
void flush_denormals(const float* x, int64_t count, float* out, int threads);

}  // namespace onehop
