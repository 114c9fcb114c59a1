// SPDX-License-Identifier: Apache-2.0
// Modules (an image placed in one context), libraries (an image, placed in a context on first use)
// and the functions and kernels of both. API threads.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "cuda/launch_attributes.h"
#include "cuda/old_launch.h"
#include "cuda/status.h"
#include "softgpu/device/schedule/execution_context.h"
#include "softgpu/device/work/work.h"
#include "softgpu/engine.h"

namespace openmps::softgpu {

class Context;
class Driver;
struct Config;
struct Library;
struct Module;

// What cuFuncSetAttribute and cuKernelSetAttribute change.
struct FunctionSettings {
  std::atomic<uint32_t> max_dynamic_shared{0};
  std::atomic<int> carveout{-1};
  std::atomic<int> non_portable_cluster{0};
  std::atomic<int> cluster_policy{0};
  std::array<std::atomic<uint32_t>, 3> cluster{};  // required at run time; zeros: not
};

// A kernel in a module of one context: CUfunction.
struct Function {
  CUfunction handle = nullptr;
  std::shared_ptr<Module> module;
  uint32_t index = 0;
  const KernelInfo* info = nullptr;  // lives in the module's program
  std::atomic<bool> loaded{false};   // its code is in the context
  FunctionSettings settings;
  Mutex old_launch_mutex{LockRank::kSoftOldLaunch};
  cuda::OldLaunch old_launch GUARDED_BY(old_launch_mutex);  // what the next cuLaunchGrid takes
};

struct Module : std::enable_shared_from_this<Module> {
  ~Module();

  CUmodule handle = nullptr;
  std::shared_ptr<Context> context;
  std::shared_ptr<ExecutionContext> execution;
  std::shared_ptr<const LinkedProgram> linked;
  std::vector<uint64_t> global_addresses;  // by index of the program's globals
  std::vector<bool> shared_globals;        // the library's, not this module's to free
  std::weak_ptr<Library> library;          // that it is an instance of

  // CUDA_ERROR_NOT_FOUND, CUDA_ERROR_INVALID_PTX (check_usable()).
  Result<std::shared_ptr<Function>> function(const std::string& name);
  Result<std::shared_ptr<Function>> function(uint32_t index);
  Status global(const std::string& name, uint64_t* address, uint64_t* bytes) const;
  // The handles of its functions are no longer valid.
  void forget_functions();

 private:
  Mutex mutex_{LockRank::kSoftModule};
  std::map<uint32_t, std::shared_ptr<Function>> functions_ GUARDED_BY(mutex_);
};

// A kernel of a library: CUkernel.
struct Kernel {
  CUkernel handle = nullptr;
  std::weak_ptr<Library> library;
  uint32_t index = 0;
  const KernelInfo* info = nullptr;
  std::shared_ptr<const Program> program;  // keeps info alive
  FunctionSettings settings;               // of its functions when they are made
};

struct Library : std::enable_shared_from_this<Library> {
  ~Library();

  Driver* driver = nullptr;
  CUlibrary handle = nullptr;
  std::shared_ptr<const Program> program;
  std::vector<std::shared_ptr<Kernel>> kernels;  // by index of the program's kernels

  // Its module in a context, made on first use, which waits as loading does.
  Result<std::shared_ptr<Module>> instance(const std::shared_ptr<Context>& context);
  void drop_instance(uint64_t execution_id);
  Result<std::shared_ptr<Kernel>> kernel(const std::string& name) const;
  // cuLibraryGetManaged: one variable for all contexts, initialised at once; no context needed.
  Status managed(const std::string& name, uint64_t* address, uint64_t* bytes);

  Mutex mutex{LockRank::kSoftLibrary};
  // Addresses by index of the program's globals.
  std::map<uint32_t, uint64_t> managed_globals GUARDED_BY(mutex);
  // By id of the ExecutionContext.
  std::map<uint64_t, std::shared_ptr<Module>> instances GUARDED_BY(mutex);

 private:
  [[nodiscard]] std::shared_ptr<Module> find_instance(uint64_t execution_id);
  void initialise_global(uint32_t index, uint64_t address) const;
};

// CUDA_ERROR_INVALID_PTX: a kernel that is beyond a limit.
Status check_usable(const KernelInfo& info);

// Compile an image (engine.h). `log` receives the compiler's text, also on failure; for what has no
// PTX with the file that the image is part of, if it is.
Result<std::shared_ptr<const Program>> compile_image(const Config& config, const void* image,
                                                     size_t size, std::string* log);
// Place a program in the context and give it a handle. Waits as loading does: see load_function().
Result<std::shared_ptr<Module>> load_module(const std::shared_ptr<Context>& context,
                                            std::shared_ptr<const Program> program);
// Waits for everything queued in the context, as the driver does. CUDA_ERROR_INVALID_HANDLE.
Status unload_module(Driver& driver, CUmodule handle);

Result<std::shared_ptr<Library>> load_library(Driver& driver,
                                              std::shared_ptr<const Program> program);
Status unload_library(Driver& driver, CUlibrary handle);

// Lazy loading: the code of a library's function comes into a context with its first use, which
// makes the context quiescent unless SOFTGPU_LOADING_WAITS is 0. What cuModuleLoadData loads
// is there at once: on an H200 it can be launched first while a stream waits.
void load_function(Function& function);

// The function for a CUfunction or a CUkernel, in the context; resolve: loaded.
// CUDA_ERROR_INVALID_HANDLE.
Result<std::shared_ptr<Function>> find_function(const std::shared_ptr<Context>& context,
                                                CUfunction handle);
Result<std::shared_ptr<Function>> resolve_function(const std::shared_ptr<Context>& context,
                                                   CUfunction handle);
// The loaded function for a CUkernel.
Result<std::shared_ptr<Function>> load_kernel(const std::shared_ptr<Context>& context,
                                              const std::shared_ptr<Kernel>& kernel);

// CU_FUNC_ATTRIBUTE_*. CUDA_ERROR_INVALID_VALUE: no such attribute or value.
Result<int> function_attribute(const Config& config, const KernelInfo& info,
                               const FunctionSettings& settings, CUfunction_attribute attribute);
Status set_function_attribute(const Config& config, const KernelInfo& info,
                              FunctionSettings& settings, CUfunction_attribute attribute,
                              int value);
// The clusters that launches must have, by the code or else by attributes; zeros: any.
cuda::Dimensions required_cluster(const KernelInfo& info, const FunctionSettings& settings);
// Of the kernel, and of its functions in all contexts.
Status set_kernel_attribute(const Config& config, Kernel& kernel, CUfunction_attribute attribute,
                            int value);

}  // namespace openmps::softgpu
