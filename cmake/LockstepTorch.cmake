# Finds one LibTorch, whole: the Torch, Caffe2 and c10 of one prefix.
#
# LibTorch's own config looks c10 up on the system first, so that with a second LibTorch installed a program links the c10
# of one with the torch_cpu of the other and aborts when it starts. Here everything is taken from beside the
# TorchConfig.cmake that is found first, and a mixture is an error at configure time.
#
# Gives the target `torch`, LOCKSTEP_TORCH_LIBRARY_DIR and LOCKSTEP_TORCH_LINK_OPTIONS. Installed with the package.

if(TARGET torch AND TARGET c10)
  set(Torch_FOUND TRUE)
else()
  if(NOT Torch_DIR)
    set(torch_config_folders share/cmake/Torch lib/cmake/Torch Torch)
    if(CMAKE_LIBRARY_ARCHITECTURE)
      list(APPEND torch_config_folders lib/${CMAKE_LIBRARY_ARCHITECTURE}/cmake/Torch)
    endif()
    find_path(Torch_DIR TorchConfig.cmake PATH_SUFFIXES ${torch_config_folders}
              HINTS ${Torch_ROOT} $ENV{Torch_ROOT} DOC "The folder of TorchConfig.cmake")
  endif()
  if(Torch_DIR AND EXISTS "${Torch_DIR}/../Caffe2/Caffe2Config.cmake")
    get_filename_component(Caffe2_DIR "${Torch_DIR}/../Caffe2" ABSOLUTE)
    set(Caffe2_DIR "${Caffe2_DIR}" CACHE PATH "The Caffe2 config of the Torch in use" FORCE)
  endif()

  # Torch_DIR is PREFIX/share/cmake/Torch, or PREFIX/lib[/ARCHITECTURE]/cmake/Torch.
  foreach(library torch torch_cpu c10)
    unset(lockstep_${library} CACHE)
    find_library(lockstep_${library} ${library} NO_CACHE NO_DEFAULT_PATH
                 PATHS "${Torch_DIR}/../../.." "${Torch_DIR}/../.." PATH_SUFFIXES lib lib64)
  endforeach()
  if(lockstep_c10)
    set(c10_LIBRARY "${lockstep_c10}" CACHE FILEPATH "The c10 of the Torch in use" FORCE)
    set(TORCH_LIBRARY "${lockstep_torch}" CACHE FILEPATH "The torch of the Torch in use" FORCE)
  endif()

  # With CUDA, LibTorch's config takes CMAKE_CXX_STANDARD as the standard of CUDA too and compiles a program of CUDA with it.
  # CMake 3.25 has no CUDA 20 and stops there.
  set(lockstep_cuda_standard "${CMAKE_CUDA_STANDARD}")
  if(CMAKE_CXX_STANDARD AND NOT lockstep_cuda_standard)
    set(CMAKE_CUDA_STANDARD 17)
  endif()
  find_package(Torch QUIET)
  if(NOT lockstep_cuda_standard)
    if(CMAKE_CXX_STANDARD AND DEFINED CMAKE_CUDA${CMAKE_CXX_STANDARD}_STANDARD_COMPILE_OPTION)
      set(CMAKE_CUDA_STANDARD ${CMAKE_CXX_STANDARD})
    else()
      unset(CMAKE_CUDA_STANDARD)
    endif()
  endif()
  if(NOT Torch_FOUND)
    message(FATAL_ERROR
      "[configure] LibTorch was not found: CMAKE_PREFIX_PATH=\"${CMAKE_PREFIX_PATH}\"; install libtorch-dev (`make setup`), "
      "or give the folder of another with -DCMAKE_PREFIX_PATH=.../torch. ${Torch_NOT_FOUND_MESSAGE}")
  endif()
endif()

# Returns the folder of an imported library, symbolic links resolved.
function(lockstep_imported_folder target result)
  foreach(property IMPORTED_LOCATION IMPORTED_LOCATION_RELEASE IMPORTED_LOCATION_NONE IMPORTED_LOCATION_NOCONFIG
          IMPORTED_LOCATION_RELWITHDEBINFO IMPORTED_LOCATION_DEBUG)
    get_target_property(location ${target} ${property})
    if(location)
      get_filename_component(location "${location}" REALPATH)
      get_filename_component(folder "${location}" DIRECTORY)
      set(${result} "${folder}" PARENT_SCOPE)
      return()
    endif()
  endforeach()
  set(${result} "" PARENT_SCOPE)
endfunction()

lockstep_imported_folder(torch_cpu LOCKSTEP_TORCH_LIBRARY_DIR)
lockstep_imported_folder(c10 lockstep_c10_folder)
if(c10_LIBRARY)
  get_filename_component(lockstep_c10_listed "${c10_LIBRARY}" REALPATH)
  get_filename_component(lockstep_c10_listed "${lockstep_c10_listed}" DIRECTORY)
else()
  set(lockstep_c10_listed "${lockstep_c10_folder}")
endif()
if(NOT lockstep_c10_folder STREQUAL LOCKSTEP_TORCH_LIBRARY_DIR OR NOT lockstep_c10_listed STREQUAL LOCKSTEP_TORCH_LIBRARY_DIR)
  message(FATAL_ERROR
    "[configure] torch_cpu and c10 must come from one LibTorch: torch_cpu=${LOCKSTEP_TORCH_LIBRARY_DIR}, "
    "c10=${lockstep_c10_folder}, c10_LIBRARY=${c10_LIBRARY}; configure in an empty build folder with one LibTorch in "
    "CMAKE_PREFIX_PATH")
endif()

# PyPI's libraries refer to their own copies of OpenBLAS and gfortran under hashed names, in a folder that the linker does
# not search, and that the loader does.
set(LOCKSTEP_TORCH_LINK_OPTIONS "")
set(LOCKSTEP_TORCH_LINK_FIRST "")
if(EXISTS "${LOCKSTEP_TORCH_LIBRARY_DIR}/libtorch_python.so" AND NOT LOCKSTEP_TORCH_LIBRARY_DIR MATCHES "^/usr/lib")
  set(LOCKSTEP_TORCH_LINK_OPTIONS "-Wl,--allow-shlib-undefined")
  # They also export an old std::filesystem, which programs must not find before the compiler's own: it crashes.
  set(LOCKSTEP_TORCH_LINK_FIRST "-Wl,--push-state,--no-as-needed,-lstdc++,--pop-state")
endif()
