// SPDX-License-Identifier: Apache-2.0
// The functions of modules and kernels of libraries: names, look-up with layout and attributes,
// attributes, occupancy. Part of Modules (worker_module.h).
#include <string.h>

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

Status Modules::ensure_loaded(Function& function, uint32_t device) {
  const uint32_t bit = 1u << device;
  if (!function.is_kernel || (function.loaded & bit) != 0) return Status();
  if (function.library->is_whole(device)) {
    function.loaded |= bit;
    return Status();
  }
  OPENMPS_RETURN_IF_ERROR(core_.use(device));
  core_.gate.run(GatedCall::kFunctionLoad, device, &core_.feeder, [&] {
    CUfunction loaded = nullptr;
    const CUresult result = core_.driver.cuKernelGetFunction(&loaded, kernel_of(function));
    return result == CUDA_SUCCESS && core_.driver.cuFuncLoad != nullptr
               ? core_.driver.cuFuncLoad(loaded)
               : result;
  });
  function.library->note_loaded(device, false);
  function.loaded |= bit;  // if that failed the launch says so
  return Status();
}

// A function belongs to its module's device; a kernel of a library has attributes on each.
Status Modules::function_device(const Function& function, uint32_t wanted, uint32_t* device) {
  *device = function.is_kernel ? wanted : function.device;
  OPENMPS_RETURN_IF_ERROR(core_.check_device(*device));
  return core_.use(*device);
}

Status Modules::read_attribute(const Function& function, uint32_t device, uint32_t attribute,
                               int32_t* value) {
  const auto name = static_cast<CUfunction_attribute>(attribute);
  const CUresult result = function.is_kernel
                              ? core_.driver.cuKernelGetAttribute(value, name, kernel_of(function),
                                                                  core_.devices.at(device).handle)
                              : core_.driver.cuFuncGetAttribute(value, name, function.handle);
  return check(result, "cuFuncGetAttribute");
}

Status Modules::get_function(const wire::GetSymbol& command, wire::Variable name,
                             ReplyWriter& reply) {
  Module* module = nullptr;
  uint32_t device = 0;
  OPENMPS_RETURN_IF_ERROR(find_module(command, &module, &device));
  OPENMPS_RETURN_IF_ERROR(functions_.check_free(command.object));
  const std::string symbol(reinterpret_cast<const char*>(name.data()), name.size());
  auto function = std::make_unique<Function>();
  function->device = device;
  function->is_kernel = module->kind == wire::ModuleKind::kLibrary;
  wire::FunctionReply facts{};
  std::vector<wire::ParameterLayout> layout;
  const auto look_up = [&] {
    CUresult found = load_functions(*module, device);
    if (found != CUDA_SUCCESS) return found;
    if (function->is_kernel) {
      CUkernel kernel = nullptr;
      found = core_.driver.cuLibraryGetKernel(&kernel, module->library->handle, symbol.c_str());
      function->handle = reinterpret_cast<CUfunction>(kernel);
    } else {
      found = core_.driver.cuModuleGetFunction(&function->handle, module->module, symbol.c_str());
    }
    if (found != CUDA_SUCCESS) return found;
    if (core_.driver.cuFuncLoad != nullptr && !module->library->is_whole(device)) {
      CUfunction loaded = function->handle;
      if (function->is_kernel) {
        core_.driver.cuKernelGetFunction(&loaded, kernel_of(*function));
      }
      core_.driver.cuFuncLoad(loaded);  // if that fails its launch says so
    }
    for (uint32_t i = 0; i < wire::kFunctionAttributes; ++i) {
      // An attribute that this driver does not know stays 0.
      if (!read_attribute(*function, device, i, &facts.attributes[i]).ok()) {
        facts.attributes[i] = 0;
      }
    }
    read_layout(*function, &layout);
    return CUDA_SUCCESS;
  };
  const CUresult result =
      module->library->is_whole(device)
          ? look_up()
          : core_.gate.run(GatedCall::kFunctionLoad, device, &core_.feeder, look_up);
  OPENMPS_RETURN_IF_ERROR(check(result, "cuModuleGetFunction"));
  function->library = module->library.get();
  function->library->note_loaded(device, false);
  function->library->pristine(function->handle, facts.attributes);
  if (function->is_kernel) function->loaded = 1u << device;
  function->prints = module->facts.prints;
  function->asserts = module->facts.asserts;
  any_prints_ |= function->prints;
  any_asserts_ |= function->asserts;
  // What its kernels take from the heap and do not give back is the context's until that ends.
  if (module->facts.allocates) core_.wear();
  facts.flags = function->prints ? wire::kFunctionPrints : 0;
  facts.parameter_count = static_cast<uint32_t>(layout.size());
  facts.parameter_bytes = function->parameter_bytes;
  reply.put(facts);
  reply.append(layout.data(), layout.size() * sizeof(layout[0]));
  module->functions.push_back(command.object);
  return functions_.insert(command.object, std::move(function));
}

