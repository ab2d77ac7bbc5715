# Tests: one program per folder, because each test file that includes LibTorch costs seconds to compile and link.

# Adds the test program NAME as one test: loading LibTorch takes half a second, so a process for each case would cost minutes.
#   lockstep_test(NAME SOURCES file... [LABELS label...] [LIBRARIES target...])
# Labels: unit (no threads), ranks (replicas as threads), process (several processes), gpu, sanitize (runs under the sanitizers;
# under ThreadSanitizer only with ranks).
function(lockstep_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LABELS;LIBRARIES")
  if(NOT arg_SOURCES)
    return()
  endif()
  lockstep_program(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE GTest::gtest GTest::gmock GTest::gtest_main ${arg_LIBRARIES})
  add_test(NAME ${name} COMMAND ${name})
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
  set_tests_properties(${name} PROPERTIES LABELS "${arg_LABELS}" TIMEOUT 900 ENVIRONMENT "${LOCKSTEP_TEST_ENVIRONMENT}")
endfunction()
