# Tests: one program per folder, because each test file that includes LibTorch costs seconds to compile and link.

# Adds a program that only tests run, not optimised: lockstep_test_program(NAME source...).
function(lockstep_test_program name)
  add_executable(${name} ${ARGN})
  lockstep_test_object(${name})
  target_link_libraries(${name} PRIVATE lockstep::lockstep)
endfunction()

# Compiles a target of sources that tests share like a test program.
function(lockstep_test_object target)
  lockstep_flags(${target})
  lockstep_optimise(${target} -O0)
  target_link_libraries(${target} PRIVATE GTest::gtest GTest::gmock)
  lockstep_precompile(${target} test <torch/types.h> <torch/utils.h> <torch/nn/module.h> <torch/optim/adam.h>
                      <torch/optim/adamw.h> <torch/optim/sgd.h> <gmock/gmock.h> <gtest/gtest.h>)
  lockstep_unity(${target} 16)
endfunction()

# How much of the machine a test keeps busy (PROCESSORS), of five units that the test presets run at a time: both of two cores,
# one of them, or little, because it waits for timeouts and other processes.
set(LOCKSTEP_BOTH_CORES 5)
set(LOCKSTEP_ONE_CORE 2)
set(LOCKSTEP_WAITS 1)

# For tests of XLA's results: code that LLVM does not optimise is compiled in two thirds of the time.
set(LOCKSTEP_XLA_TEST_FLAGS "XLA_FLAGS=--xla_backend_optimization_level=0")

# Adds the test program NAME as one test: loading LibTorch takes half a second, so a process for each case would cost minutes.
#   lockstep_test(NAME SOURCES file... [LABELS label...] [LIBRARIES target...] [ENVIRONMENT VARIABLE=value...]
#                 [SHARDS count] [COST seconds])
# Labels: unit (no threads), ranks (replicas as threads), process (several processes), gpu, sanitize (runs under the sanitizers;
# under ThreadSanitizer only with ranks). With SHARDS its cases are divided into as many tests, NAME_1 and so on. COST: tests
# that take long begin first.
function(lockstep_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "SHARDS;COST" "SOURCES;LABELS;LIBRARIES;ENVIRONMENT")
  if(NOT arg_SOURCES)
    return()
  endif()
  lockstep_test_program(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE GTest::gtest_main ${arg_LIBRARIES})
  if(NOT TARGET sanitized_tests)
    add_custom_target(sanitized_tests)  # what AddressSanitizer looks at
    add_custom_target(threaded_tests)   # what ThreadSanitizer does
  endif()
  if("sanitize" IN_LIST arg_LABELS)
    add_dependencies(sanitized_tests ${name})
    if("ranks" IN_LIST arg_LABELS)
      add_dependencies(threaded_tests ${name})
      list(APPEND arg_LABELS threads)
    endif()
  endif()
  set(load ${LOCKSTEP_ONE_CORE})
  if("process" IN_LIST arg_LABELS)
    set(load ${LOCKSTEP_WAITS})
  elseif("ranks" IN_LIST arg_LABELS)
    set(load ${LOCKSTEP_BOTH_CORES})
  endif()
  set(tests ${name})
  if(arg_SHARDS)
    set(tests "")
    foreach(shard RANGE 1 ${arg_SHARDS})
      list(APPEND tests ${name}_${shard})
    endforeach()
  endif()
  set(shard 0)
  foreach(test IN LISTS tests)
    add_test(NAME ${test} COMMAND ${name})
    # The results are for scripts/check_skips.py.
    set(environment "GTEST_OUTPUT=xml:${PROJECT_BINARY_DIR}/test_results/${test}.xml" ${LOCKSTEP_TEST_ENVIRONMENT} ${arg_ENVIRONMENT})
    if(arg_SHARDS)
      list(APPEND environment GTEST_TOTAL_SHARDS=${arg_SHARDS} GTEST_SHARD_INDEX=${shard})
      math(EXPR shard "${shard} + 1")
    endif()
    set_tests_properties(${test} PROPERTIES LABELS "${arg_LABELS}" TIMEOUT 900 PROCESSORS ${load} ENVIRONMENT "${environment}")
    if(arg_COST)
      set_tests_properties(${test} PROPERTIES COST ${arg_COST})
    endif()
  endforeach()
endfunction()

# Makes the cases of the test NAME that are under strategies on XLA a test of their own, XLA_NAME: they compile for most of their
# time, on one core, and run beside others.
#   lockstep_xla_apart(NAME XLA_NAME COST seconds)
function(lockstep_xla_apart name xla_name)
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "COST" "")
  set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT "GTEST_FILTER=-*TPU*")
  add_test(NAME ${xla_name} COMMAND ${name})
  get_test_property(${name} LABELS labels)
  set_tests_properties(${xla_name} PROPERTIES LABELS "${labels}" TIMEOUT 900
    SKIP_REGULAR_EXPRESSION "Running 0 tests"  # without a plugin
    PROCESSORS ${LOCKSTEP_ONE_CORE} COST ${arg_COST}
    ENVIRONMENT
    "GTEST_OUTPUT=xml:${PROJECT_BINARY_DIR}/test_results/${xla_name}.xml;${LOCKSTEP_TEST_ENVIRONMENT};GTEST_FILTER=*TPU*;${LOCKSTEP_XLA_TEST_FLAGS}")
endfunction()
