# Installs the library, its public headers (exactly those of the header set), the command, and the package files.

include(CMakePackageConfigHelpers)

set_target_properties(lockstep PROPERTIES INSTALL_RPATH "\$ORIGIN")
set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/lockstep)

install(TARGETS lockstep EXPORT lockstepTargets
        FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
        INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT lockstepTargets NAMESPACE lockstep:: DESTINATION ${package_folder})
if(TARGET lockstep_command)
  set_target_properties(lockstep_command PROPERTIES INSTALL_RPATH "\$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
  install(TARGETS lockstep_command)
endif()

# What is built before it can be installed: the target lockstep_installed, and LockstepCheckBuilt.cmake's list of files.
get_property(installed_targets GLOBAL PROPERTY LOCKSTEP_ENGINE_MODULES)
list(PREPEND installed_targets lockstep)
if(TARGET lockstep_command)
  list(APPEND installed_targets lockstep_command)
endif()
add_custom_target(lockstep_installed DEPENDS ${installed_targets})

# The command prints its manual page and its completions: they are made of the definitions that its parser uses.
if(TARGET lockstep_command AND NOT CMAKE_CROSSCOMPILING)
  set(pages "${PROJECT_BINARY_DIR}/command_pages")
  file(MAKE_DIRECTORY "${pages}")
  add_custom_command(
    OUTPUT "${pages}/lockstep.1" "${pages}/lockstep" "${pages}/_lockstep" "${pages}/lockstep.fish"
    COMMAND lockstep_command man > "${pages}/lockstep.1"
    COMMAND lockstep_command completion bash > "${pages}/lockstep"
    COMMAND lockstep_command completion zsh > "${pages}/_lockstep"
    COMMAND lockstep_command completion fish > "${pages}/lockstep.fish"
    DEPENDS lockstep_command VERBATIM)
  add_custom_target(lockstep_pages ALL DEPENDS "${pages}/lockstep.1")
  add_dependencies(lockstep_installed lockstep_pages)
  install(FILES "${pages}/lockstep.1" DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
  install(FILES "${pages}/lockstep" DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
  install(FILES "${pages}/_lockstep" DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
  install(FILES "${pages}/lockstep.fish" DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
endif()
list(TRANSFORM installed_targets REPLACE "(.+)" "$<TARGET_FILE:\\1>" OUTPUT_VARIABLE installed_files)
list(JOIN installed_files "\"\n  \"" installed_files)
file(GENERATE OUTPUT "${PROJECT_BINARY_DIR}/lockstep_installed.cmake"
     CONTENT "set(LOCKSTEP_INSTALLED\n  \"${installed_files}\")\n")

configure_package_config_file(cmake/lockstepConfig.cmake.in lockstepConfig.cmake INSTALL_DESTINATION ${package_folder})
write_basic_package_version_file(lockstepConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/lockstepConfig.cmake" "${PROJECT_BINARY_DIR}/lockstepConfigVersion.cmake"
              cmake/LockstepTorch.cmake
        DESTINATION ${package_folder})

# A pkg-config file that may be moved: its prefix is relative to itself.
file(RELATIVE_PATH prefix_from_pc "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
get_target_property(torch_includes torch INTERFACE_INCLUDE_DIRECTORIES)
list(TRANSFORM torch_includes PREPEND "-I")
list(JOIN torch_includes " " LOCKSTEP_PC_TORCH_INCLUDES)
configure_file(cmake/lockstep.pc.in lockstep.pc @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/lockstep.pc" DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
