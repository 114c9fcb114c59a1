// SPDX-License-Identifier: Apache-2.0
// Kernel launches. See launch.h.
#include "worker/launch.h"

#include "worker/driver_check.h"

namespace openmps::worker {
namespace {

// Where a client puts the id of an event whose handle the driver wants.
wire::Id id_of(CUevent event) { return static_cast<wire::Id>(reinterpret_cast<uintptr_t>(event)); }

// An event of the client's that the launch itself records.
bool names_event(const CUlaunchAttribute& attribute) {
  return attribute.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT ||
         attribute.id == CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT;
}

}  // namespace

Status Launches::handle(const wire::Launch& command, Stream& stream, Function& function,
                        const wire::Launch::Tail& tail) {
  // The driver reads as many bytes as the kernel has, however many came.
  if (command.parameter_bytes < function.parameter_bytes) {
    return Status(CUDA_ERROR_INVALID_VALUE, std::to_string(command.parameter_bytes) +
                                                " bytes of parameters for a kernel of " +
                                                std::to_string(function.parameter_bytes));
  }
  Located located;
  // The cold lane knows no green contexts.
  const auto reach = stream.green == nullptr ? Modules::Reach::kAnyLane : Modules::Reach::kMainLane;
  OPENMPS_RETURN_IF_ERROR(modules_.locate(function, stream.device, reach, &located));
  prints_.before_launch(function);
  Status status = streams_.submit(stream, located.lane,
                                  [&](CUstream to) { return submit(command, tail, to, located); });
  if (status.ok() && located.lane == Lane::kCold) status = record_events(tail.attributes, stream);
  return prints_.after_launch(function, std::move(status), stream.handle, stream.device);
}

Status Launches::submit(const wire::Launch& command, const wire::Launch::Tail& tail,
                        CUstream stream, const Located& located) {
  size_t parameter_bytes = command.parameter_bytes;
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER,
                   const_cast<unsigned char*>(tail.parameters.data()), CU_LAUNCH_PARAM_BUFFER_SIZE,
                   &parameter_bytes, CU_LAUNCH_PARAM_END};
  void** parameters = parameter_bytes == 0 ? nullptr : extra;
  if (command.attribute_count != 0 || (command.flags & wire::kLaunchCooperative) != 0) {
    return launch_with_attributes(command, tail.attributes, stream, located, parameters);
  }
  return check(
      core_.driver.cuLaunchKernel(located.handle, command.grid[0], command.grid[1], command.grid[2],
                                  command.block[0], command.block[1], command.block[2],
                                  command.shared_bytes, stream, nullptr, parameters),
      "cuLaunchKernel");
}

// Handles are ids here, addresses must be the session's, and what would reach past it is refused.
Status Launches::translate(CUlaunchAttribute* attribute) {
  CUlaunchAttributeValue& value = attribute->value;
  switch (attribute->id) {
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
      return events_.handle_of(id_of(value.programmaticEvent.event),
                               &value.programmaticEvent.event);
    case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
      return events_.handle_of(id_of(value.launchCompletionEvent.event),
                               &value.launchCompletionEvent.event);
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
      return memory_.check_operand({reinterpret_cast<uint64_t>(value.accessPolicyWindow.base_ptr),
                                    value.accessPolicyWindow.num_bytes},
                                   "access policy window");
    case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE:
      return Status(CUDA_ERROR_NOT_SUPPORTED, "kernel nodes updated from the device");
    default: return Status();
  }
}

Status Launches::launch_with_attributes(const wire::Launch& command,
                                        std::span<const CUlaunchAttribute> attributes,
                                        CUstream stream, const Located& located, void** extra) {
  CUlaunchAttribute list[wire::kMaxLaunchAttributes + 1];
  unsigned count = 0;
  for (const CUlaunchAttribute& attribute : attributes) {
    list[count] = attribute;
    OPENMPS_RETURN_IF_ERROR(translate(&list[count]));
    const bool elsewhere = located.lane == Lane::kCold && names_event(list[count]);
    if (!elsewhere) ++count;
  }
  if ((command.flags & wire::kLaunchCooperative) != 0) {
    list[count] = {};
    list[count].id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
    list[count].value.cooperative = 1;
    ++count;
  }
  CUlaunchConfig config{};
  config.gridDimX = command.grid[0];
  config.gridDimY = command.grid[1];
  config.gridDimZ = command.grid[2];
  config.blockDimX = command.block[0];
  config.blockDimY = command.block[1];
  config.blockDimZ = command.block[2];
  config.sharedMemBytes = command.shared_bytes;
  config.hStream = stream;
  config.attrs = list;
  config.numAttrs = count;
  return check(core_.driver.cuLaunchKernelEx(&config, located.handle, nullptr, extra),
               "cuLaunchKernelEx");
}

// Events are the main context's: those that a launch in the cold lane would record are recorded
// behind it.
Status Launches::record_events(std::span<const CUlaunchAttribute> attributes,
                               const Stream& stream) {
  for (CUlaunchAttribute attribute : attributes) {
    if (!names_event(attribute)) continue;
    OPENMPS_RETURN_IF_ERROR(translate(&attribute));
    CUevent event = attribute.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT
                        ? attribute.value.programmaticEvent.event
                        : attribute.value.launchCompletionEvent.event;
    OPENMPS_RETURN_IF_ERROR(check(core_.driver.cuEventRecord(event, stream.handle),
                                  "cuEventRecord behind a launch in the cold lane"));
  }
  return Status();
}

}  // namespace openmps::worker
