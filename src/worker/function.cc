// SPDX-License-Identifier: Apache-2.0
// The functions of modules and kernels of libraries: names, look-up with layout and attributes,
// attributes, occupancy. Part of Modules (module.h).
#include <string.h>

#include <algorithm>
#include <memory>
#include <string>

#include "worker/driver_check.h"
#include "worker/module.h"

namespace openmps::worker {
namespace {

// Those attributes of a launch that are numbers: no handle, no address.
bool is_plain(CUlaunchAttributeID id) {
  switch (id) {
    case CU_LAUNCH_ATTRIBUTE_IGNORE:
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION:
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT: return true;
    default: return false;
  }
}

}  // namespace

// A function of a module belongs to its device; a kernel of a library has attributes on each.
Status Modules::enter(Function& function, uint32_t wanted, uint32_t* device, Located* located) {
  *device = function.is_kernel ? wanted : function.device;
  OPENMPS_RETURN_IF_ERROR(locate(function, *device, Reach::kAnyLane, located));
  return core_.use(*device, located->lane);
}

Status Modules::read_attribute(const Located& located, uint32_t attribute, int32_t* value) {
  const auto name = static_cast<CUfunction_attribute>(attribute);
  return check(core_.driver.cuFuncGetAttribute(value, name, located.handle), "cuFuncGetAttribute");
}

// The parameters, in order, until the driver says that there is none of that index. A driver
// without this call (before CUDA 12.4) gives an empty layout: the client then parses the image.
void Modules::describe(Function& function, const Located& located, wire::GetFunction::Reply* facts,
                       std::vector<wire::ParameterLayout>* layout) {
  for (uint32_t i = 0; i < wire::kFunctionAttributes; ++i) {
    // An attribute that this driver does not know stays 0.
    if (!read_attribute(located, i, &facts->attributes[i]).ok()) facts->attributes[i] = 0;
  }
  for (size_t i = 0; i < wire::kMaxKernelParameters; ++i) {
    size_t offset = 0;
    size_t bytes = 0;
    if (core_.driver.cuFuncGetParamInfo(located.handle, i, &offset, &bytes) != CUDA_SUCCESS) return;
    layout->push_back({static_cast<uint32_t>(offset), static_cast<uint32_t>(bytes)});
    function.parameter_bytes =
        std::max(function.parameter_bytes, static_cast<uint32_t>(offset + bytes));
  }
}

Status Modules::handle(const wire::GetFunction& command, Module& module,
                       const wire::GetFunction::Tail& tail, ReplyTo<wire::GetFunction> reply) {
  uint32_t device = 0;
  OPENMPS_RETURN_IF_ERROR(enter(module, command.kind, command.device, &device));
  const std::string symbol(tail.name);
  auto function = std::make_shared<Function>();
  function->device = device;
  function->is_kernel = module.kind == wire::ModuleKind::kLibrary;
  function->module = &module;
  function->library = module.library;
  OPENMPS_RETURN_IF_ERROR(check(
      core_.driver.cuLibraryGetKernel(&function->kernel, module.library->handle, symbol.c_str()),
      "cuLibraryGetKernel"));
  wire::GetFunction::Reply facts{};
  std::vector<wire::ParameterLayout> layout;
  Located located;
  const Status status = enter(*function, device, &device, &located);
  if (status.ok()) describe(*function, located, &facts, &layout);
  OPENMPS_RETURN_IF_ERROR(core_.use(device));
  // A kernel that has no code for the device says so when it is launched.
  if (!status.ok() && (!function->is_kernel || is_sticky(status.code()))) return status;
  module.library->pristine(function->kernel, facts.attributes);
  function->prints = module.facts.prints;
  function->asserts = module.facts.asserts;
  any_prints_ |= function->prints;
  any_asserts_ |= function->asserts;
  // What its kernels take from the heap and do not give back is the context's until that ends.
  if (module.facts.allocates) core_.wear();
  facts.flags = function->prints ? wire::kFunctionPrints : 0;
  facts.parameter_bytes = function->parameter_bytes;
  reply.put(facts, wire::GetFunction::ReplyTail{layout});
  module.functions.push_back(command.function);
  return functions_.insert(command.function, std::move(function));
}

CUresult Modules::list_kernels(const Module& module, std::vector<CUkernel>* kernels) {
  unsigned count = 0;
  const CUresult counted = core_.driver.cuLibraryGetKernelCount(&count, module.library->handle);
  if (counted != CUDA_SUCCESS) return counted;
  kernels->assign(count, nullptr);
  if (count == 0) return CUDA_SUCCESS;
  return core_.driver.cuLibraryEnumerateKernels(kernels->data(), count, module.library->handle);
}

Status Modules::handle(const wire::ModuleFunctions& command, Module& module,
                       ReplyTo<wire::ModuleFunctions> reply) {
  OPENMPS_RETURN_IF_ERROR(core_.use(module.device));
  std::vector<CUkernel> kernels;
  OPENMPS_RETURN_IF_ERROR(check(list_kernels(module, &kernels), "cuLibraryEnumerateKernels"));
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

Status Modules::handle(const wire::FunctionSetAttribute& command, Function& function) {
  uint32_t device = 0;
  Located located;
  OPENMPS_RETURN_IF_ERROR(enter(function, command.device, &device, &located));
  LoadedLibrary& library = *function.library;
  CUresult result = CUDA_ERROR_INVALID_VALUE;
  if (command.setting == wire::FunctionSetting::kAttribute) {
    result =
        library.set_attribute(function.kernel, device,
                              static_cast<CUfunction_attribute>(command.attribute), command.value);
  } else if (command.setting == wire::FunctionSetting::kCacheConfiguration) {
    result = library.set_cache(function.kernel, device, static_cast<CUfunc_cache>(command.value));
  } else if (command.setting == wire::FunctionSetting::kBankSize) {
    // Kernels of libraries have no such call, and no GPU since Kepler heeds it.
    result = function.is_kernel ? CUDA_SUCCESS
                                : library.set_banks(function.kernel, device,
                                                    static_cast<CUsharedconfig>(command.value));
  }
  OPENMPS_RETURN_IF_ERROR(core_.use(device));
  return check(result, "cuFuncSetAttribute");
}

Status Modules::handle(const wire::FunctionGetAttribute& command, Function& function,
                       ReplyTo<wire::FunctionGetAttribute> reply) {
  uint32_t device = 0;
  int32_t value = 0;
  Located located;
  OPENMPS_RETURN_IF_ERROR(enter(function, command.device, &device, &located));
  const Status status = read_attribute(located, command.attribute, &value);
  OPENMPS_RETURN_IF_ERROR(core_.use(device));
  OPENMPS_RETURN_IF_ERROR(status);
  reply.put({value});
  return Status();
}

Status Modules::handle(const wire::Occupancy& command, Function& function,
                       ReplyTo<wire::Occupancy> reply) {
  uint32_t device = 0;
  Located located;
  OPENMPS_RETURN_IF_ERROR(enter(function, function.device, &device, &located));
  int blocks = 0;
  const CUresult result = core_.driver.cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
      &blocks, located.handle, command.block_size, command.dynamic_shared_bytes, command.flags);
  OPENMPS_RETURN_IF_ERROR(core_.use(device));
  OPENMPS_RETURN_IF_ERROR(check(result, "cuOccupancyMaxActiveBlocksPerMultiprocessor"));
  reply.put({static_cast<uint64_t>(blocks)});
  return Status();
}

Status Modules::handle(const wire::SharedMemoryRoom& command, Function& function,
                       ReplyTo<wire::SharedMemoryRoom> reply) {
  uint32_t device = 0;
  Located located;
  OPENMPS_RETURN_IF_ERROR(enter(function, command.device, &device, &located));
  size_t bytes = 0;
  const CUresult result = core_.driver.cuOccupancyAvailableDynamicSMemPerBlock(
      &bytes, located.handle, command.blocks, command.block_size);
  OPENMPS_RETURN_IF_ERROR(core_.use(device));
  OPENMPS_RETURN_IF_ERROR(check(result, "cuOccupancyAvailableDynamicSMemPerBlock"));
  reply.put({bytes});
  return Status();
}

Status Modules::handle(const wire::ClusterOccupancy& command, Function& function,
                       const wire::ClusterOccupancy::Tail& tail,
                       ReplyTo<wire::ClusterOccupancy> reply) {
  CUlaunchAttribute list[wire::kMaxLaunchAttributes];
  std::copy(tail.attributes.begin(), tail.attributes.end(), list);
  // The others, which name objects, change nothing about occupancy.
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
  uint32_t device = 0;
  Located located;
  OPENMPS_RETURN_IF_ERROR(enter(function, function.device, &device, &located));
  CUresult result = CUDA_ERROR_INVALID_VALUE;
  int value = 0;
  if (command.query == wire::ClusterQuery::kMaxActive) {
    result = core_.driver.cuOccupancyMaxActiveClusters(&value, located.handle, &config);
  } else if (command.query == wire::ClusterQuery::kMaxPotentialSize) {
    result = core_.driver.cuOccupancyMaxPotentialClusterSize(&value, located.handle, &config);
  }
  OPENMPS_RETURN_IF_ERROR(core_.use(device));
  OPENMPS_RETURN_IF_ERROR(check(result, "the cluster occupancy query"));
  reply.put({static_cast<uint64_t>(value)});
  return Status();
}

}  // namespace openmps::worker
