// The memory of torch's tensors: large ones from the pool, so that the next large tensor has its pages already.
#pragma once

#include <cstdint>

namespace onehop {

// From now on large tensors of torch on the CPU take their memory from the pool, and return it there. False if that
// cannot be had: see redirect_imports.
bool keep_tensor_memory();

// Has torch allocate as it did before. What the pool keeps stays there; tensors still return what they took.
void pause_keeping();

// Whether memory at this address is in use by a tensor that took it from the pool.
bool is_from_pool(const void* data);

}  // namespace onehop
