# How every target of this project is compiled: one set of flags, so that one precompiled header serves all.

option(LOCKSTEP_PRECOMPILE "Precompile LibTorch's headers, once for all targets" ON)

find_program(LOCKSTEP_CCACHE ccache)
if(LOCKSTEP_CCACHE AND PROJECT_IS_TOP_LEVEL AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env
      CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime ${LOCKSTEP_CCACHE})
endif()

set(lockstep_standard_headers
  <algorithm> <array> <atomic> <chrono> <condition_variable> <cstdint> <exception> <functional> <map> <memory> <mutex>
  <optional> <span> <sstream> <string> <string_view> <thread> <tuple> <utility> <variant> <vector>)

# Two precompiled headers, measured with an empty file at -O3: with ATen alone 1.4 s, with all of LibTorch 4.6 s (templates
# that it leaves to instantiate), with neither and #include <torch/torch.h> 24 s. So the library has ATen, and its files
# include the narrow LibTorch headers that they need; programs, and with them all tests, share one with everything.
function(lockstep_precompile target)
  if(NOT LOCKSTEP_PRECOMPILE)
    return()
  endif()
  target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)
  if(target STREQUAL "lockstep")
    target_precompile_headers(lockstep PRIVATE <ATen/ATen.h> ${lockstep_standard_headers})
  elseif(target STREQUAL "lockstep_program_headers")
    target_precompile_headers(${target} PRIVATE <torch/torch.h> ${lockstep_standard_headers})
  else()
    if(NOT TARGET lockstep_program_headers)
      file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/program_headers.cpp" CONTENT "")
      add_library(lockstep_program_headers OBJECT "${PROJECT_BINARY_DIR}/program_headers.cpp")
      lockstep_compile(lockstep_program_headers)
      target_link_libraries(lockstep_program_headers PRIVATE torch)
    endif()
    target_precompile_headers(${target} REUSE_FROM lockstep_program_headers)
  endif()
endfunction()

# Sets what all targets share. Programs are compiled with -fPIC, not -fPIE, as a precompiled header fits one of them only.
function(lockstep_compile target)
  set_target_properties(${target} PROPERTIES
    CXX_STANDARD 20
    CXX_STANDARD_REQUIRED ON
    CXX_EXTENSIONS OFF)
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_compile_options(${target} PRIVATE -fPIC)
  if(NOT target STREQUAL "lockstep")
    # Programs only call: what is fast is in the library and in LibTorch. A third of their compile time is optimisation.
    target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
  endif()
  target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}")
  lockstep_precompile(${target})
endfunction()

# Adds a program of this project: lockstep_program(NAME source...).
function(lockstep_program name)
  add_executable(${name} ${ARGN})
  lockstep_compile(${name})
  target_link_libraries(${name} PRIVATE lockstep::lockstep)
endfunction()
