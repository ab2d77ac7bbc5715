# How every target of this project is compiled: one set of flags, so that one precompiled header serves all.

option(LOCKSTEP_PRECOMPILE "Precompile LibTorch's headers, once for all targets" ON)

find_program(LOCKSTEP_CCACHE ccache)
if(LOCKSTEP_CCACHE AND PROJECT_IS_TOP_LEVEL AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env
      CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime ${LOCKSTEP_CCACHE})
endif()

# Precompiles for the library, and lets every later target use the result.
function(lockstep_precompile target)
  if(NOT LOCKSTEP_PRECOMPILE)
    return()
  endif()
  target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)
  if(target STREQUAL "lockstep")
    target_precompile_headers(lockstep PRIVATE
      <torch/torch.h> <algorithm> <array> <atomic> <chrono> <condition_variable> <cstdint> <exception> <functional> <map>
      <memory> <mutex> <optional> <span> <sstream> <string> <string_view> <thread> <tuple> <utility> <variant> <vector>)
  else()
    target_precompile_headers(${target} REUSE_FROM lockstep)
  endif()
endfunction()

# Sets what all targets share. Programs are compiled with the library's -fPIC, not -fPIE: a precompiled header fits one only.
function(lockstep_compile target)
  set_target_properties(${target} PROPERTIES
    CXX_STANDARD 20
    CXX_STANDARD_REQUIRED ON
    CXX_EXTENSIONS OFF
    CXX_VISIBILITY_PRESET hidden
    VISIBILITY_INLINES_HIDDEN ON)
  get_target_property(type ${target} TYPE)
  if(type STREQUAL "EXECUTABLE")
    set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
    target_compile_options(${target} PRIVATE -fPIC)
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
