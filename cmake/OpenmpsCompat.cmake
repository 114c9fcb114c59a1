# SPDX-License-Identifier: Apache-2.0
# lib/openmps/compat/bin, in the build tree and under a prefix: NVIDIA's names for our programs, as
# links. Scripts that call them by these names run unmodified with this folder in front in PATH.
set(openmps_compat lib/openmps/compat)
file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/${openmps_compat}/bin)
foreach(program IN ITEMS control server)
  file(CREATE_LINK ../../../../bin/openmps-${program}
       ${CMAKE_BINARY_DIR}/${openmps_compat}/bin/nvidia-cuda-mps-${program} SYMBOLIC)
endforeach()
install(DIRECTORY ${CMAKE_BINARY_DIR}/${openmps_compat} DESTINATION lib/openmps)
