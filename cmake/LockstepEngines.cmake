# Finds what lockstep/comm/engines is built with. What is absent is not built, and the table of engines says so.
# Each engine is a shared object of its own beside the library, opened at run time; see lockstep/comm/transport/engine_module.h.

# Adds the engine NAME to the library: lockstep_engine_module(NAME SOURCES file... [LIBRARIES target...]).
function(lockstep_engine_module name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LIBRARIES")
  set(target lockstep_${name})
  add_library(${target} MODULE ${arg_SOURCES})
  set_target_properties(${target} PROPERTIES
    CXX_STANDARD 20
    CXX_STANDARD_REQUIRED ON
    CXX_EXTENSIONS OFF
    CXX_VISIBILITY_PRESET hidden
    POSITION_INDEPENDENT_CODE ON
    INSTALL_RPATH "\$ORIGIN")
  target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}")
  # The vendor's library first: symbols are looked up in this order, and LibTorch may hold another copy of them.
  target_link_libraries(${target} PRIVATE ${arg_LIBRARIES} lockstep)
  # A symbol that the library does not export is an error here, not when the engine is opened. Sanitizers resolve theirs late.
  target_link_options(${target} PRIVATE -Wl,--as-needed -Wl,-z,nodelete $<$<CONFIG:Release>:-Wl,-z,defs>)
  # Nothing links them, so tests name them as what they depend on.
  set_property(GLOBAL APPEND PROPERTY LOCKSTEP_ENGINE_MODULES ${target})
  if(LOCKSTEP_INSTALL)
    install(TARGETS ${target} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  endif()
endfunction()

# Gloo's config sets no version of the package, so its header is asked.
find_package(Gloo QUIET)
if(Gloo_FOUND AND TARGET gloo)
  get_target_property(lockstep_gloo_include gloo INTERFACE_INCLUDE_DIRECTORIES)
  file(STRINGS "${lockstep_gloo_include}/gloo/config.h" lockstep_gloo_tls REGEX "GLOO_HAVE_TRANSPORT_TCP_TLS 1")
  set(LOCKSTEP_GLOO_STATE "${GLOO_VERSION}, without TLS")
  if(lockstep_gloo_tls)
    set(LOCKSTEP_GLOO_STATE "${GLOO_VERSION}, with TLS")
  endif()
else()
  set(LOCKSTEP_GLOO_STATE "no: TCP between workers needs it; install libgloo-dev")
endif()

set(MPI_CXX_SKIP_MPICXX TRUE)  # the C++ bindings that MPI has given up
find_package(MPI QUIET COMPONENTS CXX)
if(MPI_CXX_FOUND)
  set(LOCKSTEP_MPI_STATE "${MPI_CXX_VERSION}")
else()
  set(LOCKSTEP_MPI_STATE "no: workers cannot use MPI; install libopenmpi-dev")
endif()

# With a LibTorch that has CUDA.
set(lockstep_nccl_default OFF)
if(TARGET torch_cuda)
  set(lockstep_nccl_default ON)
endif()
option(LOCKSTEP_NCCL "Build the NCCL engine" ${lockstep_nccl_default})
set(LOCKSTEP_NCCL_STATE "no: LibTorch has no CUDA")
if(LOCKSTEP_NCCL AND TARGET torch_cuda)
  find_package(CUDAToolkit QUIET)
  find_path(LOCKSTEP_NCCL_INCLUDE nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS} $ENV{NCCL_HOME}/include)
  find_library(LOCKSTEP_NCCL_LIBRARY nccl HINTS ${CUDAToolkit_LIBRARY_DIR} $ENV{NCCL_HOME}/lib)
  mark_as_advanced(LOCKSTEP_NCCL_INCLUDE LOCKSTEP_NCCL_LIBRARY)
  if(LOCKSTEP_NCCL_INCLUDE)
    file(STRINGS "${LOCKSTEP_NCCL_INCLUDE}/nccl.h" lockstep_nccl_version REGEX "define NCCL_(MAJOR|MINOR|PATCH) ")
    string(REGEX REPLACE "[^0-9;]" "" lockstep_nccl_version "${lockstep_nccl_version}")
    string(REPLACE ";" "." lockstep_nccl_version "${lockstep_nccl_version}")
  endif()
  if(NOT CUDAToolkit_FOUND OR NOT LOCKSTEP_NCCL_INCLUDE OR NOT LOCKSTEP_NCCL_LIBRARY)
    set(LOCKSTEP_NCCL_STATE "no: the CUDA toolkit or NCCL was not found; install libnccl-dev")
  elseif(lockstep_nccl_version VERSION_LESS 2.14)
    set(LOCKSTEP_NCCL_STATE "no: NCCL ${lockstep_nccl_version} cannot give up waiting; install 2.14 or newer")
  else()
    set(LOCKSTEP_NCCL_STATE "${lockstep_nccl_version}")
    set(LOCKSTEP_NCCL_FOUND TRUE)
  endif()
endif()
