# SPDX-License-Identifier: Apache-2.0
# `cmake --install`: the layout of the build tree under a prefix, so the programs find each other there
# just as they do here. Files are named by path: a build of a few parts installs nothing.
if(OPENMPS_PARTS STREQUAL "")
  set(openmps_programs openmps openmps-control openmps-server openmps-worker softgpu-info)
  list(TRANSFORM openmps_programs PREPEND ${CMAKE_BINARY_DIR}/bin/)
  install(PROGRAMS ${openmps_programs} DESTINATION bin)
  install(PROGRAMS ${OPENMPS_CLIENT_LIBRARY_DIR}/libcuda.so.1 DESTINATION lib/openmps)
  install(PROGRAMS ${OPENMPS_SOFTGPU_LIBRARY_DIR}/libcuda.so.1 DESTINATION lib/softgpu)
  install(FILES ${PROJECT_SOURCE_DIR}/docs/man/openmps.1 ${PROJECT_SOURCE_DIR}/docs/man/openmps-control.1
          DESTINATION share/man/man1)
  install(FILES ${PROJECT_SOURCE_DIR}/LICENSE ${PROJECT_SOURCE_DIR}/README.md DESTINATION share/doc/openmps)
endif()
