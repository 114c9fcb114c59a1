// SPDX-License-Identifier: Apache-2.0
// The functions of modules and kernels of libraries: look-up with layout and attributes,
// attributes, occupancy. Part of Modules (worker_module.h).
#include <algorithm>
#include <memory>
#include <string>

#include "worker/driver_check.h"
#include "worker/worker_module.h"

namespace openmps::worker {
namespace {

CUkernel kernel_of(const Function& function) { return reinterpret_cast<CUkernel>(function.handle); }

// What FunctionAttribute::kind selects.
enum AttributeKind : uint32_t { kAttribute = 0, kCacheConfiguration = 1, kBankSize = 2 };

}  // namespace

// The parameters, in order, until the driver says that there is none of that index. A driver
// without these calls (before CUDA 12.4) gives an empty layout: the client then parses the image.
void Modules::read_layout(Function& function, std::vector<wire::ParameterLayout>* layout) {
  for (size_t i = 0; i < wire::kMaxKernelParameters; ++i) {
    size_t offset = 0;
    size_t bytes = 0;
    const CUresult result =
        function.is_kernel
            ? core_.driver.cuKernelGetParamInfo(kernel_of(function), i, &offset, &bytes)
            : core_.driver.cuFuncGetParamInfo(function.handle, i, &offset, &bytes);
    if (result != CUDA_SUCCESS) return;
    layout->push_back({static_cast<uint32_t>(offset), static_cast<uint32_t>(bytes)});
    function.parameter_bytes =
        std::max(function.parameter_bytes, static_cast<uint32_t>(offset + bytes));
  }
}

Status Modules::read_attribute(const Function& function, uint32_t attribute, int32_t* value) {
  const auto name = static_cast<CUfunction_attribute>(attribute);
  const CUresult result =
      function.is_kernel
          ? core_.driver.cuKernelGetAttribute(value, name, kernel_of(function),
                                              core_.devices.at(function.device).handle)
          : core_.driver.cuFuncGetAttribute(value, name, function.handle);
  return check(result, "cuFuncGetAttribute");
}

Status Modules::get_function(const wire::GetSymbol& command, wire::Variable name,
                             ReplyWriter& reply) {
  Module* module = nullptr;
  OPENMPS_RETURN_IF_ERROR(find_module(command, &module));
  OPENMPS_RETURN_IF_ERROR(functions_.check_free(command.object));
  const std::string symbol(reinterpret_cast<const char*>(name.data()), name.size());
  auto function = std::make_unique<Function>();
  function->device = module->device;
  function->is_kernel = module->kind == wire::ModuleKind::kLibrary;
  wire::FunctionReply facts{};
  std::vector<wire::ParameterLayout> layout;
  const CUresult result = core_.gate.run(GatedCall::kFunctionLoad, [&] {
    CUresult found = CUDA_SUCCESS;
    if (function->is_kernel) {
      CUkernel kernel = nullptr;
      found = core_.driver.cuLibraryGetKernel(&kernel, module->library, symbol.c_str());
      function->handle = reinterpret_cast<CUfunction>(kernel);
    } else {
      found = core_.driver.cuModuleGetFunction(&function->handle, module->module, symbol.c_str());
    }
    if (found != CUDA_SUCCESS) return found;
    for (uint32_t i = 0; i < wire::kFunctionAttributes; ++i) {
      // An attribute that this driver does not know stays 0.
      if (!read_attribute(*function, i, &facts.attributes[i]).ok()) facts.attributes[i] = 0;
    }
    read_layout(*function, &layout);
    return CUDA_SUCCESS;
  });
  OPENMPS_RETURN_IF_ERROR(check(result, "cuModuleGetFunction"));
  facts.parameter_count = static_cast<uint32_t>(layout.size());
  facts.parameter_bytes = function->parameter_bytes;
  reply.put(facts);
  reply.append(layout.data(), layout.size() * sizeof(layout[0]));
  module->functions.push_back(command.object);
  return functions_.insert(command.object, std::move(function));
}

Status Modules::set_attribute(const wire::FunctionAttribute& command) {
  Function* function = nullptr;
  OPENMPS_RETURN_IF_ERROR(functions_.get(command.function, &function));
  OPENMPS_RETURN_IF_ERROR(core_.use(function->device));
  const DriverTable& driver = core_.driver;
  const CUdevice device = core_.devices.at(function->device).handle;
  CUresult result = CUDA_ERROR_INVALID_VALUE;
  if (command.kind == kAttribute) {
    const auto name = static_cast<CUfunction_attribute>(command.attribute);
    result = function->is_kernel
                 ? driver.cuKernelSetAttribute(name, command.value, kernel_of(*function), device)
                 : driver.cuFuncSetAttribute(function->handle, name, command.value);
  } else if (command.kind == kCacheConfiguration) {
    const auto config = static_cast<CUfunc_cache>(command.value);
    result = function->is_kernel
                 ? driver.cuKernelSetCacheConfig(kernel_of(*function), config, device)
                 : driver.cuFuncSetCacheConfig(function->handle, config);
  } else if (command.kind == kBankSize) {
    // Kernels of libraries have no such call, and no GPU since Kepler heeds it.
    result = function->is_kernel
                 ? CUDA_SUCCESS
                 : driver.cuFuncSetSharedMemConfig(function->handle,
                                                   static_cast<CUsharedconfig>(command.value));
  }
  return check(result, "cuFuncSetAttribute");
}

Status Modules::get_attribute(const wire::FunctionAttribute& command, ReplyWriter& reply) {
  Function* function = nullptr;
  OPENMPS_RETURN_IF_ERROR(functions_.get(command.function, &function));
  OPENMPS_RETURN_IF_ERROR(core_.use(function->device));
  int32_t value = 0;
  OPENMPS_RETURN_IF_ERROR(read_attribute(*function, command.attribute, &value));
  reply.put(value);
  return Status();
}

Status Modules::occupancy(const wire::Occupancy& command, ReplyWriter& reply) {
  Function* function = nullptr;
  OPENMPS_RETURN_IF_ERROR(functions_.get(command.function, &function));
  OPENMPS_RETURN_IF_ERROR(core_.use(function->device));
  CUresult result = CUDA_ERROR_INVALID_VALUE;
  uint64_t value = 0;
  if (command.query == static_cast<uint32_t>(wire::OccupancyQuery::kMaxActiveBlocks)) {
    int blocks = 0;
    result = core_.driver.cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        &blocks, function->handle, command.block_size, command.dynamic_shared_bytes, command.flags);
    value = static_cast<uint64_t>(blocks);
  } else if (command.query ==
             static_cast<uint32_t>(wire::OccupancyQuery::kAvailableDynamicShared)) {
    // Here `flags` is the number of blocks per multiprocessor.
    size_t bytes = 0;
    result = core_.driver.cuOccupancyAvailableDynamicSMemPerBlock(
        &bytes, function->handle, static_cast<int>(command.flags), command.block_size);
    value = bytes;
  }
  OPENMPS_RETURN_IF_ERROR(check(result, "the occupancy query"));
  reply.put(wire::OccupancyReply{value});
  return Status();
}

}  // namespace openmps::worker
