// SPDX-License-Identifier: Apache-2.0
// See limits.h.
#include "worker/session/limits.h"

#include <algorithm>
#include <string>

#include "base/mutex.h"
#include "worker/device/driver_check.h"

namespace openmps::worker {
namespace {

// Device memory of a pending launch, as an estimate: up to 4 KiB of parameters, and as much again
// for the launch's description.
constexpr uint64_t kPendingLaunchBytes = 8 << 10;

int attribute_of(const SessionCore& core, uint32_t device, CUdevice_attribute attribute) {
  int value = 0;
  core.driver.cuDeviceGetAttribute(&value, attribute, core.devices.at(device).handle);
  return value;
}

}  // namespace

Status Limits::read(uint32_t device, CUlimit limit, uint64_t* value) {
  OPENMPS_RETURN_IF_ERROR(core_.use(device));
  size_t now = 0;
  OPENMPS_RETURN_IF_ERROR(check(core_.driver.cuCtxGetLimit(&now, limit), "cuCtxGetLimit"));
  // What kernels print reaches the client through the channel, which limits it.
  if (limit == CU_LIMIT_PRINTF_FIFO_SIZE) now = std::min<size_t>(now, wire::kOutputTextBytes);
  *value = now;
  return Status();
}

Status Limits::handle(const wire::LimitGet& command, ReplyTo<wire::LimitGet> reply) {
  uint64_t value = 0;
  OPENMPS_RETURN_IF_ERROR(read(command.device, static_cast<CUlimit>(command.limit), &value));
  reply.put({value});
  return Status();
}

Status Limits::handle(const wire::LimitRaise& command) {
  const auto limit = static_cast<CUlimit>(command.limit);
  uint64_t now = 0;
  OPENMPS_RETURN_IF_ERROR(read(command.device, limit, &now));
  switch (limit) {
    // CUDA documents both as hints: cuCtxGetLimit says what is in force.
    case CU_LIMIT_MAX_L2_FETCH_GRANULARITY:
    case CU_LIMIT_PERSISTING_L2_CACHE_SIZE: return Status();
    case CU_LIMIT_STACK_SIZE:
      return command.value <= now ? Status() : raise_stack(command.device, command.value, now);
    case CU_LIMIT_PRINTF_FIFO_SIZE:
      if (command.value > wire::kOutputTextBytes) {
        return Status(CUDA_ERROR_INVALID_VALUE,
                      "a printf buffer of " + std::to_string(command.value) +
                          " bytes: a channel holds " + std::to_string(wire::kOutputTextBytes));
      }
      [[fallthrough]];
    case CU_LIMIT_MALLOC_HEAP_SIZE:
      return command.value <= now ? Status()
                                  : raise_memory(command.device, limit, command.value, now);
    case CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT:
      return command.value <= now ? Status() : raise_launches(command.device, command.value, now);
    default: return Status(CUDA_ERROR_NOT_PERMITTED, "a limit that clients may not change");
  }
}

// Local memory for every thread that can be resident. The driver waits for all work of the context,
// so the call is made at quiescence or not at all.
Status Limits::raise_stack(uint32_t device, uint64_t value, uint64_t now) {
  const auto attribute = [&](CUdevice_attribute name) {
    return static_cast<uint64_t>(attribute_of(core_, device, name));
  };
  const uint64_t threads = attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT) *
                           attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
  if (value > core_.devices.at(device).total_memory / std::max<uint64_t>(threads, 1)) {
    return Status(CUDA_ERROR_INVALID_VALUE,
                  "a stack of " + std::to_string(value) + " bytes for each thread");
  }
  return raise_at_quiescence(device, CU_LIMIT_STACK_SIZE, value, (value - now) * threads);
}

// softgpu waits for all work of the context as it does for a stack; NVIDIA's driver was not
// measured.
Status Limits::raise_launches(uint32_t device, uint64_t value, uint64_t now) {
  if (value > core_.devices.at(device).total_memory / kPendingLaunchBytes) {
    return Status(CUDA_ERROR_INVALID_VALUE, std::to_string(value) + " pending launches");
  }
  return raise_at_quiescence(device, CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT, value,
                             (value - now) * kPendingLaunchBytes);
}

Status Limits::raise_at_quiescence(uint32_t device, CUlimit limit, uint64_t value, uint64_t bytes) {
  OPENMPS_RETURN_IF_ERROR(memory_.charge(device, bytes));
  const auto raise = [&]() -> CUresult {
    const MutexLock lock(changing_);
    size_t there = 0;  // another session may have raised it meanwhile
    const CUresult read = core_.driver.cuCtxGetLimit(&there, limit);
    if (read != CUDA_SUCCESS || there >= value) return read;
    const CUresult set = core_.driver.cuCtxSetLimit(limit, value);
    if (set != CUDA_SUCCESS || core_.cold == nullptr) return set;
    return core_.cold->set_limit(device, limit, value);
  };
  const CUresult result = core_.gate.run_quiescent({GatedCall::kLimit, device}, raise)
                              .value_or(CUDA_ERROR_NOT_PERMITTED);
  if (result == CUDA_SUCCESS) {
    charged_[device] += bytes;
    core_.taint();  // a later client finds less memory
    return Status();
  }
  memory_.refund(device, bytes);
  if (result == CUDA_ERROR_NOT_PERMITTED) {
    return Status(result, "the limit can't be raised while other clients' work goes on");
  }
  return check(result, "cuCtxSetLimit");
}

// The driver allocates this memory when it is first used; the call waits for no work (measured on
// an H200).
Status Limits::raise_memory(uint32_t device, CUlimit limit, uint64_t value, uint64_t now) {
  const uint64_t bytes = value - now;
  OPENMPS_RETURN_IF_ERROR(memory_.charge(device, bytes));
  Status status;
  {
    const MutexLock lock(changing_);
    uint64_t there = 0;
    status = read(device, limit, &there);
    if (status.ok() && there < value) {
      status = check(core_.driver.cuCtxSetLimit(limit, value), "cuCtxSetLimit");
      // The driver clamps a value that is too large.
      if (status.ok()) status = read(device, limit, &there);
      if (status.ok() && there < value) {
        status = Status(CUDA_ERROR_INVALID_VALUE, "the driver grants " + std::to_string(there) +
                                                      " of " + std::to_string(value) + " bytes");
      }
    }
  }
  if (!status.ok()) {
    memory_.refund(device, bytes);
    return status;
  }
  charged_[device] += bytes;
  core_.taint();  // a later client finds less memory
  return Status();
}

// The limits remain in force until the worker ends; its successor begins with the defaults.
void Limits::release_all() {
  for (uint32_t device = 0; device < core_.devices.count(); ++device) {
    memory_.refund(device, charged_[device]);
    charged_[device] = 0;
  }
}

}  // namespace openmps::worker
