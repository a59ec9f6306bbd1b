# The engine, without Python: its sources, the instruction sets of the target processor, and the flags of each.
# The extension (../CMakeLists.txt) and the native tests (../tests/native) are made from the same lines.

set(ONEHOP_OPTIMISE -O3 CACHE STRING "How far kernels are optimised")
set(ONEHOP_TYPES float double bfloat16 float16 CACHE STRING "Types that aggregation and attention are compiled for")
option(ONEHOP_WERROR "Treat warnings as errors" OFF)
set(ONEHOP_SANITIZE "" CACHE STRING "Sanitizers, as -fsanitize takes them, for all that is made below")

set(onehop_csrc ${CMAKE_CURRENT_LIST_DIR})
set(onehop_warnings -Wall -Wextra -Wno-psabi)
if(ONEHOP_WERROR)
  list(APPEND onehop_warnings -Werror)
endif()

if(ONEHOP_SANITIZE)
  add_compile_options(-fsanitize=${ONEHOP_SANITIZE} -fno-omit-frame-pointer -g1 -D_GLIBCXX_ASSERTIONS)
  add_link_options(-fsanitize=${ONEHOP_SANITIZE})
endif()

set(onehop_isas portable)
set(onehop_flags_portable)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  list(APPEND onehop_isas avx2 avx512)
  set(onehop_flags_avx2 -mavx2 -mfma -mf16c)
  # GCC 12's own AVX-512 header trips these two warnings.
  set(onehop_flags_avx512 -Wno-maybe-uninitialized -Wno-uninitialized -mavx512f -mavx512bw -mavx512dq -mavx512vl
                          -mfma -mf16c -mprefer-vector-width=512)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  list(APPEND onehop_isas neon)
  set(onehop_flags_neon)
endif()

# all, or native: the best of these for this machine, and the portable one.
if(NOT ONEHOP_ISAS)
  set(ONEHOP_ISAS $ENV{ONEHOP_ISAS})
endif()
if(NOT ONEHOP_ISAS)
  set(ONEHOP_ISAS all)
endif()
if(ONEHOP_ISAS STREQUAL native)
  if("avx512" IN_LIST onehop_isas)
    execute_process(COMMAND ${CMAKE_CXX_COMPILER} -march=native -dM -E -x c++ /dev/null
                    OUTPUT_VARIABLE onehop_macros COMMAND_ERROR_IS_FATAL ANY)
    set(onehop_isas portable)
    foreach(isa avx2 avx512)
      string(TOUPPER "${onehop_flags_${isa}}" onehop_needed)
      string(REGEX MATCHALL "(AVX|FMA|F16C)[A-Z0-9]*" onehop_needed "${onehop_needed}")
      set(onehop_runs ON)
      foreach(feature ${onehop_needed})
        if(NOT onehop_macros MATCHES "#define __${feature}__ ")
          set(onehop_runs OFF)
        endif()
      endforeach()
      if(onehop_runs)
        set(onehop_isas portable ${isa})
      endif()
    endforeach()
  endif()
elseif(NOT ONEHOP_ISAS STREQUAL all)
  message(FATAL_ERROR "ONEHOP_ISAS: expected all or native, got \"${ONEHOP_ISAS}\".")
endif()
message(STATUS "Kernels are compiled for: ${onehop_isas}")
set(onehop_has)
foreach(isa ${onehop_isas})
  string(TOUPPER ONEHOP_HAS_${isa} macro)
  list(APPEND onehop_has ${macro})
endforeach()

