# SPDX-License-Identifier: Apache-2.0
# The device model and the driver-API front, in one process with a fake engine: kernels of a few
# exactly known actions make schedules that tests can assert on. The real engine's library is behind
# it for what the front asks of the PTX parser (cuLink*).
openmps_unit_test(softgpu_device_test
  device_address_space_test.cc
  device_connections_test.cc
  device_context_test.cc
  device_contexts_test.cc
  device_copy_test.cc
  device_fake_engine.cc
  device_fixture.cc
  device_graph_test.cc
  device_loading_test.cc
  device_memory_test.cc
  device_module_test.cc
  device_recorder_test.cc
  device_schedule_test.cc
  device_stream_test.cc
  device_tensor_map_test.cc
  device_vmm_test.cc
  $<TARGET_OBJECTS:openmps_softgpu_front>
  LIBS openmps_softgpu_front openmps_softgpu_engine)
openmps_unit_test(softgpu_segment_test
  device_segment_test.cc
  LIBS openmps_softgpu_device openmps_softgpu_engine)
openmps_unit_test(softgpu_slice_test
  device_fake_engine.cc
  device_loading_off_test.cc
  device_slice_test.cc
  $<TARGET_OBJECTS:openmps_softgpu_front>
  LIBS openmps_softgpu_front openmps_softgpu_engine)
openmps_unit_test(softgpu_fault_test
  device_fake_engine.cc
  device_fault_test.cc
  device_fixture.cc
  $<TARGET_OBJECTS:openmps_softgpu_front>
  LIBS openmps_softgpu_front openmps_softgpu_engine)
