# SPDX-License-Identifier: Apache-2.0
# softgpu's engine: fatbin and PTX, the lowering, the warp interpreter. Included by CMakeLists.txt.

# What computes lane by lane is compiled once per instruction set and chosen at run time.
set(softgpu_lane_options -O3 -ffp-contract=off -fno-math-errno -fno-trapping-math -fwrapv
    -fno-strict-aliasing)
set(softgpu_isa_base "")
set(softgpu_isa_avx2 -mavx2 -mfma -mbmi -mbmi2 -mpopcnt -mlzcnt)
set(softgpu_isa_avx512 ${softgpu_isa_avx2} -mavx512f -mavx512dq -mavx512bw -mavx512vl -mavx512cd
    -mprefer-vector-width=512)
set(softgpu_isas base)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  list(APPEND softgpu_isas avx2 avx512)
endif()
set(softgpu_lane_objects "")
foreach(isa IN LISTS softgpu_isas)
  add_library(openmps_softgpu_lanes_${isa} OBJECT
    interp/lanes.cc interp/memory.cc interp/shuffle.cc interp/tile_product.cc)
  target_link_libraries(openmps_softgpu_lanes_${isa} PUBLIC openmps_options)
  target_compile_definitions(openmps_softgpu_lanes_${isa} PRIVATE SOFTGPU_ISA=${isa})
  target_compile_options(openmps_softgpu_lanes_${isa} PRIVATE ${softgpu_lane_options} ${softgpu_isa_${isa}})
  list(APPEND softgpu_lane_objects $<TARGET_OBJECTS:openmps_softgpu_lanes_${isa}>)
endforeach()

openmps_library(openmps_softgpu_engine
  compile/compile.cc
  compile/describe.cc
  compile/lazy_code.cc
  compile/coverage.cc
  compile/link.cc
  fatbin/fatbin.cc
  fatbin/host_object.cc
  interp/address.cc
  interp/atomics.cc
  interp/barrier.cc
  interp/block.cc
  interp/block_run.cc
  interp/call.cc
  interp/cluster.cc
  interp/cluster_run.cc
  interp/collective.cc
  interp/compiled.cc
  interp/control.cc
  interp/device_printf.cc
  interp/device_runtime.cc
  interp/dispatch.cc
  interp/fragments.cc
  interp/frames.cc
  interp/group_matrix.cc
  interp/bulk_copy.cc
  interp/instruction_set.cc
  interp/matrix.cc
  interp/matrix_memory.cc
  interp/mbarrier.cc
  interp/sampler.cc
  interp/scalar.cc
  interp/tensor_copy.cc
  interp/tensor_core.cc
  interp/texture.cc
  interp/video.cc
  ir/allocate.cc
  ir/builder.cc
  ir/draft.cc
  ir/emit.cc
  ir/flow.cc
  ir/fuse.cc
  ir/lower.cc
  ir/lower_alu.cc
  ir/lower_async.cc
  ir/lower_cluster.cc
  ir/lower_collective.cc
  ir/lower_control.cc
  ir/lower_convert.cc
  ir/lower_memory.cc
  ir/lower_group_matrix.cc
  ir/lower_matrix.cc
  ir/lower_texture.cc
  ir/lower_video.cc
  ir/op_info.cc
  ir/shared_layout.cc
  ptx/device_calls.cc
  ptx/lexer.cc
  ptx/linker.cc
  ptx/opcode_table.cc
  ptx/parser.cc
  ptx/parser_body.cc
  ptx/parser_outline.cc
  ptx/parser_value.cc
  ptx/parser_variable.cc
  ptx/token_reader.cc
  ptx/types.cc
  tier/code_store.cc
  tier/compiler.cc
  tier/emit_compute.cc
  tier/emit_flow.cc
  tier/emit_gather.cc
  tier/emit_memory.cc
  tier/emit_ops.cc
  tier/emit_region.cc
  tier/emit_segment.cc
  tier/emit_shape.cc
  tier/emitter.cc
  tier/forms.cc
  tier/graph.cc
  tier/kernel_key.cc
  tier/kernel_tier.cc
  tier/lane_builder.cc
  tier/llvm_api.cc
  tier/memory_form.cc
  tier/object_code.cc
  tier/scalar_rule.cc
  tier/ssa.cc
  ${softgpu_lane_objects})
# Registers and device memory are bytes that are read as whatever type an instruction names.
set_source_files_properties(
  interp/address.cc interp/atomics.cc interp/barrier.cc interp/block.cc interp/block_run.cc
  interp/call.cc interp/fragments.cc interp/frames.cc
  interp/bulk_copy.cc interp/cluster.cc interp/mbarrier.cc interp/tensor_copy.cc
  interp/collective.cc interp/compiled.cc interp/control.cc interp/device_printf.cc interp/scalar.cc
  interp/texture.cc interp/video.cc interp/matrix.cc interp/matrix_memory.cc
  interp/group_matrix.cc interp/tensor_core.cc
  PROPERTIES COMPILE_OPTIONS "-O2;-fno-strict-aliasing;-fwrapv;-ffp-contract=off")
# What engine.h declares is in objects of its own: tests have others in their place.
set_source_files_properties(compile/compile.cc compile/link.cc interp/cluster_run.cc
                            PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
set_source_files_properties(interp/sampler.cc PROPERTIES COMPILE_OPTIONS "${softgpu_lane_options}")
target_link_libraries(openmps_softgpu_engine PUBLIC openmps_base PRIVATE openmps_unpack)