# Adds the runtime, and every kernel source once per instruction set (aggregation and attention, the
# largest, once per type as well) to a target.
function(onehop_add_engine target)
  foreach(name communities csr csr_build denormals dispatch dropout edge_marks edge_sort few_edges fingerprint fork_safe_mutex imports integer_set integers joining key_sort mapped_rows masked matching mersenne parallel pool process_memory tensor_memory turn)
    target_sources(${target} PRIVATE ${onehop_csrc}/runtime/${name}.cpp)
  endforeach()
  foreach(name batch draw induce negatives running_sums walks)
    target_sources(${target} PRIVATE ${onehop_csrc}/sampling/${name}.cpp)
  endforeach()
  foreach(name columns farthest found images kept lattice periodic products tree)
    target_sources(${target} PRIVATE ${onehop_csrc}/points/${name}.cpp)
  endforeach()
  # A product that is fused with a sum would round otherwise than torch's squares and sums.
  set_source_files_properties(${onehop_csrc}/points/kept.cpp ${onehop_csrc}/points/periodic.cpp
                              ${onehop_csrc}/points/products.cpp TARGET_DIRECTORY ${target}
                              PROPERTIES COMPILE_OPTIONS -ffp-contract=off)
  target_include_directories(${target} PRIVATE ${onehop_csrc}/include)
  target_link_libraries(${target} PRIVATE ${CMAKE_DL_LIBS})
  target_compile_options(${target} PRIVATE ${onehop_warnings})
  target_compile_definitions(${target} PRIVATE ${onehop_has})
  foreach(isa ${onehop_isas})
    set(library kernels_${isa})
    add_library(${library} OBJECT ${onehop_csrc}/kernels/arg_extremum.cpp ${onehop_csrc}/kernels/dropout.cpp
                                  ${onehop_csrc}/kernels/edge_softmax.cpp
                                  ${onehop_csrc}/kernels/extremum.cpp ${onehop_csrc}/kernels/limits.cpp
                                  ${onehop_csrc}/kernels/fusedmm.cpp ${onehop_csrc}/kernels/mersenne.cpp
                                  ${onehop_csrc}/kernels/message.cpp ${onehop_csrc}/kernels/points.cpp
                                  ${onehop_csrc}/kernels/few.cpp
                                  ${onehop_csrc}/kernels/rows.cpp
                                  ${onehop_csrc}/kernels/sddmm.cpp ${onehop_csrc}/kernels/table.cpp
                                  ${onehop_csrc}/kernels/tensor_product.cpp)
    set_source_files_properties(${onehop_csrc}/kernels/points.cpp TARGET_DIRECTORY ${library}
                                PROPERTIES COMPILE_OPTIONS -ffp-contract=off)
    set(parts ${library})
    foreach(type ${ONEHOP_TYPES})
      add_library(${library}_${type} OBJECT ${onehop_csrc}/kernels/aggregate.cpp ${onehop_csrc}/kernels/attention.cpp
                                          ${onehop_csrc}/kernels/attention_grad_dst.cpp
                                          ${onehop_csrc}/kernels/attention_grad_src.cpp)
      target_compile_definitions(${library}_${type} PRIVATE ONEHOP_TYPE=${type})
      list(APPEND parts ${library}_${type})
    endforeach()
    # Beside this machine's kernels, the portable ones are there to be tested: -O1 takes half as long.
    set(optimise ${ONEHOP_OPTIMISE})
    if(ONEHOP_ISAS STREQUAL native AND isa STREQUAL portable AND NOT "${onehop_isas}" STREQUAL portable
       AND optimise STREQUAL -O3)
      set(optimise -O1)
    endif()
    foreach(part ${parts})
      target_compile_definitions(${part} PRIVATE ONEHOP_ISA=${isa})
      target_compile_options(${part} PRIVATE ${optimise} -fno-math-errno -fvisibility=hidden
                                             ${onehop_warnings} ${onehop_flags_${isa}})
      target_include_directories(${part} PRIVATE ${onehop_csrc}/include ${onehop_csrc}/kernels)
      target_sources(${target} PRIVATE $<TARGET_OBJECTS:${part}>)
    endforeach()
  endforeach()
endfunction()

# Puts the text of the headers that kernels are generated from at run time into the extension, so that it is always
# the text that the built-in kernels were compiled from.
function(onehop_embed_templates target)
  set(entries "")
  foreach(name simd blocks generated aggregate_rows generated_kernel)
    set(file ${onehop_csrc}/kernels/${name}.hpp)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
    file(READ ${file} text)
    string(APPEND entries "    {\"${name}.hpp\", R\"onehop(${text})onehop\"},\n")
  endforeach()
  file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/templates/templates.hpp @ONLY CONTENT
"#pragma once

namespace onehop {

inline constexpr struct {
  const char* name;
  const char* text;
} kTemplates[] = {
@entries@};

}  // namespace onehop
")
  target_include_directories(${target} PRIVATE ${CMAKE_CURRENT_BINARY_DIR}/templates)
endfunction()
