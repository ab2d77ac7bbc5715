# Warnings, as errors, for everything that this project compiles; switched on by the presets, off for users who add the
# project to theirs. Called once, before any target is made.

option(LOCKSTEP_WARNINGS "Compile with -Wall -Wextra -Werror" OFF)

if(LOCKSTEP_WARNINGS)
  include(CheckCXXCompilerFlag)
  add_compile_options("$<$<COMPILE_LANGUAGE:C,CXX>:-Wall;-Wextra;-Werror>")
  # What some compilers report in code that is right: in the standard library and LibTorch inlined into ours (GCC 12),
  # in references to what a function's argument owns (GCC 13), in fences that ThreadSanitizer does not see (GCC). Functions
  # that one LibTorch deprecates are the only ones that another has.
  # A compiler accepts -Wno-x for any x until it has something else to report, so -Wx is what is tried.
  foreach(name restrict stringop-overflow stringop-overread array-bounds maybe-uninitialized dangling-reference tsan
          deprecated-declarations)
    string(MAKE_C_IDENTIFIER "LOCKSTEP_HAS_W_${name}" result)
    check_cxx_compiler_flag(-W${name} ${result})
    if(${result})
      add_compile_options("$<$<COMPILE_LANGUAGE:C,CXX>:-Wno-${name}>")
    endif()
  endforeach()
endif()
