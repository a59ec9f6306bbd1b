// Selection of an instruction set: a table of the compiled ones, best first, and one function that picks.
#include <atomic>
#include <cstring>

#include "onehop/kernels.hpp"

namespace onehop {

const KernelTable& table_of_portable();
#if defined(ONEHOP_HAS_AVX2)
const KernelTable& table_of_avx2();
#endif
#if defined(ONEHOP_HAS_AVX512)
const KernelTable& table_of_avx512();
#endif
#if defined(ONEHOP_HAS_NEON)
const KernelTable& table_of_neon();
#endif

namespace {

struct Level {
  const char* name;
  const KernelTable& (*table)();
  bool (*runs_here)();
};

constexpr Level kLevels[] = {
#if defined(ONEHOP_HAS_AVX512)
    {"avx512", table_of_avx512,
     [] {
       return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
              __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
              __builtin_cpu_supports("f16c");
     }},
#endif
#if defined(ONEHOP_HAS_AVX2)
    {"avx2", table_of_avx2,
     [] { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c"); }},
#endif
#if defined(ONEHOP_HAS_NEON)
    {"neon", table_of_neon, [] { return true; }},
#endif
    {"portable", table_of_portable, [] { return true; }},
};
constexpr int kLevelCount = sizeof(kLevels) / sizeof(kLevels[0]);

std::atomic<const KernelTable*> selected{nullptr};

}  // namespace

const KernelTable& kernels() {
  const KernelTable* table = selected.load(std::memory_order_acquire);
  if (table == nullptr) {
    select_isa(available_isas()[0]);
    table = selected.load(std::memory_order_acquire);
  }
  return *table;
}

const char* const* available_isas() {
  static const auto names = [] {
    struct Names {
      const char* list[kLevelCount + 1] = {};
    } found;
    int count = 0;
    for (const Level& level : kLevels) {
      if (level.runs_here()) found.list[count++] = level.name;
    }
    return found;
  }();
  return names.list;
}

bool select_isa(const char* name) {
  for (const Level& level : kLevels) {
    if (std::strcmp(level.name, name) == 0 && level.runs_here()) {
      selected.store(&level.table(), std::memory_order_release);
      return true;
    }
  }
  return false;
}

}  // namespace onehop
