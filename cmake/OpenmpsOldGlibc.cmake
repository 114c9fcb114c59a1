# SPDX-License-Identifier: Apache-2.0
# What is installed runs on any glibc since 2.17 (2012: RHEL 7; Debian 8, Ubuntu 14.04 and all that came later),
# whatever this machine's is: containers are given our library and `openmps` from outside. Offers
#   openmps_old_glibc(t)   the program or library t is linked against stubs that have glibc's old symbols only
# glibc_stubs.py makes the stubs; src/oldlibc has what came later. Decision 35 says why this way.
set(openmps_oldest_glibc 2.17)

# x86_64 alone: another architecture's oldest glibc is another. Sanitizers bring a run time that needs more.
set(openmps_old_glibc_default OFF)
if(CMAKE_SYSTEM_NAME STREQUAL "Linux" AND CMAKE_SYSTEM_PROCESSOR STREQUAL "x86_64" AND NOT OPENMPS_SANITIZE)
  set(openmps_old_glibc_default ON)
endif()
option(OPENMPS_OLD_GLIBC "Link for glibc ${openmps_oldest_glibc}" ${openmps_old_glibc_default})

if(OPENMPS_OLD_GLIBC)
  add_subdirectory(${PROJECT_SOURCE_DIR}/src/oldlibc)
  set(openmps_stubs ${CMAKE_BINARY_DIR}/old_glibc)
  set(openmps_glibc "")
  foreach(library IN ITEMS libc.so.6 libm.so.6 libpthread.so.0 libdl.so.2 librt.so.1 ld-linux-x86-64.so.2 libc_nonshared.a)
    execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=${library}
                    OUTPUT_VARIABLE path OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
    list(APPEND openmps_glibc ${path})
  endforeach()
  list(POP_BACK openmps_glibc nonshared)
  add_custom_command(
    OUTPUT ${openmps_stubs}/libc.so
    COMMAND ${openmps_python} ${PROJECT_SOURCE_DIR}/cmake/glibc_stubs.py --nm ${CMAKE_NM} --cc ${CMAKE_C_COMPILER}
            --newest ${openmps_oldest_glibc} --output ${openmps_stubs} --compat $<TARGET_FILE:openmps_oldlibc>
            --nonshared ${nonshared} ${openmps_glibc}
    DEPENDS ${PROJECT_SOURCE_DIR}/cmake/glibc_stubs.py openmps_oldlibc
    COMMENT "Making stubs of glibc ${openmps_oldest_glibc}"
    VERBATIM)
  add_custom_target(openmps_glibc_stubs DEPENDS ${openmps_stubs}/libc.so)
endif()

function(openmps_old_glibc target)
  if(NOT OPENMPS_OLD_GLIBC)
    return()
  endif()
  add_dependencies(${target} openmps_glibc_stubs)
  set_property(TARGET ${target} APPEND PROPERTY LINK_DEPENDS ${openmps_stubs}/libc.so)
  # Of these two glibc's own are used where it has them: src/oldlibc/threads.cc.
  target_link_options(${target} PRIVATE LINKER:--wrap=pthread_cond_clockwait LINKER:--wrap=__cxa_thread_atexit_impl
                      LINKER:-z,dynamic-undefined-weak)
  # Before 2.34 threads and dlopen() had libraries of their own, which nobody else may have loaded.
  target_link_options(${target} PRIVATE -L${openmps_stubs} LINKER:--push-state,--no-as-needed -lpthread -ldl -lrt
                      LINKER:--pop-state)
endfunction()
