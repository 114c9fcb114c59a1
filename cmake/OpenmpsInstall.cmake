# SPDX-License-Identifier: Apache-2.0
# What `cmake --install` adds to the programs and libraries, which their own folders install: bin/,
# lib/openmps and lib/softgpu under a prefix are laid out as in the build tree.
install(FILES ${PROJECT_SOURCE_DIR}/docs/man/openmps.1 DESTINATION share/man/man1)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE ${PROJECT_SOURCE_DIR}/README.md
        DESTINATION share/doc/openmps)