CUresult Modules::list_functions(const Module& module, std::vector<CUfunction>* functions) {
  const DriverTable& driver = core_.driver;
  const bool is_library = module.kind == wire::ModuleKind::kLibrary;
  unsigned count = 0;
  const CUresult counted = is_library
                               ? driver.cuLibraryGetKernelCount(&count, module.library->handle)
                               : driver.cuModuleGetFunctionCount(&count, module.module);
  if (counted != CUDA_SUCCESS) return counted;
  functions->assign(count, nullptr);
  if (count == 0) return CUDA_SUCCESS;
  return is_library
             ? driver.cuLibraryEnumerateKernels(reinterpret_cast<CUkernel*>(functions->data()),
                                                count, module.library->handle)
             : driver.cuModuleEnumerateFunctions(functions->data(), count, module.module);
}

Status Modules::function_names(const wire::ModuleFunctions& command, ReplyWriter& reply) {
  Module* module = nullptr;
  OPENMPS_RETURN_IF_ERROR(modules_.get(command.module, &module));
  OPENMPS_RETURN_IF_ERROR(core_.use(module->device));
  std::vector<CUfunction> functions;
  OPENMPS_RETURN_IF_ERROR(check(list_functions(*module, &functions), "cuModuleEnumerateFunctions"));
  wire::ModuleFunctionsReply head{static_cast<uint32_t>(functions.size()), 0};
  std::string names;
  for (size_t i = command.first; i < functions.size(); ++i) {
    const char* name = nullptr;
    const CUresult result =
        module->kind == wire::ModuleKind::kLibrary
            ? core_.driver.cuKernelGetName(&name, reinterpret_cast<CUkernel>(functions[i]))
            : core_.driver.cuFuncGetName(&name, functions[i]);
    OPENMPS_RETURN_IF_ERROR(check(result, "cuFuncGetName"));
    if (sizeof(head) + names.size() + strlen(name) + 1 > reply.room()) break;
    names.append(name).push_back('\0');
    ++head.names;
  }
  reply.put(head);
  reply.append(names.data(), names.size());
  return Status();
}

Status Modules::set_attribute(const wire::FunctionAttribute& command) {
  Function* function = nullptr;
  OPENMPS_RETURN_IF_ERROR(functions_.get(command.function, &function));
  uint32_t index = 0;
  OPENMPS_RETURN_IF_ERROR(function_device(*function, command.device, &index));
  const DriverTable& driver = core_.driver;
  const CUdevice device = core_.devices.at(index).handle;
  CUresult result = CUDA_ERROR_INVALID_VALUE;
  if (command.kind == kAttribute) {
    const auto name = static_cast<CUfunction_attribute>(command.attribute);
    if (function->is_kernel) {
      const CUkernel kernel = kernel_of(*function);
      result = driver.cuKernelSetAttribute(name, command.value, kernel, device);
    } else {
      result = driver.cuFuncSetAttribute(function->handle, name, command.value);
    }
    const int most = result != CUDA_SUCCESS
                         ? command.value
                         : function->library->grown(function->handle, index, name, command.value);
    if (most != command.value) {
      result = function->is_kernel
                   ? driver.cuKernelSetAttribute(name, most, kernel_of(*function), device)
                   : driver.cuFuncSetAttribute(function->handle, name, most);
    }
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
  uint32_t device = 0;
  OPENMPS_RETURN_IF_ERROR(function_device(*function, command.device, &device));
  int32_t value = 0;
  OPENMPS_RETURN_IF_ERROR(read_attribute(*function, device, command.attribute, &value));
  reply.put(value);
  return Status();
}

Status Modules::occupancy(const wire::Occupancy& command, ReplyWriter& reply) {
  Function* function = nullptr;
  OPENMPS_RETURN_IF_ERROR(functions_.get(command.function, &function));
  OPENMPS_RETURN_IF_ERROR(core_.use(function->device));
  int blocks = 0;
  OPENMPS_RETURN_IF_ERROR(check(core_.driver.cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
                                    &blocks, function->handle, command.block_size,
                                    command.dynamic_shared_bytes, command.flags),
                                "cuOccupancyMaxActiveBlocksPerMultiprocessor"));
  reply.put(wire::OccupancyReply{static_cast<uint64_t>(blocks)});
  return Status();
}

Status Modules::cluster_occupancy(const wire::ClusterOccupancy& command, wire::Variable attributes,
                                  ReplyWriter& reply) {
  Function* function = nullptr;
  OPENMPS_RETURN_IF_ERROR(functions_.get(command.function, &function));
  OPENMPS_RETURN_IF_ERROR(core_.use(function->device));
  CUlaunchAttribute list[wire::kMaxLaunchAttributes];
  if (!attributes.empty()) memcpy(list, attributes.data(), attributes.size());
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
  CUresult result = CUDA_ERROR_INVALID_VALUE;
  int value = 0;
  if (command.query == static_cast<uint32_t>(wire::ClusterQuery::kMaxActive)) {
    result = core_.driver.cuOccupancyMaxActiveClusters(&value, function->handle, &config);
  } else if (command.query == static_cast<uint32_t>(wire::ClusterQuery::kMaxPotentialSize)) {
    result = core_.driver.cuOccupancyMaxPotentialClusterSize(&value, function->handle, &config);
  }
  OPENMPS_RETURN_IF_ERROR(check(result, "the cluster occupancy query"));
  reply.put(wire::OccupancyReply{static_cast<uint64_t>(value)});
  return Status();
}

}  // namespace openmps::worker
