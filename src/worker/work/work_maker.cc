// SPDX-License-Identifier: Apache-2.0
// See work_maker.h.
#include "worker/work/work_maker.h"

#include <algorithm>
#include <string>
#include <utility>

#include "worker/device/driver_check.h"

namespace openmps::worker {
namespace {

// The time that a transfer takes, roughly, on current GPUs (measured on an H200): its start, and
// each byte.
constexpr uint64_t kTransferNs = 3'000;
constexpr uint64_t kBusBytesPerNs = 50;
constexpr uint64_t kMemoryBytesPerNs = 1'500;
// From this size on the duration of a copy over the bus is learnt, by the MiB. The start is a good
// part of a shorter copy, and no work waits long behind that.
constexpr uint64_t kLearntCopyBytes = 16 * wire::kMiB;

// Where a client puts the id of an event whose handle the driver wants.
wire::Id id_of(CUevent event) { return static_cast<wire::Id>(reinterpret_cast<uintptr_t>(event)); }

// An event of the client's that the launch itself records.
bool names_event(const CUlaunchAttribute& attribute) {
  return attribute.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT ||
         attribute.id == CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT;
}

// The rows of a slice as cuMemcpy3D counts them. A single slice needs no more than its own.
// Violation: a slice that is no whole number of rows.
Status rows_of_slice(const wire::ArrayCopy& copy, const wire::ArraySide& side, size_t* rows) {
  *rows = copy.height;
  if (copy.depth <= 1) return Status();
  if (side.pitch == 0 || side.slice % side.pitch != 0) {
    return violation("a slice of " + std::to_string(side.slice) + " bytes with rows of " +
                     std::to_string(side.pitch));
  }
  *rows = side.slice / side.pitch;
  return Status();
}

Status check_value(const wire::ValueOperation& operation) {
  const wire::StreamValue& value = operation.value;
  if (operation.kind == wire::ValueKind::kBarrier) return Status();
  if (operation.kind > wire::ValueKind::kBarrier) {
    return violation("an operation of kind " +
                     std::to_string(static_cast<uint32_t>(operation.kind)));
  }
  if ((value.width == 4 || value.width == 8) && value.address % value.width == 0) return Status();
  return violation("a stream value of " + std::to_string(value.width) + " bytes");
}

Status check_fence(const FenceValue& fence) {
  if (fence.slot < wire::kFenceSlots) return Status();
  return violation("there is no fence " + std::to_string(fence.slot));
}

}  // namespace

// ---- Kernels ------------------------------------------------------------------------------------

Status WorkMaker::make(const wire::Launch& command, const wire::Launch::Tail& tail,
                       Function& function, const Placement& place, Modules::Reach reach, Uses* uses,
                       KernelWork* kernel) {
  // The driver reads as many bytes as the kernel has, however many came.
  if (command.parameter_bytes < function.parameter_bytes) {
    return Status(CUDA_ERROR_INVALID_VALUE, std::to_string(command.parameter_bytes) +
                                                " bytes of parameters for a kernel of " +
                                                std::to_string(function.parameter_bytes));
  }
  Located located;
  OPENMPS_RETURN_IF_ERROR(modules_.locate(function, place, reach, &located));
  uses->lane = located.place.lane;
  kernel->function = &function;
  kernel->handle = located.handle;
  kernel->shape = &command;
  kernel->parameters = tail.parameters;
  set_sms(command, function, located, &uses->cost);
  modules_.note_launch(function, located.place.device);
  if (command.attribute_count == 0 && (command.flags & wire::kLaunchCooperative) == 0) [[likely]] {
    return Status();
  }
  return add_attributes(command, tail, located.place.device, uses, kernel);
}

// If the driver does not say, one block for each SM.
int WorkMaker::occupancy_of(const Located& located, int threads, uint32_t shared_bytes) {
  int blocks = 0;
  if (!core_.use(located.place).ok()) return blocks;
  const CUresult asked = core_.driver.cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
      &blocks, located.handle, threads, shared_bytes, CU_OCCUPANCY_DEFAULT);
  return asked == CUDA_SUCCESS ? blocks : 0;
}

