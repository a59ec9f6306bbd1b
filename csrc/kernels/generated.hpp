// The interface of a kernel that was generated at run time and compiled into a separate library.
//
// Only pointers and numbers: the library may come from another compiler, with another standard library.
#pragma once

#include <cstdint>

namespace onehop {

// Increase it when this header, or Job in aggregate_rows.hpp, changes.
inline constexpr int32_t kGeneratedVersion = 5;

enum class Kind : int { sum, max, min };
inline constexpr int kKinds = 3;

// The factor of a source's row: nothing, the caller's weight as a factor or as a term, or its scale.
enum class Factor : int { none, weight, term, scale };
inline constexpr int kFactors = 4;

// The rows [row, row_end) whole, and the edges [e, edge_end) of a cut row into a slot; both for the columns from
// `column` on. The job is a Job<T> of the type that `dtype` names.
struct GeneratedSweeps {
  void (*rows)(const void* job, int64_t row, int64_t row_end, int64_t column);
  void (*part)(const void* job, int64_t e, int64_t edge_end, int64_t column, int64_t slot);
};

struct Generated {
  int32_t version;
  int32_t job_bytes;                            // size of Job<T>
  int32_t dtype;                                // number of onehop::DType
  int64_t columns;                              // of one pass
  int64_t stride;                               // between rows of x, in numbers
  GeneratedSweeps sweeps[kKinds][2][kFactors];  // by kind, whether ties are counted, and factor; null: not there
};

}  // namespace onehop
