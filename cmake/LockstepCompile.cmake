# How every target of this project is compiled: one set of flags, so that one precompiled header serves all.

option(LOCKSTEP_PRECOMPILE "Precompile LibTorch's headers, once for all targets" ON)

option(LOCKSTEP_UNITY "Compile the files of a folder together: a third of the time; OFF compiles file by file" ON)
set(LOCKSTEP_UNITY_FILES 12 CACHE STRING "How many files a unit of a unity build has at most")

# Checkouts in several folders share what the cache has: paths count from the checkout.
find_program(LOCKSTEP_CCACHE ccache)
if(LOCKSTEP_CCACHE AND PROJECT_IS_TOP_LEVEL AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env
      CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
      CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${LOCKSTEP_CCACHE})
endif()

set(lockstep_standard_headers
  <algorithm> <array> <atomic> <chrono> <condition_variable> <cstdint> <exception> <functional> <map> <memory> <mutex>
  <optional> <span> <sstream> <string> <string_view> <thread> <tuple> <utility> <variant> <vector>)

# Precompiled headers: one for the library with ATen, one for the tests with GoogleTest and the parts of LibTorch that most of
# them need, one for the examples with all of LibTorch. The others have only parts: <torch/torch.h> leaves templates of
# torch::nn to be instantiated at the end of every unit, 3 s even of an empty file. Files include the narrow LibTorch headers
# that they need. Other programs have none: one costs more than their few units save.
#
#   lockstep_precompile(TARGET SET header...)
# Targets with one SET share one precompiled header, so they need the same flags. The library's is its own.
function(lockstep_precompile target set)
  if(NOT LOCKSTEP_PRECOMPILE)
    return()
  endif()
  target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)
  if(set STREQUAL "library")
    target_precompile_headers(${target} PRIVATE ${ARGN} ${lockstep_standard_headers})
    return()
  endif()
  set(owner lockstep_${set}_headers)
  if(NOT TARGET ${owner})
    file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/${owner}.cpp" CONTENT "")
    add_library(${owner} OBJECT "${PROJECT_BINARY_DIR}/${owner}.cpp")
    lockstep_flags(${owner})
    target_compile_options(${owner} PRIVATE $<$<CONFIG:Release>:$<TARGET_PROPERTY:${target},LOCKSTEP_OPTIMISATION>>
                           $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)
    target_link_libraries(${owner} PRIVATE torch)
    if(set STREQUAL "test")
      target_link_libraries(${owner} PRIVATE GTest::gtest GTest::gmock)
    endif()
    target_precompile_headers(${owner} PRIVATE ${ARGN} ${lockstep_standard_headers})
  endif()
  target_precompile_headers(${target} REUSE_FROM ${owner})
endfunction()

# Sets what all targets share. Programs are compiled with -fPIC, not -fPIE, as a precompiled header fits one of them only.
function(lockstep_flags target)
  set_target_properties(${target} PROPERTIES
    CXX_STANDARD 20
    CXX_STANDARD_REQUIRED ON
    CXX_EXTENSIONS OFF
    POSITION_INDEPENDENT_CODE OFF)
  # Collections of garbage walk the precompiled header too: fewer of them save 7 to 9 % of the time.
  target_compile_options(${target} PRIVATE
    -fPIC $<$<CXX_COMPILER_ID:GNU>:--param=ggc-min-expand=400> $<$<CXX_COMPILER_ID:GNU>:--param=ggc-min-heapsize=2000000>)
  # __FILE__ counts from the checkout: objects do not depend on where it is, so that checkouts share what the cache has.
  target_compile_options(${target} PRIVATE "-fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=")
  target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}")
endfunction()

# Adds a program of this project: lockstep_program(NAME source...).
function(lockstep_program name)
  add_executable(${name} ${ARGN})
  lockstep_flags(${name})
  lockstep_optimise(${name} -O1)
  target_link_libraries(${name} PRIVATE lockstep::lockstep)
endfunction()

# Programs only call: what is fast is in the library and in LibTorch. Half of their compile time is optimisation.
function(lockstep_optimise target level)
  set_target_properties(${target} PROPERTIES LOCKSTEP_OPTIMISATION ${level})
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:${level}>)
endfunction()

# Compiles sources of the target together: LibTorch's headers and templates cost seconds a unit, whatever is in it. Called after
# all sources are listed.
#
#   lockstep_unity(TARGET [FILES])
# Units have sources of one folder, at most LOCKSTEP_UNITY_FILES of them. With FILES they have sources of any folders, at most
# FILES of them, and are of one size. Sources with properties of their own are compiled alone.
function(lockstep_unity target)
  if(NOT LOCKSTEP_UNITY)
    return()
  endif()
  get_target_property(sources ${target} SOURCES)
  get_target_property(directory ${target} SOURCE_DIR)
  list(FILTER sources INCLUDE REGEX "\\.cpp$")
  list(SORT sources)
  set(limit ${LOCKSTEP_UNITY_FILES})
  if(ARGC GREATER 1)
    list(LENGTH sources count)
    math(EXPR units "(${count} + ${ARGV1} - 1) / ${ARGV1}")
    math(EXPR limit "(${count} + ${units} - 1) / ${units}")
  endif()
  foreach(source IN LISTS sources)
    cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY "${directory}" NORMALIZE)
    set(folder all)
    if(ARGC EQUAL 1)
      cmake_path(GET source PARENT_PATH folder)
      cmake_path(RELATIVE_PATH folder BASE_DIRECTORY "${PROJECT_SOURCE_DIR}")
      string(MAKE_C_IDENTIFIER "${folder}" folder)
    endif()
    if(NOT DEFINED files_${folder})
      set(files_${folder} 0)
    endif()
    math(EXPR unit "${files_${folder}} / ${limit}")
    math(EXPR files_${folder} "${files_${folder}} + 1")
    set_source_files_properties("${source}" TARGET_DIRECTORY ${target} PROPERTIES UNITY_GROUP "${folder}_${unit}")
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  # The compiler takes a .cpp that a unit includes for a header, in which types of an anonymous namespace would be wrong.
  target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
endfunction()