// If the driver does not say, true.
bool WorkMaker::has_clusters(Function& function, const Located& located) {
  if (!function.has_clusters.has_value()) {
    int width = 0;
    function.has_clusters =
        !core_.use(located.place).ok() ||
        core_.driver.cuFuncGetAttribute(&width, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH,
                                        located.handle) != CUDA_SUCCESS ||
        width != 0;
  }
  return *function.has_clusters;
}

// Launches with attributes, and clusters, need the whole device: with few SMs they may not start at
// all.
void WorkMaker::set_sms(const wire::Launch& shape, Function& function, const Located& located,
                        Cost* cost) {
  const uint32_t device = located.place.device;
  const uint32_t all = core_.devices.at(device).sms;
  const GreenContext* partition = located.place.partition;
  const auto occupancy = [&](int threads, uint32_t bytes) {
    return occupancy_of(located, threads, bytes);
  };
  cost->sms =
      function.footprint.of(shape, device, partition != nullptr ? partition->sms : all, occupancy);
  if (!core_.parts.asks(device)) return;
  const bool is_plain = shape.attribute_count == 0 && (shape.flags & wire::kLaunchCooperative) == 0;
  if (!is_plain || has_clusters(function, located)) {
    cost->sms_needed = kWholeDevice;
    return;
  }
  cost->sms_needed = function.footprint.sms_needed(shape, device, occupancy);
  cost->needs_all_sms = function.footprint.needs_all_sms(shape, device, all,
                                                         all - core_.parts.few(device), occupancy);
}

Status WorkMaker::add_attributes(const wire::Launch& command, const wire::Launch::Tail& tail,
                                 uint32_t device, Uses* uses, KernelWork* kernel) {
  const bool is_cold = uses->lane == Lane::kCold;
  size_t count = 0;
  const auto add = [&](const CUlaunchAttribute& attribute) {
    attributes_[count] = attribute;
    return translate(&attributes_[count++], device, uses);
  };
  for (const CUlaunchAttribute& attribute : tail.attributes) {
    if (!is_cold || !names_event(attribute)) OPENMPS_RETURN_IF_ERROR(add(attribute));
  }
  if ((command.flags & wire::kLaunchCooperative) != 0) {
    CUlaunchAttribute cooperative{};
    cooperative.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
    cooperative.value.cooperative = 1;
    OPENMPS_RETURN_IF_ERROR(add(cooperative));
  }
  const size_t launched = count;
  for (const CUlaunchAttribute& attribute : tail.attributes) {
    if (is_cold && names_event(attribute)) OPENMPS_RETURN_IF_ERROR(add(attribute));
  }
  kernel->attributes = std::span(attributes_).first(count);
  kernel->recorded_behind = count - launched;
  return Status();
}

// Handles of attributes are ids here, addresses must be the session's, and attributes that reach
// beyond the session are refused.
Status WorkMaker::translate(CUlaunchAttribute* attribute, uint32_t device, Uses* uses) {
  CUlaunchAttributeValue& value = attribute->value;
  const auto use_named = [&](CUevent* event) {
    Event* named = nullptr;
    OPENMPS_RETURN_IF_ERROR(events_.events().get(id_of(*event), &named));
    return use(*named, uses, event);
  };
  switch (attribute->id) {
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
      value.priority = core_.driver_priority(device, value.priority);
      return Status();
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT: return use_named(&value.programmaticEvent.event);
    case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
      return use_named(&value.launchCompletionEvent.event);
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
      return memory_.check_operand({reinterpret_cast<uint64_t>(value.accessPolicyWindow.base_ptr),
                                    value.accessPolicyWindow.num_bytes},
                                   "access policy window");
    case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE:
      return Status(CUDA_ERROR_NOT_SUPPORTED, "kernel nodes updated from the device");
    default: return Status();
  }
}

