# Stops an installation of what was not built. LOCKSTEP_INSTALLED: the files that it would copy.

set(missing "")
foreach(file IN LISTS LOCKSTEP_INSTALLED)
  if(NOT EXISTS "${file}")
    cmake_path(GET file FILENAME name)
    list(APPEND missing "${name}")
  endif()
endforeach()
if(missing)
  list(JOIN missing ", " missing)
  message(FATAL_ERROR "[install] not built: ${missing}; run `make install PREFIX=...`, which builds it, or build the target "
                      "lockstep_installed")
endif()
