# Finds what lockstep/data/formats is built with. What is absent has a file that says so in its place.

set(formats "${PROJECT_SOURCE_DIR}/lockstep/data/formats")

# The checksum's instruction: compiled in where the processor's family has it, asked for at run time.
set(LOCKSTEP_CRC32C_SOURCE "${formats}/crc32c_no_hardware.cpp")
if(CMAKE_SYSTEM_NAME STREQUAL "Linux" AND CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$")
  set(LOCKSTEP_CRC32C_SOURCE "${formats}/crc32c_arm64.cpp")
  set(crc32c_options -march=armv8-a+crc)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
  set(LOCKSTEP_CRC32C_SOURCE "${formats}/crc32c_x86_64.cpp")
  set(crc32c_options -msse4.2)
endif()
set_source_files_properties("${LOCKSTEP_CRC32C_SOURCE}" PROPERTIES
  COMPILE_OPTIONS "${crc32c_options}" SKIP_PRECOMPILE_HEADERS ON)

find_package(ZLIB QUIET)
if(ZLIB_FOUND)
  set(LOCKSTEP_ZLIB_SOURCES "${formats}/inflate.cpp" "${formats}/deflate.cpp" "${formats}/zip_deflate.cpp")
  set(LOCKSTEP_ZLIB_LIBRARY ZLIB::ZLIB)
  set(LOCKSTEP_ZLIB_STATE "${ZLIB_VERSION_STRING}")
else()
  set(LOCKSTEP_ZLIB_SOURCES "${formats}/no_zlib.cpp" "${formats}/no_zip_deflate.cpp")
  set(LOCKSTEP_ZLIB_LIBRARY "")
  set(LOCKSTEP_ZLIB_STATE "no: gzip and zlib files cannot be read; install zlib1g-dev")
endif()

# Headers only.
find_path(LOCKSTEP_PROTOZERO protozero/pbf_message.hpp)
mark_as_advanced(LOCKSTEP_PROTOZERO)
if(LOCKSTEP_PROTOZERO)
  set(LOCKSTEP_EXAMPLE_SOURCES "${formats}/example.cpp" "${formats}/example_build.cpp")
  set(LOCKSTEP_PROTOZERO_STATE "in ${LOCKSTEP_PROTOZERO}")
else()
  set(LOCKSTEP_EXAMPLE_SOURCES "${formats}/no_protozero.cpp")
  set(LOCKSTEP_PROTOZERO_STATE "no: tf.Example cannot be parsed; install libprotozero-dev")
endif()
