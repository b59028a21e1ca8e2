# `cmake --install` gives headers, libraries, tools and a package that find_package(coreai) reads.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

get_property(layers GLOBAL PROPERTY COREAI_LAYERS)
install(TARGETS ${layers} EXPORT coreaiTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT coreaiTargets NAMESPACE coreai:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/coreai)
get_target_property(bridge_library coreai::bridge IMPORTED_LOCATION)
install(FILES ${bridge_library} DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/coreai DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/coreaiConfig.cmake.in
  ${CMAKE_CURRENT_BINARY_DIR}/coreaiConfig.cmake INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/coreai
  PATH_VARS CMAKE_INSTALL_LIBDIR)
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/coreaiConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/coreaiConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/coreaiConfigVersion.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/coreai)
