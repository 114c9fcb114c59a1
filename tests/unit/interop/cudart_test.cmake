# SPDX-License-Identifier: Apache-2.0
# Runs the program PROGRAM on the driver library in DRIVER and compares what it prints.
function(expect output_expected)
  execute_process(
    COMMAND ${CMAKE_COMMAND} -E env LD_LIBRARY_PATH=${DRIVER}:${TOOLKIT} ${ARGN} ${PROGRAM}
    OUTPUT_VARIABLE output ERROR_VARIABLE output RESULT_VARIABLE status)
  if(NOT output STREQUAL output_expected)
    message(FATAL_ERROR "${PROGRAM} (status ${status}) printed:\n${output}\n"
            "expected:\n${output_expected}")
  endif()
endfunction()

# The default stream that the driver is given: null, or CU_STREAM_PER_THREAD by way of the generated
# per-thread variant.
set(stream "(nil)")
if(KIND STREQUAL "per_thread")
  set(stream 0x2)
endif()

# 801 is cudaErrorNotSupported.
expect("cudaGetDeviceCount: 0, 1
cudaGetDeviceProperties: 0, Fake device, 3221225472, 8
synchronised ${stream}
cudaStreamSynchronize: 0
synchronised ${stream}
cudaStreamSynchronize: 0
cudaMalloc: 801
")

# The check bites: an answer for another device is refused with
# cudaErrorSoftwareValidityNotEstablished.
expect("cudaGetDeviceCount: 103, -1\n" OPENMPS_TEST_WRONG_BUS=1)
