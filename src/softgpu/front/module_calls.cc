// SPDX-License-Identifier: Apache-2.0
// Modules, libraries, functions, kernels. Any thread.
#include <algorithm>
#include <vector>

#include "base/program_switches.h"
#include "softgpu/device/memory/memory.h"
#include "softgpu/device/work/module.h"
#include "softgpu/front/families.h"
#include "softgpu/front/image_arguments.h"

using namespace openmps;           // NOLINT: entry points live outside the namespace
using namespace openmps::softgpu;  // NOLINT: entry points live outside the namespace

namespace {

// ---- JIT options ------------------------------------------------------------------------------

Result<std::shared_ptr<const Program>> compile_with_options(Driver& driver, const void* image,
                                                            size_t size, unsigned count,
                                                            const CUjit_option* options,
                                                            void** values) {
  JitLogs logs;
  OPENMPS_RETURN_IF_ERROR(read_jit_options(count, options, values, &logs));
  if (image == nullptr) return invalid_value("no image");
  std::string log;
  Result<std::shared_ptr<const Program>> program = compile_image(driver.config, image, size, &log);
  fill_log(logs.info, logs.info_size, logs.info_filled, program.ok() ? log : std::string());
  fill_log(logs.error, logs.error_size, logs.error_filled, program.ok() ? std::string() : log);
  return program;
}

// ---- Look-ups by handle -----------------------------------------------------------------------

template <typename Body>
CUresult with_module(CUmodule handle, Body&& body) {
  return with_driver([&](Driver& driver) -> Status {
    std::shared_ptr<Module> module = driver.modules.find(handle);
    if (module == nullptr) return invalid_handle("not a module");
    Caller caller{driver, nullptr, nullptr};
    OPENMPS_RETURN_IF_ERROR(enter_context(&caller));
    return body(*module);
  });
}

template <typename Body>
CUresult with_library(CUlibrary handle, Body&& body) {
  return with_driver([&](Driver& driver) -> Status {
    std::shared_ptr<Library> library = driver.libraries.find(handle);
    if (library == nullptr) return invalid_handle("not a library");
    return body(driver, *library);
  });
}

template <typename Body>
CUresult with_kernel(CUkernel handle, Body&& body) {
  return with_driver([&](Driver& driver) -> Status {
    std::shared_ptr<Kernel> kernel = driver.kernels.find(handle);
    if (kernel == nullptr) return invalid_handle("not a kernel");
    return body(driver, kernel);
  });
}

// Asking what it is does not.
template <typename Body>
CUresult with_unloaded_function(CUfunction handle, Body&& body) {
  return with_context([&](Caller& caller) -> Status {
    Result<std::shared_ptr<Function>> function = find_function(caller.context, handle);
    if (!function.ok()) return function.status();
    return body(**function);
  });
}

Status parameter_info(const KernelInfo& info, size_t index, size_t* offset, size_t* size) {
  if (offset == nullptr) return no_result();
  if (index >= info.parameters.size()) return invalid_value("no such parameter");
  *offset = info.parameters[index].offset;
  if (size != nullptr) *size = info.parameters[index].size;
  return Status();
}

// A preference that the model has no use for.
Status check_cache_config(CUfunc_cache config) {
  if (config < CU_FUNC_CACHE_PREFER_NONE || config > CU_FUNC_CACHE_PREFER_EQUAL) {
    return invalid_value("no such cache configuration");
  }
  return Status();
}

}  // namespace

// ---- Modules ----------------------------------------------------------------------------------

CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode* mode) {
  return with_driver([&](Driver&) -> Status {
    if (mode == nullptr) return no_result();
    *mode = module_loading_mode();
    return Status();
  });
}

CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned int numOptions,
                            CUjit_option* options, void** optionValues) {
  return with_context([&](Caller& caller) -> Status {
    if (module == nullptr) return no_result();
    Result<std::shared_ptr<const Program>> program =
        compile_with_options(caller.driver, image, SIZE_MAX, numOptions, options, optionValues);
    if (!program.ok()) return program.status();
    std::shared_ptr<Context> owner =
        caller.context->green_parent ? caller.context->green_parent : caller.context;
    return deliver_handle(load_module(owner, *program), module);
  });
}

CUresult cuModuleLoad(CUmodule* module, const char* fname) {
  if (module == nullptr || fname == nullptr || *fname == '\0') return CUDA_ERROR_INVALID_VALUE;
  const CUresult entered = with_context([](Caller&) { return Status(); });
  if (entered != CUDA_SUCCESS) return entered;
  Result<std::vector<char>> contents = read_image_file(fname);
  if (!contents.ok()) return report(contents.status());
  return cuModuleLoadDataEx(module, contents->data(), 0, nullptr, nullptr);
}

