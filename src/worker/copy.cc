// SPDX-License-Identifier: Apache-2.0
// Copies and fills. See copy.h.
#include "worker/copy.h"

#include "worker/driver_check.h"

namespace openmps::worker {

Status Copies::finish(Stream& stream, uint32_t flags) {
  if ((flags & wire::kOrderAllStreams) == 0) return Status();
  return streams_.order_all_behind(stream);
}

Status Copies::handle(const wire::Memcpy& command, Stream& stream) {
  memory_.open_to_copies(command, stream.device);
  OPENMPS_RETURN_IF_ERROR(streams_.enter(stream, Streams::Entry::kWork));
  OPENMPS_RETURN_IF_ERROR(
      check(core_.driver.cuMemcpyAsync(core_.device_address(command.destination),
                                       core_.device_address(command.source), command.bytes,
                                       stream.handle),
            "cuMemcpyAsync"));
  return finish(stream, command.flags);
}

Status Copies::handle(const wire::Memcpy3D& command, Stream& stream) {
  memory_.open_to_copies(command, stream.device);
  CUDA_MEMCPY3D box{};
  box.srcMemoryType = CU_MEMORYTYPE_UNIFIED;
  box.srcDevice = core_.device_address(command.source);
  box.srcPitch = command.source_pitch;
  box.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
  box.dstDevice = core_.device_address(command.destination);
  box.dstPitch = command.destination_pitch;
  box.WidthInBytes = command.width;
  box.Height = command.height;
  box.Depth = command.depth;
  OPENMPS_RETURN_IF_ERROR(rows_of_slice(command.height, command.depth, command.source_pitch,
                                        command.source_slice, &box.srcHeight));
  OPENMPS_RETURN_IF_ERROR(rows_of_slice(command.height, command.depth, command.destination_pitch,
                                        command.destination_slice, &box.dstHeight));
  OPENMPS_RETURN_IF_ERROR(streams_.enter(stream, Streams::Entry::kWork));
  OPENMPS_RETURN_IF_ERROR(
      check(core_.driver.cuMemcpy3DAsync_v2(&box, stream.handle), "cuMemcpy3DAsync"));
  return finish(stream, command.flags);
}

Status Copies::handle(const wire::Memset& command, Stream& stream) {
  OPENMPS_RETURN_IF_ERROR(check_element(command));
  return streams_.submit(stream, memory_.lane_of(command.destination),
                         [&](CUstream to) { return submit_fill(command, to); });
}

Status Copies::submit_fill(const wire::Memset& command, CUstream stream) {
  const DriverTable& driver = core_.driver;
  const CUdeviceptr to = core_.device_address(command.destination);
  const auto value8 = static_cast<unsigned char>(command.value);
  const auto value16 = static_cast<unsigned short>(command.value);
  const uint64_t pitch = pitch_of(command);
  const bool linear = command.height <= 1;
  const uint64_t n = command.height == 0 ? 0 : command.width;
  CUresult result = CUDA_SUCCESS;
  switch (command.element_bytes) {
    case 1:
      result = linear ? driver.cuMemsetD8Async(to, value8, n, stream)
                      : driver.cuMemsetD2D8Async(to, pitch, value8, n, command.height, stream);
      break;
    case 2:
      result = linear ? driver.cuMemsetD16Async(to, value16, n, stream)
                      : driver.cuMemsetD2D16Async(to, pitch, value16, n, command.height, stream);
      break;
    default:
      result = linear
                   ? driver.cuMemsetD32Async(to, command.value, n, stream)
                   : driver.cuMemsetD2D32Async(to, pitch, command.value, n, command.height, stream);
      break;
  }
  return check(result, "cuMemsetAsync");
}

}  // namespace openmps::worker