Status WorkMaker::use(Event& event, Uses* uses, CUevent* handle) {
  std::shared_ptr<DriverEvent> shared;
  OPENMPS_RETURN_IF_ERROR(events_.share(event, &shared));
  *handle = shared->handle;
  for (std::shared_ptr<const void>& object : uses->objects) {
    if (object != nullptr) continue;
    object = std::move(shared);
    return Status();
  }
  return Status(CUDA_ERROR_INVALID_VALUE, "a launch with an attribute twice");
}

// ---- Copies and fills ---------------------------------------------------------------------------

Cost WorkMaker::cost_of(uint64_t bytes, bool over_bus) {
  return {.ns = kTransferNs + bytes / (over_bus ? kBusBytesPerNs : kMemoryBytesPerNs)};
}

void WorkMaker::set_copy(uint64_t from, uint64_t to, uint64_t bytes, Uses* uses) const {
  using wire::UsageCount;
  const bool from_host = core_.is_host(from);
  const bool to_host = core_.is_host(to);
  if (from_host) {
    uses->moves = to_host ? UsageCount::kHostToHost : UsageCount::kHostToDevice;
  } else {
    uses->moves = to_host ? UsageCount::kDeviceToHost : UsageCount::kDeviceToDevice;
  }
  uses->moved_bytes = bytes;
  uses->cost = cost_of(bytes, from_host || to_host);
}

Status WorkMaker::make(const wire::Memcpy& command, Uses* uses, CopyWork* copy) {
  set_ranges(command, &uses->ranges);
  copy->destination = core_.device_address(command.destination);
  copy->source = core_.device_address(command.source);
  copy->bytes = command.bytes;
  set_copy(command.source, command.destination, command.bytes, uses);
  const bool to_device = uses->moves == wire::UsageCount::kHostToDevice;
  const bool over_bus = to_device || uses->moves == wire::UsageCount::kDeviceToHost;
  if (over_bus && command.bytes >= kLearntCopyBytes) {
    uses->cost = {.learnt = to_device ? Durations::kMiBToDevice : Durations::kMiBFromDevice,
                  .times = static_cast<uint32_t>((command.bytes + wire::kMiB / 2) / wire::kMiB)};
  }
  copy->orders_all = (command.flags & wire::kOrderAllStreams) != 0;
  return Status();
}

Status WorkMaker::make(const wire::Memcpy3D& command, Uses* uses, BoxWork* copy) {
  const auto side = [](uint64_t address, uint64_t pitch, uint64_t slice) {
    return wire::ArraySide{.address = address, .pitch = pitch, .slice = slice};
  };
  const wire::ArrayCopy same{
      command.stream,
      command.flags,
      side(command.destination, command.destination_pitch, command.destination_slice),
      side(command.source, command.source_pitch, command.source_slice),
      command.width,
      command.height,
      command.depth};
  return make(same, uses, copy);
}

Status WorkMaker::make(const wire::ArrayCopy& command, Uses* uses, BoxWork* copy) {
  const wire::ArraySide& from = command.source;
  const wire::ArraySide& to = command.destination;
  set_ranges(command, &uses->ranges);
  copy->orders_all = (command.flags & wire::kOrderAllStreams) != 0;
  set_copy(from.address, to.address, command.width * command.height * command.depth, uses);
  CUDA_MEMCPY3D& box = copy->box;
  box.WidthInBytes = command.width;
  box.Height = command.height;
  box.Depth = command.depth;
  if (from.array != 0) {
    box.srcMemoryType = CU_MEMORYTYPE_ARRAY;
    OPENMPS_RETURN_IF_ERROR(arrays_.find(from.array, &box.srcArray, &uses->objects[1]));
    box.srcXInBytes = from.x;
    box.srcY = from.y;
    box.srcZ = from.z;
  } else {
    box.srcMemoryType = CU_MEMORYTYPE_UNIFIED;
    box.srcDevice = core_.device_address(from.address);
    box.srcPitch = from.pitch;
    OPENMPS_RETURN_IF_ERROR(rows_of_slice(command, from, &box.srcHeight));
  }
  if (to.array != 0) {
    box.dstMemoryType = CU_MEMORYTYPE_ARRAY;
    box.dstXInBytes = to.x;
    box.dstY = to.y;
    box.dstZ = to.z;
    return arrays_.find(to.array, &box.dstArray, &uses->objects[0]);
  }
  box.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
  box.dstDevice = core_.device_address(to.address);
  box.dstPitch = to.pitch;
  return rows_of_slice(command, to, &box.dstHeight);
}

