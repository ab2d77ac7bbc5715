# Says at the end of configuring what was found and what is built.

set(lockstep_command_state "no: CLI11 was not found")
if(TARGET lockstep_command)
  set(lockstep_command_state "yes")
elseif(NOT LOCKSTEP_BUILD_TOOLS)
  set(lockstep_command_state "no: LOCKSTEP_BUILD_TOOLS is off")
endif()

message(STATUS "lockstep ${PROJECT_VERSION}")
message(STATUS "  LibTorch     ${Torch_VERSION} in ${LOCKSTEP_TORCH_LIBRARY_DIR}")
message(STATUS "  build type   ${CMAKE_BUILD_TYPE}; ccache: ${LOCKSTEP_CCACHE}")
message(STATUS "  zlib         ${LOCKSTEP_ZLIB_STATE}")
message(STATUS "  protozero    ${LOCKSTEP_PROTOZERO_STATE}")
message(STATUS "  libjpeg      ${LOCKSTEP_JPEG_STATE}")
message(STATUS "  libpng       ${LOCKSTEP_PNG_STATE}")
message(STATUS "  libarchive   ${LOCKSTEP_ARCHIVE_STATE}")
message(STATUS "  command      ${lockstep_command_state}")
message(STATUS "  tests        ${LOCKSTEP_BUILD_TESTS}, examples ${LOCKSTEP_BUILD_EXAMPLES}, install ${LOCKSTEP_INSTALL}")
