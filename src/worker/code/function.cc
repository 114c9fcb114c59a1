// SPDX-License-Identifier: Apache-2.0
// See function.h.
#include "worker/code/function.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>

#include "cuda/launch_attributes.h"
#include "worker/device/driver_check.h"
#include "worker/device/in_context.h"

namespace openmps::worker {
namespace {

bool is_plain(CUlaunchAttributeID id) {
  const cuda::LaunchAttributeFacts* const facts = cuda::find_launch_attribute(id);
  return facts != nullptr && facts->is_plain;
}

// A function of a module belongs to its device; a kernel of a library has attributes on each
// device.
uint32_t device_of(const Function& function, uint32_t wanted) {
  return function.is_kernel ? wanted : function.device;
}

}  // namespace

template <typename F>
Status Functions::ask(Function& function, uint32_t device, const char* call, F&& f) {
  Located located;
  OPENMPS_RETURN_IF_ERROR(modules_.locate(function, {device}, Modules::Reach::kAnyLane, &located));
  OPENMPS_RETURN_IF_ERROR(core_.use(located.place));
  const CUresult result = f(located.handle);
  OPENMPS_RETURN_IF_ERROR(core_.use(device));
  return check(result, call);
}

// The parameters, in order, up to the first index for which the driver has none. A driver without
// this call (before CUDA 12.4) gives an empty layout: the client then parses the image.
void Functions::describe(Function& function, CUfunction handle, wire::GetFunction::Reply* facts,
                         std::vector<wire::ParameterLayout>* layout) {
  const DriverTable& driver = core_.driver;
  for (uint32_t i = 0; i < wire::kFunctionAttributes; ++i) {
    // An attribute that this driver does not know stays 0.
    int32_t& value = facts->attributes[i];
    const auto name = static_cast<CUfunction_attribute>(i);
    if (driver.cuFuncGetAttribute(&value, name, handle) != CUDA_SUCCESS) value = 0;
  }
  for (size_t i = 0; i < wire::kMaxKernelParameters; ++i) {
    size_t offset = 0;
    size_t bytes = 0;
    if (driver.cuFuncGetParamInfo(handle, i, &offset, &bytes) != CUDA_SUCCESS) return;
    layout->push_back({static_cast<uint32_t>(offset), static_cast<uint32_t>(bytes)});
    function.parameter_bytes =
        std::max(function.parameter_bytes, static_cast<uint32_t>(offset + bytes));
  }
}

Status Functions::handle(const wire::GetFunction& command, Module& module,
                         const wire::GetFunction::Tail& tail, ReplyTo<wire::GetFunction> reply) {
  uint32_t device = 0;
  OPENMPS_RETURN_IF_ERROR(modules_.enter(module, command.kind, command.device, &device));
  auto function = std::make_shared<Function>();
  function->name = tail.name;
  function->device = device;
  function->is_kernel = module.kind == wire::ModuleKind::kLibrary;
  function->module = &module;
  KernelCode& code = function->code;
  code.library = module.code.library;
  OPENMPS_RETURN_IF_ERROR(check(
      core_.driver.cuLibraryGetKernel(&code.kernel, code.library->handle, function->name.c_str()),
      "cuLibraryGetKernel"));
  wire::GetFunction::Reply facts{};
  std::vector<wire::ParameterLayout> layout;
  Status status = ask(*function, device, "cuKernelGetFunction", [&](CUfunction handle) {
    describe(*function, handle, &facts, &layout);
    return CUDA_SUCCESS;
  });
  OPENMPS_RETURN_IF_ERROR(core_.use(device));
  // A kernel that has no code for the device says so when it is launched.
  if (!status.ok() && (!function->is_kernel || is_sticky(status.code()))) return status;
  const KernelCode& there = function->on(device);
  there.library->pristine(there.kernel, facts.attributes);
  if (module.is_remembered) function->remembered = 0;
  function->prints = module.facts.prints;
  function->asserts = module.facts.asserts;
  // Heap memory that the kernels do not free is taken until the context ends.
  if (module.facts.allocates) core_.taint();
  facts.flags = function->prints ? wire::kFunctionPrints : 0;
  facts.parameter_bytes = function->parameter_bytes;
  reply.put(facts, wire::GetFunction::ReplyTail{layout});
  return modules_.add(command.function, std::move(function));
}

Status Functions::handle(const wire::ModuleFunctions& command, Module& module,
                         ReplyTo<wire::ModuleFunctions> reply) {
  OPENMPS_RETURN_IF_ERROR(core_.use(module.device));
  std::vector<CUkernel> kernels;
  OPENMPS_RETURN_IF_ERROR(
      check(modules_.list_kernels(*module.code.library, &kernels), "cuLibraryEnumerateKernels"));
  wire::ModuleFunctions::Reply head{.functions = static_cast<uint32_t>(kernels.size())};
  std::string names;
  for (size_t i = command.first; i < kernels.size(); ++i) {
    const char* name = nullptr;
    OPENMPS_RETURN_IF_ERROR(
        check(core_.driver.cuKernelGetName(&name, kernels[i]), "cuKernelGetName"));
    if (names.size() + strlen(name) + 1 > reply.room()) break;
    names.append(name).push_back('\0');
    ++head.names;
  }
  reply.put(head, wire::ModuleFunctions::ReplyTail{names});
  return Status();
}

Status Functions::handle(const wire::FunctionSetAttribute& command, Function& function) {
  const uint32_t device = device_of(function, command.device);
  const bool is_attribute = command.setting == wire::FunctionSetting::kAttribute;
  const auto set = [&](CUfunction) {
    // Kernels of libraries have no such call, and GPUs since Kepler ignore the setting.
    if (command.setting == wire::FunctionSetting::kBankSize && function.is_kernel) {
      return CUDA_SUCCESS;
    }
    const KernelCode& code = function.on(device);
    return code.library->set(code.kernel, device,
                             {command.setting, is_attribute ? command.attribute : 0},
                             command.value);
  };
  return ask(function, device, "cuFuncSetAttribute", set);
}

Status Functions::handle(const wire::FunctionGetAttribute& command, Function& function,
                         ReplyTo<wire::FunctionGetAttribute> reply) {
  int32_t value = 0;
  const auto name = static_cast<CUfunction_attribute>(command.attribute);
  OPENMPS_RETURN_IF_ERROR(ask(
      function, device_of(function, command.device), "cuFuncGetAttribute",
      [&](CUfunction handle) { return core_.driver.cuFuncGetAttribute(&value, name, handle); }));
  reply.put({value});
  return Status();
}

Status Functions::handle(const wire::Occupancy& command, Function& function,
                         ReplyTo<wire::Occupancy> reply) {
  int blocks = 0;
  OPENMPS_RETURN_IF_ERROR(
      ask(function, function.device, "cuOccupancyMaxActiveBlocksPerMultiprocessor",
          [&](CUfunction handle) {
            return core_.driver.cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
                &blocks, handle, command.block_size, command.dynamic_shared_bytes, command.flags);
          }));
  reply.put({static_cast<uint64_t>(blocks)});
  return Status();
}

