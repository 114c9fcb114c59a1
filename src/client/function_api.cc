// SPDX-License-Identifier: Apache-2.0
// cuFunc* and cuKernel*: attributes and layouts came with the handle, so reading them is local.
// Implementations behind the generated entry points, on the program's threads.
#include "api/client_impl.h"
#include "client/enter.h"
#include "client/module.h"

namespace openmps::client {
namespace {

template <typename Handle>
CUresult find_function(Handle handle, Session** session, Function** function) {
  OPENMPS_CUDA_CHECK(enter(session));
  *function = (*session)->modules.functions.find(handle);
  return *function != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

// A kernel of a library has attributes on each device, a function of a module on its own. The first
// device's came with the handle.
bool is_first(const Function& function, uint32_t device) {
  return function.module->kind == wire::ModuleKind::kModule || device == 0;
}

CUresult read_attribute(Session& session, const Function& function, CUfunction_attribute attribute,
                        uint32_t device, int* value) {
  const auto index = static_cast<uint32_t>(attribute);
  if (value == nullptr || index >= wire::kFunctionAttributes) return CUDA_ERROR_INVALID_VALUE;
  if (is_first(function, device)) {
    *value = function.attributes[index];
    return CUDA_SUCCESS;
  }
  wire::FunctionGetAttribute::Reply reply;
  OPENMPS_CUDA_CHECK(session.channel.call(
      wire::FunctionGetAttribute{function.id, index, session.devices[device]}, &reply));
  *value = reply.value;
  return CUDA_SUCCESS;
}

CUresult write_attribute(Session& session, Function& function, CUfunction_attribute attribute,
                         uint32_t device, int value) {
  const auto index = static_cast<uint32_t>(attribute);
  if (index >= wire::kFunctionAttributes) return CUDA_ERROR_INVALID_VALUE;
  OPENMPS_CUDA_CHECK(session.channel.call(wire::FunctionSetAttribute{
      function.id, wire::FunctionSetting::kAttribute, index, value, session.devices[device]}));
  if (is_first(function, device)) {
    function.attributes[index] = value;
  } else if (attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) {
    if (value > function.shared_elsewhere.load(std::memory_order_relaxed)) {
      function.shared_elsewhere.store(value, std::memory_order_relaxed);
    }
  }
  return CUDA_SUCCESS;
}

// The device whose attributes a CUfunction means: that of the current context. Programs also ask
// without one; then it is the first.
uint32_t current_device(Session& session) {
  Context* context = nullptr;
  return session.contexts.current(&context) == CUDA_SUCCESS ? context->device : 0;
}

CUresult parameter_info(const Function& function, size_t index, size_t* offset, size_t* bytes) {
  if (offset == nullptr || index >= function.parameters.size()) return CUDA_ERROR_INVALID_VALUE;
  *offset = function.parameters[index].offset;
  if (bytes != nullptr) *bytes = function.parameters[index].bytes;
  return CUDA_SUCCESS;
}

CUresult prefer_cache(Session& session, const Function& function, uint32_t device,
                      CUfunc_cache config) {
  if (config < CU_FUNC_CACHE_PREFER_NONE || config > CU_FUNC_CACHE_PREFER_EQUAL) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return session.channel.push(
      wire::FunctionSetAttribute{function.id, wire::FunctionSetting::kCacheConfiguration, 0,
                                 static_cast<int32_t>(config), session.devices[device]});
}

}  // namespace

namespace impl {

CUresult cuFuncGetAttribute(int* pi, CUfunction_attribute attrib, CUfunction hfunc) {
  Session* session = nullptr;
  Function* function = nullptr;
  OPENMPS_CUDA_CHECK(find_function(hfunc, &session, &function));
  return read_attribute(*session, *function, attrib, current_device(*session), pi);
}

CUresult cuKernelGetAttribute(int* pi, CUfunction_attribute attrib, CUkernel kernel, CUdevice dev) {
  Session* session = nullptr;
  Function* function = nullptr;
  OPENMPS_CUDA_CHECK(find_function(kernel, &session, &function));
  if (!session->valid_device(dev)) return CUDA_ERROR_INVALID_DEVICE;
  return read_attribute(*session, *function, attrib, static_cast<uint32_t>(dev), pi);
}

CUresult cuFuncSetAttribute(CUfunction hfunc, CUfunction_attribute attrib, int value) {
  Session* session = nullptr;
  Function* function = nullptr;
  OPENMPS_CUDA_CHECK(find_function(hfunc, &session, &function));
  return write_attribute(*session, *function, attrib, current_device(*session), value);
}

CUresult cuKernelSetAttribute(CUfunction_attribute attrib, int val, CUkernel kernel, CUdevice dev) {
  Session* session = nullptr;
  Function* function = nullptr;
  OPENMPS_CUDA_CHECK(find_function(kernel, &session, &function));
  if (!session->valid_device(dev)) return CUDA_ERROR_INVALID_DEVICE;
  return write_attribute(*session, *function, attrib, static_cast<uint32_t>(dev), val);
}

CUresult cuFuncSetCacheConfig(CUfunction hfunc, CUfunc_cache config) {
  Session* session = nullptr;
  Function* function = nullptr;
  OPENMPS_CUDA_CHECK(find_function(hfunc, &session, &function));
  return prefer_cache(*session, *function, current_device(*session), config);
}

CUresult cuKernelSetCacheConfig(CUkernel kernel, CUfunc_cache config, CUdevice dev) {
  Session* session = nullptr;
  Function* function = nullptr;
  OPENMPS_CUDA_CHECK(find_function(kernel, &session, &function));
  if (!session->valid_device(dev)) return CUDA_ERROR_INVALID_DEVICE;
  return prefer_cache(*session, *function, static_cast<uint32_t>(dev), config);
}

CUresult cuFuncSetSharedMemConfig(CUfunction hfunc, CUsharedconfig config) {
  Session* session = nullptr;
  Function* function = nullptr;
  OPENMPS_CUDA_CHECK(find_function(hfunc, &session, &function));
  if (config < CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE ||
      config > CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;  // every GPU since Volta ignores it
}

CUresult cuFuncGetParamInfo(CUfunction func, size_t paramIndex, size_t* paramOffset,
                            size_t* paramSize) {
  Session* session = nullptr;
  Function* function = nullptr;
  OPENMPS_CUDA_CHECK(find_function(func, &session, &function));
  return parameter_info(*function, paramIndex, paramOffset, paramSize);
}

CUresult cuKernelGetParamInfo(CUkernel kernel, size_t paramIndex, size_t* paramOffset,
                              size_t* paramSize) {
  Session* session = nullptr;
  Function* function = nullptr;
  OPENMPS_CUDA_CHECK(find_function(kernel, &session, &function));
  return parameter_info(*function, paramIndex, paramOffset, paramSize);
}

CUresult cuFuncIsLoaded(CUfunctionLoadingState* state, CUfunction hfunc) {
  Session* session = nullptr;
  Function* function = nullptr;
  OPENMPS_CUDA_CHECK(find_function(hfunc, &session, &function));
  if (state == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *state = CU_FUNCTION_LOADING_STATE_LOADED;  // its attributes have been read
  return CUDA_SUCCESS;
}

CUresult cuFuncLoad(CUfunction hfunc) {
  Session* session = nullptr;
  Function* function = nullptr;
  return find_function(hfunc, &session, &function);
}

CUresult cuKernelGetFunction(CUfunction* pFunc, CUkernel kernel) {
  Session* session = nullptr;
  Function* function = nullptr;
  OPENMPS_CUDA_CHECK(find_function(kernel, &session, &function));
  if (pFunc == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *pFunc = function->as<CUfunction>();
  return CUDA_SUCCESS;
}

CUresult cuKernelGetLibrary(CUlibrary* pLib, CUkernel kernel) {
  Session* session = nullptr;
  Function* function = nullptr;
  OPENMPS_CUDA_CHECK(find_function(kernel, &session, &function));
  if (pLib == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (function->module->kind != wire::ModuleKind::kLibrary) return CUDA_ERROR_INVALID_HANDLE;
  *pLib = library_handle(*function->module);
  return CUDA_SUCCESS;
}

CUresult cuKernelGetName(const char** name, CUkernel hfunc) {
  Session* session = nullptr;
  Function* function = nullptr;
  OPENMPS_CUDA_CHECK(find_function(hfunc, &session, &function));
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *name = function->name.c_str();
  return CUDA_SUCCESS;
}

CUresult cuFuncGetName(const char** name, CUfunction hfunc) {
  return impl::cuKernelGetName(name, reinterpret_cast<CUkernel>(hfunc));
}

CUresult cuFuncGetModule(CUmodule* hmod, CUfunction hfunc) {
  Session* session = nullptr;
  Function* function = nullptr;
  OPENMPS_CUDA_CHECK(find_function(hfunc, &session, &function));
  if (hmod == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *hmod = function->module->as<CUmodule>();
  return CUDA_SUCCESS;
}

}  // namespace impl
}  // namespace openmps::client
