# Finds what the parts of the library are compiled with that call CUDA themselves: graphs, events between devices, kernels that are
# compiled at run time. All else uses LibTorch's device-independent interface. Such parts are files of their own, with a no_NAME.cpp
# for builds without CUDA.

set(LOCKSTEP_CUDA OFF)
set(LOCKSTEP_CUDA_STATE "no: LibTorch has no CUDA")
if(TARGET torch_cuda)
  find_package(CUDAToolkit QUIET)
  if(CUDAToolkit_FOUND AND Torch_VERSION VERSION_GREATER_EQUAL 2.8)
    set(LOCKSTEP_CUDA ON)
    set(LOCKSTEP_CUDA_STATE "${CUDAToolkit_VERSION}")
  elseif(CUDAToolkit_FOUND)
    set(LOCKSTEP_CUDA_STATE "no: captured steps and kernels of lockstep need LibTorch 2.8")
  else()
    set(LOCKSTEP_CUDA_STATE "no: the CUDA toolkit was not found")
  endif()
endif()

# Adds FOLDER/NAME.cpp to the library, or FOLDER/no_NAME.cpp in a build without CUDA: lockstep_cuda_source(NAME [FOLDER]).
function(lockstep_cuda_source name)
  set(folder "")
  if(ARGC GREATER 1)
    set(folder "${ARGV1}/")
  endif()
  if(LOCKSTEP_CUDA)
    target_sources(lockstep PRIVATE ${folder}${name}.cpp)
    # They are compiled alone: headers of LibTorch for CUDA include those of the toolkit.
    set_source_files_properties(${folder}${name}.cpp TARGET_DIRECTORY lockstep PROPERTIES
      INCLUDE_DIRECTORIES "${CUDAToolkit_INCLUDE_DIRS}")
  else()
    target_sources(lockstep PRIVATE ${folder}no_${name}.cpp)
  endif()
endfunction()