Status Functions::handle(const wire::SharedMemoryRoom& command, Function& function,
                         ReplyTo<wire::SharedMemoryRoom> reply) {
  size_t bytes = 0;
  OPENMPS_RETURN_IF_ERROR(ask(function, device_of(function, command.device),
                              "cuOccupancyAvailableDynamicSMemPerBlock", [&](CUfunction handle) {
                                return core_.driver.cuOccupancyAvailableDynamicSMemPerBlock(
                                    &bytes, handle, command.blocks, command.block_size);
                              }));
  reply.put({bytes});
  return Status();
}

Status Functions::handle(const wire::ClusterOccupancy& command, Function& function,
                         ClientGreen* green, const wire::ClusterOccupancy::Tail& tail,
                         ReplyTo<wire::ClusterOccupancy> reply) {
  CUlaunchAttribute list[wire::kMaxLaunchAttributes];
  std::copy(tail.attributes.begin(), tail.attributes.end(), list);
  // The other attributes name objects and do not affect occupancy.
  const auto plain_end = std::remove_if(list, list + command.attribute_count,
                                        [](const auto& entry) { return !is_plain(entry.id); });
  CUlaunchConfig config{};
  config.gridDimX = command.grid[0];
  config.gridDimY = command.grid[1];
  config.gridDimZ = command.grid[2];
  config.blockDimX = command.block[0];
  config.blockDimY = command.block[1];
  config.blockDimZ = command.block[2];
  config.sharedMemBytes = command.shared_bytes;
  config.attrs = list;
  config.numAttrs = static_cast<unsigned>(plain_end - list);
  // Clusters need SMs that lie together: in a set of SMs fewer clusters may fit.
  SmPart of_session;
  const GreenContext* part = green;
  if (green == nullptr || !green->is_there()) {
    OPENMPS_RETURN_IF_ERROR(core_.parts.get_limit(function.device, command.sms, &of_session));
    part = of_session.get();
  }
  int value = 0;
  const auto query = [&](CUfunction handle) {
    const InContext current(core_.driver, part != nullptr ? part->context : nullptr);
    switch (command.query) {
      case wire::ClusterQuery::kMaxActive:
        return core_.driver.cuOccupancyMaxActiveClusters(&value, handle, &config);
      case wire::ClusterQuery::kMaxPotentialSize:
        return core_.driver.cuOccupancyMaxPotentialClusterSize(&value, handle, &config);
      default: return CUDA_ERROR_INVALID_VALUE;
    }
  };
  OPENMPS_RETURN_IF_ERROR(ask(function, function.device, "the cluster occupancy query", query));
  reply.put({static_cast<uint64_t>(value)});
  return Status();
}

}  // namespace openmps::worker
