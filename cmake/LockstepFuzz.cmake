# Fuzz targets. With LOCKSTEP_BUILD_FUZZ (preset `fuzz`, Clang) each is a program with libFuzzer, and the sources that it needs are
# compiled once for all, with the sanitizers. Otherwise all of them are one ordinary test that runs their corpora.

set_property(GLOBAL PROPERTY LOCKSTEP_FUZZ_TARGETS)

if(LOCKSTEP_BUILD_FUZZ)
  add_library(lockstep_fuzzed STATIC
    "${PROJECT_SOURCE_DIR}/lockstep/base/error.cpp" "${PROJECT_SOURCE_DIR}/lockstep/data/element/bytes.cpp"
    "${PROJECT_SOURCE_DIR}/lockstep/data/element/mapped_file.cpp" "${PROJECT_SOURCE_DIR}/lockstep/data/element/bus_errors.cpp"
    "${PROJECT_SOURCE_DIR}/lockstep/base/env.cpp")
  set_target_properties(lockstep_fuzzed PROPERTIES CXX_STANDARD 20 CXX_STANDARD_REQUIRED ON)
  target_include_directories(lockstep_fuzzed PUBLIC "${PROJECT_SOURCE_DIR}")
  target_compile_options(lockstep_fuzzed PUBLIC
    -O1 -g -fno-omit-frame-pointer -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize=vptr -fno-sanitize-recover=all)
  target_link_libraries(lockstep_fuzzed PUBLIC torch ${LOCKSTEP_ZLIB_LIBRARY} ${LOCKSTEP_IMAGE_LIBRARIES} ${LOCKSTEP_ARCHIVE_LIBRARY})
  set_source_files_properties("${LOCKSTEP_CRC32C_SOURCE}" PROPERTIES COMPILE_OPTIONS "${LOCKSTEP_CRC32C_OPTIONS}")
  add_custom_target(fuzz_targets)
endif()

# Adds the target NAME, of NAME_fuzz.cpp: lockstep_fuzz(NAME source...), sources of lockstep/data/formats.
function(lockstep_fuzz name)
  set_property(GLOBAL APPEND PROPERTY LOCKSTEP_FUZZ_TARGETS ${name})
  if(LOCKSTEP_BUILD_FUZZ)
    list(TRANSFORM ARGN PREPEND "${PROJECT_SOURCE_DIR}/lockstep/data/formats/" REGEX "^[^/]")
    target_sources(lockstep_fuzzed PRIVATE ${ARGN})
    add_executable(${name}_fuzz ${name}_fuzz.cpp)
    set_target_properties(${name}_fuzz PROPERTIES CXX_STANDARD 20 CXX_STANDARD_REQUIRED ON)
    target_link_libraries(${name}_fuzz PRIVATE lockstep_fuzzed)
    target_link_options(${name}_fuzz PRIVATE -fsanitize=fuzzer,address,undefined)
    add_dependencies(fuzz_targets ${name}_fuzz)
  endif()
endfunction()

# Adds the target NAME, of NAME_fuzz.cpp, which uses the whole library: lockstep_random_fuzz(NAME). Clang 14 cannot compile the
# headers of LibTorch's dispatcher, so it is built with the library, by its compiler, and random_inputs.cpp takes libFuzzer's place.
function(lockstep_random_fuzz name)
  if(LOCKSTEP_BUILD_FUZZ)
    return()
  endif()
  set_property(GLOBAL APPEND PROPERTY LOCKSTEP_FUZZ_TARGETS ${name})
  lockstep_test_program(${name}_fuzz ${name}_fuzz.cpp random_inputs.cpp)
  set_target_properties(${name}_fuzz PROPERTIES EXCLUDE_FROM_ALL ON)
endfunction()

# Makes the ordinary test, with all targets in one unit. All have one function's name; here each is called as its target.
function(lockstep_fuzz_finish)
  if(LOCKSTEP_BUILD_FUZZ)
    lockstep_unity(lockstep_fuzzed)
    return()
  endif()
  get_property(targets GLOBAL PROPERTY LOCKSTEP_FUZZ_TARGETS)
  set(declarations "")
  set(rows "")
  set(unit "")
  foreach(name IN LISTS targets)
    string(APPEND unit "#define LLVMFuzzerTestOneInput ${name}_fuzz
#include \"tests/fuzz/${name}_fuzz.cpp\"
#undef LLVMFuzzerTestOneInput
")
    string(APPEND declarations "extern \"C\" int ${name}_fuzz(const uint8_t*, size_t);\n")
    string(APPEND rows "    {\"${name}\", &${name}_fuzz},\n")
  endforeach()
  set(unit_source "${CMAKE_CURRENT_BINARY_DIR}/fuzz_targets.cpp")
  file(CONFIGURE OUTPUT "${unit_source}" CONTENT "@unit@" @ONLY)
  file(CONFIGURE OUTPUT "${CMAKE_CURRENT_BINARY_DIR}/fuzz_targets.h" CONTENT
"#include <cstddef>
#include <cstdint>
#include <utility>

@declarations@
constexpr std::pair<const char*, int (*)(const uint8_t*, size_t)> kFuzzTargets[] = {
@rows@};
" @ONLY)
  lockstep_test(lockstep_fuzz_corpus_test LABELS unit sanitize SOURCES fuzz_corpus_test.cpp "${unit_source}")
  target_include_directories(lockstep_fuzz_corpus_test PRIVATE "${CMAKE_CURRENT_BINARY_DIR}")
  target_compile_definitions(lockstep_fuzz_corpus_test PRIVATE
    LOCKSTEP_FUZZ_CORPUS="${CMAKE_CURRENT_SOURCE_DIR}/corpus")
endfunction()
