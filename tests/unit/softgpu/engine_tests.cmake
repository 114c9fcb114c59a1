# SPDX-License-Identifier: Apache-2.0
# Tests of softgpu's engine. What needs nvcc is built where there is one.
set(engine_test_dir ${CMAKE_CURRENT_LIST_DIR})

function(engine_test name)
  openmps_unit_test(${name} ${engine_test_dir}/${name}.cc LIBS openmps_softgpu_engine)
  target_include_directories(${name} PRIVATE ${engine_test_dir})
endfunction()

foreach(name engine_opcode_test engine_fault_test engine_image_test engine_texture_test
        engine_directives_test engine_matrix_test engine_cluster_test engine_async_test
        engine_tensor_test engine_group_matrix_test engine_lazy_test)
  engine_test(${name})
endforeach()
# With each set of vector instructions, and without.
foreach(name engine_lanes_test engine_fusion_test engine_collective_test)
  engine_test(${name})
  foreach(off no_avx512 no_vector_memory no_avx512,no_avx2 no_fusion)
    string(REPLACE "," "_" suffix ${off})
    add_test(NAME ${name}_${suffix} COMMAND ${name})
    set_tests_properties(${name}_${suffix} PROPERTIES
      TIMEOUT 60 ENVIRONMENT "SOFTGPU_PERF=${off}")
  endforeach()
endforeach()
# With every kernel compiled before it first runs: the results are those of the interpreter.
engine_test(engine_tier_test)
set_tests_properties(engine_tier_test PROPERTIES SKIP_REGULAR_EXPRESSION "no LLVM, or no AVX2")
foreach(off "" ",no_avx512")
  string(REPLACE "," "_" suffix "compile_all${off}")
  foreach(name engine_tier_test engine_opcode_test engine_lanes_test engine_fusion_test
          engine_collective_test engine_fault_test)
    add_test(NAME ${name}_${suffix} COMMAND ${name})
    set_tests_properties(${name}_${suffix} PROPERTIES
      TIMEOUT 300 ENVIRONMENT "SOFTGPU_PERF=compile_all${off}"
      SKIP_REGULAR_EXPRESSION "softgpu: kernels are interpreted")
  endforeach()
endforeach()
target_link_libraries(engine_image_test PRIVATE ${OPENMPS_ZSTD_STATIC} ${OPENMPS_LZ4_STATIC})
get_filename_component(openmps_source_root ${engine_test_dir}/../../.. ABSOLUTE)
target_compile_definitions(engine_image_test PRIVATE
  OPENMPS_COVERAGE_PAGE="${openmps_source_root}/docs/ptx-coverage.md"
  OPENMPS_CONFORMANCE_RECORDING="${openmps_source_root}/tests/softgpu/conformance/h200.txt")

# The entries of the fuzz targets, each under a name of its own, on seeded mutations.
engine_test(engine_fuzz_test)
foreach(target ptx kernel)
  add_library(engine_${target}_fuzz_entry OBJECT ${openmps_source_root}/tests/fuzz/${target}_fuzz.cc)
  target_link_libraries(engine_${target}_fuzz_entry PRIVATE openmps_softgpu_engine)
  target_compile_definitions(engine_${target}_fuzz_entry PRIVATE LLVMFuzzerTestOneInput=${target}_fuzz_one)
  target_link_libraries(engine_fuzz_test PRIVATE $<TARGET_OBJECTS:engine_${target}_fuzz_entry>)
endforeach()

find_program(OPENMPS_NVCC nvcc HINTS /usr/local/cuda/bin)
if(OPENMPS_NVCC)
  set(ptx_dir ${CMAKE_CURRENT_BINARY_DIR}/ptx)
  file(MAKE_DIRECTORY ${ptx_dir})
  set(ptx_files "")
  foreach(source control kernels)
    foreach(arch 75 80 90)
      add_custom_command(
        OUTPUT ${ptx_dir}/${source}_${arch}.ptx
        COMMAND ${OPENMPS_NVCC} -std=c++17 -ptx -arch=sm_${arch} ${engine_test_dir}/ptx/${source}.cu
                -o ${ptx_dir}/${source}_${arch}.ptx
        DEPENDS ${engine_test_dir}/ptx/${source}.cu VERBATIM)
      list(APPEND ptx_files ${ptx_dir}/${source}_${arch}.ptx)
    endforeach()
  endforeach()
  add_custom_target(engine_test_ptx DEPENDS ${ptx_files})
  foreach(name engine_control_test engine_kernels_test)
    engine_test(${name})
    target_compile_definitions(${name} PRIVATE OPENMPS_TEST_PTX_DIR="${ptx_dir}")
    add_dependencies(${name} engine_test_ptx)
    add_test(NAME ${name}_compile_all COMMAND ${name})
    set_tests_properties(${name}_compile_all PROPERTIES
      TIMEOUT 300 ENVIRONMENT "SOFTGPU_PERF=compile_all"
      SKIP_REGULAR_EXPRESSION "softgpu: kernels are interpreted")
  endforeach()
endif()

find_program(OPENMPS_CLANG NAMES clang clang-14)
if(OPENMPS_CLANG)
  set(clang_ptx "")
  file(MAKE_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/ptx)
  foreach(level 0 2)
    set(output ${CMAKE_CURRENT_BINARY_DIR}/ptx/opencl_${level}.ptx)
    add_custom_command(
      OUTPUT ${output}
      COMMAND ${OPENMPS_CLANG} -x cl -Xclang -finclude-default-header --target=nvptx64-nvidia-cuda
              -march=sm_70 -O${level} -S ${engine_test_dir}/ptx/opencl.cl -o ${output}
      DEPENDS ${engine_test_dir}/ptx/opencl.cl VERBATIM)
    list(APPEND clang_ptx ${output})
  endforeach()
  add_custom_target(engine_test_clang_ptx DEPENDS ${clang_ptx})
  engine_test(engine_clang_test)
  target_compile_definitions(engine_clang_test PRIVATE
    OPENMPS_TEST_PTX_DIR="${CMAKE_CURRENT_BINARY_DIR}/ptx")
  add_dependencies(engine_clang_test engine_test_clang_ptx)
endif()
