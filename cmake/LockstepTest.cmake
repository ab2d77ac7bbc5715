# Tests: one program per folder, because each test file that includes LibTorch costs seconds to compile and link.

include(GoogleTest)

# Adds the test program NAME and registers each of its cases.
#   lockstep_test(NAME SOURCES file... [LABELS label...] [LIBRARIES target...])
# Labels: unit (no threads), ranks (replicas as threads), process (several processes), gpu, sanitize (runs under the sanitizers).
function(lockstep_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LABELS;LIBRARIES")
  if(NOT arg_SOURCES)
    return()
  endif()
  lockstep_program(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE GTest::gtest GTest::gmock GTest::gtest_main ${arg_LIBRARIES})
  gtest_discover_tests(${name}
    DISCOVERY_MODE PRE_TEST
    DISCOVERY_TIMEOUT 120
    PROPERTIES LABELS "${arg_LABELS}" TIMEOUT 300 ENVIRONMENT "${LOCKSTEP_TEST_ENVIRONMENT}")
endfunction()