CUresult cuModuleUnload(CUmodule hmod) {
  return with_driver([&](Driver& driver) -> Status {
    OPENMPS_RETURN_IF_ERROR(driver.captures.check_unsafe_call());
    return unload_module(driver, hmod);
  });
}

CUresult cuModuleGetFunction(CUfunction* hfunc, CUmodule hmod, const char* name) {
  return with_module(hmod, [&](Module& module) -> Status {
    if (hfunc == nullptr || name == nullptr || *name == '\0') {
      return invalid_value("a null argument, or no name");
    }
    return deliver_handle(module.function(name), hfunc);
  });
}

CUresult cuModuleGetFunctionCount(unsigned int* count, CUmodule mod) {
  return with_module(mod, [&](Module& module) -> Status {
    if (count == nullptr) return no_result();
    *count = static_cast<unsigned>(module.linked->program().kernels().size());
    return Status();
  });
}

CUresult cuModuleEnumerateFunctions(CUfunction* functions, unsigned int numFunctions,
                                    CUmodule mod) {
  return with_module(mod, [&](Module& module) -> Status {
    if (functions == nullptr) return no_result();
    size_t count = std::min<size_t>(numFunctions, module.linked->program().kernels().size());
    for (uint32_t i = 0; i < count; ++i) {
      Result<std::shared_ptr<Function>> function = module.function(i);
      if (!function.ok()) return function.status();
      functions[i] = (*function)->handle;
    }
    return Status();
  });
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr* dptr, size_t* bytes, CUmodule hmod, const char* name) {
  return with_module(hmod, [&](Module& module) -> Status {
    if (name == nullptr || *name == '\0') return invalid_value("no name");
    if (dptr == nullptr && bytes == nullptr) return no_result();
    uint64_t address = 0;
    uint64_t size = 0;
    OPENMPS_RETURN_IF_ERROR(module.global(name, &address, &size));
    if (dptr != nullptr) *dptr = address;
    if (bytes != nullptr) *bytes = size;
    return Status();
  });
}

// ---- Libraries --------------------------------------------------------------------------------

CUresult cuLibraryLoadData(CUlibrary* library, const void* code, CUjit_option* jitOptions,
                           void** jitOptionsValues, unsigned int numJitOptions,
                           CUlibraryOption* libraryOptions, void** /*libraryOptionValues*/,
                           unsigned int numLibraryOptions) {
  return with_driver([&](Driver& driver) -> Status {
    if (library == nullptr) return no_result();
    if (numLibraryOptions > 0 && libraryOptions == nullptr) return invalid_value("no options");
    for (unsigned i = 0; i < numLibraryOptions; ++i) {
      if (libraryOptions[i] < 0 || libraryOptions[i] >= CU_LIBRARY_NUM_OPTIONS) {
        return invalid_value("no such option");
      }
    }
    Result<std::shared_ptr<const Program>> program =
        compile_with_options(driver, code, SIZE_MAX, numJitOptions, jitOptions, jitOptionsValues);
    if (!program.ok()) return program.status();
    return deliver_handle(load_library(driver, *program), library);
  });
}

