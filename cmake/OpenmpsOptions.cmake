# SPDX-License-Identifier: Apache-2.0
# Language level, warnings, sanitizers and the layout of the build tree: one place for all targets.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 11)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

option(OPENMPS_BUILD_TESTS "Build the tests" ON)
option(OPENMPS_BUILD_BENCH "Build the benchmarks" ON)
option(OPENMPS_BUILD_FUZZERS "Build the libFuzzer targets (needs clang)" OFF)
option(OPENMPS_UNITY "Compile the sources of a library in batches, which parses each header once per batch" ON)
set(OPENMPS_SANITIZE "" CACHE STRING
    "Sanitizers for every target: address,undefined or thread; fuzzer-no-link,... with the fuzzers")

# What belongs to the user lands in bin/ and lib/openmps, lib/softgpu: the same layout that
# `cmake --install` makes, so the programs find each other relative to themselves in both.
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(OPENMPS_CLIENT_LIBRARY_DIR ${CMAKE_BINARY_DIR}/lib/openmps)
set(OPENMPS_SOFTGPU_LIBRARY_DIR ${CMAKE_BINARY_DIR}/lib/softgpu)

find_package(Threads REQUIRED)

add_library(openmps_options INTERFACE)
target_compile_options(openmps_options INTERFACE -Wall -Wextra -Werror)
# Line tables are what stack traces and profiles read; types and variables took a third of the
# build's time. The debug preset has them.
target_compile_options(openmps_options INTERFACE $<$<CONFIG:RelWithDebInfo>:-g1>)
target_include_directories(openmps_options INTERFACE ${PROJECT_SOURCE_DIR}/src)
target_link_libraries(openmps_options INTERFACE Threads::Threads)
# Threads end the program where they take locks out of order: src/base/lock_order.h.
target_compile_definitions(openmps_options INTERFACE $<$<CONFIG:Debug>:OPENMPS_CHECK_LOCK_ORDER>)
if(OPENMPS_SANITIZE)
  target_compile_definitions(openmps_options INTERFACE OPENMPS_CHECK_LOCK_ORDER)
  # gcc's own false positives under the sanitizers must not stop a build: warnings stay visible.
  # Undefined behaviour ends the program: a message alone would fail no test. CUDA's enums are C's:
  # programs and clients may pass any number in one, and get an error for it. What looks at vtables
  # makes a pipe for that, and takes any object for a wrong one in a process without descriptors.
  target_compile_options(openmps_options INTERFACE -fsanitize=${OPENMPS_SANITIZE}
                         -fno-sanitize=enum,vptr -fno-sanitize-recover=all
                         -fno-omit-frame-pointer -Wno-error)
  target_link_options(openmps_options INTERFACE -fsanitize=${OPENMPS_SANITIZE})
else()
  # Machines that run the programs need no C++ run time of ours; but a program whose libraries are C++, too
  # (OPENMPS_SHARED_CXX), has one run time with them.
  target_link_options(openmps_options INTERFACE
    $<$<NOT:$<BOOL:$<TARGET_PROPERTY:OPENMPS_SHARED_CXX>>>:-static-libstdc++>
    $<$<NOT:$<BOOL:$<TARGET_PROPERTY:OPENMPS_SHARED_CXX>>>:-static-libgcc>)
endif()

# How many sources are one batch of a unity build. Ten sources of src/worker/streams take 43 s one by one
# and 11 s as one; larger batches gain little more, and each edit costs a batch.
set(openmps_unity_batch 12)

# openmps_unity(target): its sources are compiled in batches, so two of them can't have the same name for
# different things, in anonymous namespaces neither. -DOPENMPS_UNITY=OFF compiles them one by one.
function(openmps_unity target)
  if(OPENMPS_UNITY)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON
                          UNITY_BUILD_BATCH_SIZE ${openmps_unity_batch})
  endif()
endfunction()

# openmps_library(name sources...): a static library of one layer.
function(openmps_library name)
  add_library(${name} STATIC ${ARGN})
  target_link_libraries(${name} PUBLIC openmps_options)
  openmps_unity(${name})
endfunction()

# openmps_precompile(target [headers...]): these and the standard headers that most sources read are
# parsed once for all sources of the target. The presets debug and lint do without, so that a missing
# #include shows.
function(openmps_precompile target)
  target_precompile_headers(${target} PRIVATE <algorithm> <atomic> <functional> <map> <memory>
                            <mutex> <string> <unordered_map> <vector> ${ARGN})
endfunction()

# openmps_test_options(target): a test's own code is not optimised, which takes longer than to run it;
# what it tests is. Under the sanitizers running takes longer.
function(openmps_test_options target)
  if(NOT OPENMPS_SANITIZE)
    target_compile_options(${target} PRIVATE $<$<CONFIG:RelWithDebInfo>:-O0>)
  endif()
endfunction()

# openmps_test_program(name sources... [LIBS libraries...]): one GoogleTest program.
function(openmps_test_program name)
  cmake_parse_arguments(arg "" "" "LIBS" ${ARGN})
  add_executable(${name} ${arg_UNPARSED_ARGUMENTS})
  target_link_libraries(${name} PRIVATE openmps_options ${arg_LIBS} GTest::gtest GTest::gtest_main)
  openmps_test_options(${name})
  openmps_unity(${name})
  target_precompile_headers(${name} REUSE_FROM openmps_test_headers)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
endfunction()

# openmps_unit_test(name sources... [LIBS libraries...]): the same as one ctest entry.
function(openmps_unit_test name)
  openmps_test_program(${name} ${ARGN})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests/unit)  # manual_clock.h
  add_test(NAME ${name} COMMAND ${name})
  set(limit 180)  # seconds; the longest takes 25 on two cores
  if(OPENMPS_SANITIZE)
    math(EXPR limit "${limit} * 5")
  endif()
  set_tests_properties(${name} PROPERTIES TIMEOUT ${limit})
endfunction()
