// SPDX-License-Identifier: Apache-2.0
// cuFunc* and cuKernel*: attributes and layouts came with the handle, so reading them is local.
// Implementations behind the generated entry points, on the program's threads.
#include "api/client_handlers.h"
#include "client/context/module.h"
#include "client/session/enter.h"

namespace openmps::client {
namespace {

// A kernel of a library has attributes on each device, a function of a module on its own. The first
// device's came with the handle.
bool is_first(const Function& function, uint32_t device) {
  return function.module->kind == wire::ModuleKind::kModule || device == 0;
}

bool is_cluster_size(CUfunction_attribute attribute) {
  return attribute >= CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH &&
         attribute <= CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH;
}

}  // namespace

CUresult read_attribute(Session& session, const Function& function, CUfunction_attribute attribute,
                        uint32_t device, int* value) {
  const auto index = static_cast<uint32_t>(attribute);
  if (index >= wire::kFunctionAttributes) return CUDA_ERROR_INVALID_VALUE;
  const bool is_set =
      is_cluster_size(attribute) && function.clusters_are_set.load(std::memory_order_relaxed);
  if (is_first(function, device) || is_set) {
    *value = function.attributes[index];
    return CUDA_SUCCESS;
  }
  wire::FunctionGetAttribute::Reply reply;
  OPENMPS_CUDA_CHECK(session.channel.call(
      wire::FunctionGetAttribute{function.id, index, session.devices[device]}, &reply));
  *value = reply.value;
  return CUDA_SUCCESS;
}

namespace {

// Of a function as it is. Libraries set these before each launch.
bool has_attribute(const Function& function, CUfunction_attribute attribute, uint32_t device,
                   int value) {
  const bool settable = attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES ||
                        attribute == CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT;
  return settable && is_first(function, device) && function.attributes[attribute] == value;
}

// Of all devices at once.
CUresult require_clusters(Function& function, CUfunction_attribute attribute, int value) {
  if (value < 0) return CUDA_ERROR_INVALID_VALUE;
  const bool by_code = !function.clusters_are_set.load(std::memory_order_relaxed) &&
                       function.attributes[CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH] != 0;
  if (by_code) return CUDA_ERROR_NOT_PERMITTED;
  function.clusters_are_set.store(true, std::memory_order_relaxed);
  function.attributes[attribute] = value;
  return CUDA_SUCCESS;
}

}  // namespace

CUresult write_attribute(Session& session, Function& function, CUfunction_attribute attribute,
                         uint32_t device, int value) {
  const auto index = static_cast<uint32_t>(attribute);
  if (index >= wire::kFunctionAttributes) return CUDA_ERROR_INVALID_VALUE;
  if (has_attribute(function, attribute, device, value)) return CUDA_SUCCESS;
  if (is_cluster_size(attribute)) return require_clusters(function, attribute, value);
  const CUresult result = session.channel.call(wire::FunctionSetAttribute{
      function.id, wire::FunctionSetting::kAttribute, index, value, session.devices[device]});
  function.occupancy.forget();
  OPENMPS_CUDA_CHECK(result);
  if (is_first(function, device)) {
    function.attributes[index] = value;
  } else if (attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) {
    if (value > function.shared_elsewhere.load(std::memory_order_relaxed)) {
      function.shared_elsewhere.store(value, std::memory_order_relaxed);
    }
  }
  return CUDA_SUCCESS;
}

uint32_t current_device(Session& session) {
  Context* context = nullptr;
  return session.contexts.current(&context) == CUDA_SUCCESS ? context->device : 0;
}

CUresult parameter_info(const Function& function, size_t index, size_t* offset, size_t* bytes) {
  if (index >= function.parameters.size()) return CUDA_ERROR_INVALID_VALUE;
  *offset = function.parameters[index].offset;
  if (bytes != nullptr) *bytes = function.parameters[index].bytes;
  return CUDA_SUCCESS;
}

CUresult prefer_cache(Session& session, const Function& function, uint32_t device,
                      CUfunc_cache config) {
  if (config < CU_FUNC_CACHE_PREFER_NONE || config > CU_FUNC_CACHE_PREFER_EQUAL) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  OPENMPS_CUDA_CHECK(session.channel.push(
      wire::FunctionSetAttribute{function.id, wire::FunctionSetting::kCacheConfiguration, 0,
                                 static_cast<int32_t>(config), session.devices[device]}));
  function.occupancy.forget();
  return CUDA_SUCCESS;
}

namespace impl {

CUresult cuFuncSetSharedMemConfig(Session&, Function&, CUsharedconfig config) {
  if (config < CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE ||
      config > CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;  // every GPU since Volta ignores it
}

CUresult cuKernelGetLibrary(Session&, CUlibrary* pLib, Function& function) {
  if (function.module->kind != wire::ModuleKind::kLibrary) return CUDA_ERROR_INVALID_HANDLE;
  *pLib = library_handle(*function.module);
  return CUDA_SUCCESS;
}

}  // namespace impl
}  // namespace openmps::client