CUresult cuLibraryLoadFromFile(CUlibrary* library, const char* fileName, CUjit_option* jitOptions,
                               void** jitOptionsValues, unsigned int numJitOptions,
                               CUlibraryOption* libraryOptions, void** libraryOptionValues,
                               unsigned int numLibraryOptions) {
  if (library == nullptr || fileName == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Result<std::vector<char>> contents = read_image_file(fileName);
  if (!contents.ok()) return report(contents.status());
  return cuLibraryLoadData(library, contents->data(), jitOptions, jitOptionsValues, numJitOptions,
                           libraryOptions, libraryOptionValues, numLibraryOptions);
}

CUresult cuLibraryUnload(CUlibrary library) {
  return with_driver([&](Driver& driver) -> Status {
    OPENMPS_RETURN_IF_ERROR(driver.captures.check_unsafe_call());
    return unload_library(driver, library);
  });
}

CUresult cuLibraryGetKernel(CUkernel* pKernel, CUlibrary library, const char* name) {
  if (pKernel == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return with_library(library, [&](Driver&, Library& object) -> Status {
    if (pKernel == nullptr || name == nullptr) return invalid_value("a null argument");
    return deliver_handle(object.kernel(name), pKernel);
  });
}

CUresult cuLibraryGetKernelCount(unsigned int* count, CUlibrary lib) {
  return with_library(lib, [&](Driver&, Library& object) -> Status {
    if (count == nullptr) return no_result();
    *count = static_cast<unsigned>(object.kernels.size());
    return Status();
  });
}

CUresult cuLibraryEnumerateKernels(CUkernel* kernels, unsigned int numKernels, CUlibrary lib) {
  return with_library(lib, [&](Driver&, Library& object) -> Status {
    if (kernels == nullptr) return no_result();
    size_t count = std::min<size_t>(numKernels, object.kernels.size());
    for (size_t i = 0; i < count; ++i) kernels[i] = object.kernels[i]->handle;
    return Status();
  });
}

CUresult cuLibraryGetModule(CUmodule* pMod, CUlibrary library) {
  return with_context([&](Caller& caller) -> Status {
    if (pMod == nullptr) return no_result();
    std::shared_ptr<Library> object = caller.driver.libraries.find(library);
    if (object == nullptr) return invalid_handle("not a library");
    return deliver_handle(object->instance(caller.context), pMod);
  });
}

CUresult cuLibraryGetGlobal(CUdeviceptr* dptr, size_t* bytes, CUlibrary library, const char* name) {
  return with_context([&](Caller& caller) -> Status {
    if (name == nullptr) return invalid_value("no name");
    if (dptr == nullptr && bytes == nullptr) return no_result();
    std::shared_ptr<Library> object = caller.driver.libraries.find(library);
    if (object == nullptr) return invalid_handle("not a library");
    Result<std::shared_ptr<Module>> module = object->instance(caller.context);
    if (!module.ok()) return module.status();
    uint64_t address = 0;
    uint64_t size = 0;
    OPENMPS_RETURN_IF_ERROR((*module)->global(name, &address, &size));
    if (dptr != nullptr) *dptr = address;
    if (bytes != nullptr) *bytes = size;
    return Status();
  });
}

CUresult cuLibraryGetManaged(CUdeviceptr* dptr, size_t* bytes, CUlibrary library,
                             const char* name) {
  return with_library(library, [&](Driver&, Library& object) -> Status {
    if (name == nullptr) return invalid_value("no name");
    uint64_t address = 0;
    uint64_t size = 0;
    OPENMPS_RETURN_IF_ERROR(object.managed(name, &address, &size));
    if (dptr != nullptr) *dptr = address;
    if (bytes != nullptr) *bytes = size;
    return Status();
  });
}

// No device has CU_DEVICE_ATTRIBUTE_UNIFIED_FUNCTION_POINTERS, so no library has such functions.
CUresult cuLibraryGetUnifiedFunction(void** fptr, CUlibrary library, const char* symbol) {
  return with_library(library, [&](Driver&, Library&) -> Status {
    if (fptr == nullptr || symbol == nullptr) return no_result();
    return invalid_value("the library has no unified functions");
  });
}

// ---- Kernels ----------------------------------------------------------------------------------

CUresult cuKernelGetFunction(CUfunction* pFunc, CUkernel kernel) {
  return with_context([&](Caller& caller) -> Status {
    if (pFunc == nullptr) return no_result();
    std::shared_ptr<Kernel> object = caller.driver.kernels.find(kernel);
    if (object == nullptr) return invalid_handle("not a kernel");
    return deliver_handle(load_kernel(caller.context, object), pFunc);
  });
}

CUresult cuKernelGetLibrary(CUlibrary* pLib, CUkernel kernel) {
  return with_kernel(kernel, [&](Driver&, const std::shared_ptr<Kernel>& object) -> Status {
    if (pLib == nullptr) return no_result();
    std::shared_ptr<Library> library = object->library.lock();
    if (library == nullptr) return invalid_handle("the library was unloaded");
    *pLib = library->handle;
    return Status();
  });
}

CUresult cuKernelGetName(const char** name, CUkernel hfunc) {
  if (hfunc == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return with_kernel(hfunc, [&](Driver&, const std::shared_ptr<Kernel>& object) -> Status {
    if (name == nullptr) return no_result();
    *name = object->info->name.c_str();
    return Status();
  });
}

CUresult cuKernelGetParamInfo(CUkernel kernel, size_t paramIndex, size_t* paramOffset,
                              size_t* paramSize) {
  if (kernel == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return with_kernel(kernel, [&](Driver&, const std::shared_ptr<Kernel>& object) -> Status {
    // Seen on an H200: this loads the kernel into the current context.
    if (const std::shared_ptr<Context> context = context_stack::current();
        context != nullptr && context->execution() != nullptr) {
      const auto loaded = load_kernel(context, object);
      if (!loaded.ok()) return loaded.status();
    }
    return parameter_info(*object->info, paramIndex, paramOffset, paramSize);
  });
}

CUresult cuKernelGetAttribute(int* pi, CUfunction_attribute attrib, CUkernel kernel, CUdevice dev) {
  return with_kernel(kernel, [&](Driver& driver, const std::shared_ptr<Kernel>& object) -> Status {
    if (pi == nullptr) return no_result();
    if (driver.device(dev) == nullptr) return Status(CUDA_ERROR_INVALID_DEVICE, "no such device");
    object->program->complete(object->index);
    return deliver(function_attribute(driver.config, *object->info, object->settings, attrib), pi);
  });
}

CUresult cuKernelSetAttribute(CUfunction_attribute attrib, int val, CUkernel kernel, CUdevice dev) {
  return with_kernel(kernel, [&](Driver& driver, const std::shared_ptr<Kernel>& object) -> Status {
    const Device* device = driver.device(dev);
    if (device == nullptr) return Status(CUDA_ERROR_INVALID_DEVICE, "no such device");
    // Seen on an H200: this loads the kernel into the primary context, whatever is current.
    if (device->primary->execution() != nullptr) {
      const auto loaded = load_kernel(device->primary, object);
      if (!loaded.ok()) return loaded.status();
    }
    return set_kernel_attribute(driver.config, *object, attrib, val);
  });
}

CUresult cuKernelSetCacheConfig(CUkernel kernel, CUfunc_cache config, CUdevice dev) {
  return with_kernel(kernel, [&](Driver& driver, const std::shared_ptr<Kernel>&) -> Status {
    if (driver.device(dev) == nullptr) return Status(CUDA_ERROR_INVALID_DEVICE, "no such device");
    return check_cache_config(config);
  });
}

// ---- Functions --------------------------------------------------------------------------------

CUresult cuFuncGetAttribute(int* pi, CUfunction_attribute attrib, CUfunction hfunc) {
  if (pi == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return with_function(hfunc, [&](Caller& caller, Function& function) -> Status {
    if (pi == nullptr) return no_result();
    return deliver(
        function_attribute(caller.driver.config, *function.info, function.settings, attrib), pi);
  });
}

CUresult cuFuncSetAttribute(CUfunction hfunc, CUfunction_attribute attrib, int value) {
  return with_function(hfunc, [&](Caller& caller, Function& function) -> Status {
    // Through a CUkernel the setting is the kernel's, for all contexts.
    if (auto kernel = caller.driver.kernels.find(reinterpret_cast<CUkernel>(hfunc))) {
      return set_kernel_attribute(caller.driver.config, *kernel, attrib, value);
    }
    return set_function_attribute(caller.driver.config, *function.info, function.settings, attrib,
                                  value);
  });
}

CUresult cuFuncSetCacheConfig(CUfunction hfunc, CUfunc_cache config) {
  return with_function(hfunc, [&](Caller&, Function&) { return check_cache_config(config); });
}

CUresult cuFuncSetSharedMemConfig(CUfunction hfunc, CUsharedconfig config) {
  return with_function(hfunc, [&](Caller&, Function&) -> Status {
    if (config < CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE ||
        config > CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE) {
      return invalid_value("no such size of banks");
    }
    return Status();
  });
}

CUresult cuFuncGetModule(CUmodule* hmod, CUfunction hfunc) {
  if (hfunc == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return with_unloaded_function(hfunc, [&](Function& function) -> Status {
    if (hmod == nullptr) return no_result();
    *hmod = function.module->handle;
    return Status();
  });
}

CUresult cuFuncGetName(const char** name, CUfunction hfunc) {
  if (hfunc == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return with_unloaded_function(hfunc, [&](Function& function) -> Status {
    if (name == nullptr) return no_result();
    *name = function.info->name.c_str();
    return Status();
  });
}

CUresult cuFuncGetParamInfo(CUfunction func, size_t paramIndex, size_t* paramOffset,
                            size_t* paramSize) {
  if (func == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return with_function(func, [&](Caller&, Function& function) {
    return parameter_info(*function.info, paramIndex, paramOffset, paramSize);
  });
}

CUresult cuFuncIsLoaded(CUfunctionLoadingState* state, CUfunction function) {
  return with_unloaded_function(function, [&](Function& found) -> Status {
    if (state == nullptr) return no_result();
    *state = found.loaded ? CU_FUNCTION_LOADING_STATE_LOADED : CU_FUNCTION_LOADING_STATE_UNLOADED;
    return Status();
  });
}

CUresult cuFuncLoad(CUfunction function) {
  return with_function(function, [](Caller&, Function&) { return Status(); });
}