Status WorkMaker::make(const wire::Memset& command, Uses* uses, FillWork* fill) {
  const uint32_t element = command.element_bytes;
  if (element != 1 && element != 2 && element != 4) {
    return violation("a fill with elements of " + std::to_string(element) + " bytes");
  }
  uses->lane = memory_.lane_of(command.destination);
  set_ranges(command, &uses->ranges);
  const uint64_t pitch = wire::fill_pitch(command.width, element, command.height, command.pitch);
  const uint64_t rows = std::max<uint64_t>(command.height, 1);
  uses->moves = wire::UsageCount::kFilled;
  uses->moved_bytes = command.width * element * rows;
  uses->cost = cost_of(uses->moved_bytes, core_.is_host(command.destination));
  fill->fill = {core_.device_address(command.destination),
                pitch,
                command.value,
                element,
                command.width,
                command.height};
  return Status();
}

// ---- Values, events, the client -----------------------------------------------------------------

Status WorkMaker::make(std::span<const wire::ValueOperation> operations, Uses* uses,
                       ValuesWork* values) {
  values->operations = operations;
  values->batch = std::span(batch_).first(operations.size());
  for (size_t i = 0; i < operations.size(); ++i) {
    const wire::ValueOperation& operation = operations[i];
    OPENMPS_RETURN_IF_ERROR(check_value(operation));
    batch_[i] = operation_of(operation.kind, operation.value,
                             core_.device_address(operation.value.address));
    if (operation.kind == wire::ValueKind::kWait) ++values->waits;
    if (memory_.lane_of(operation.value.address) == Lane::kCold) uses->lane = Lane::kCold;
  }
  // When the client has gone, no write could satisfy such a wait.
  if (uses->lane == Lane::kMain || values->waits == 0) return Status();
  return Status(CUDA_ERROR_NOT_SUPPORTED, "a wait for a module's variable in the cold lane");
}

Status WorkMaker::make(const wire::HostFunction& command, Uses*, HostCallWork* call) {
  call->slot = command.slot;
  call->answers_soon = (command.flags & wire::kAnswersSoon) != 0;
  call->fence = {command.fence, command.value, command.stream};
  if (command.slot >= wire::kCallbackSlots) {
    return violation("there is no callback slot " + std::to_string(command.slot));
  }
  return command.fence == wire::kNoFence ? Status() : check_fence(call->fence);
}

Status WorkMaker::make(const wire::Fence& command, Uses*, FenceWork* fence) {
  fence->fence = {command.slot & ~wire::kFenceInOrder, command.value, command.stream};
  fence->in_order = (command.slot & wire::kFenceInOrder) != 0;
  return check_fence(fence->fence);
}

Status WorkMaker::make(Event& event, const FenceValue& fence, Uses* uses, RecordWork* record) {
  if (fence.slot != wire::kNoFence) OPENMPS_RETURN_IF_ERROR(check_fence(fence));
  record->fence = fence;
  return use(event, uses, &record->event);
}

Status WorkMaker::make(Event& event, Uses* uses, WaitWork* wait) {
  return use(event, uses, &wait->event);
}

}  // namespace openmps::worker
