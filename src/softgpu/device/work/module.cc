// SPDX-License-Identifier: Apache-2.0
// Modules, libraries, functions and kernels. See module.h.
#include "softgpu/device/work/module.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "softgpu/device/contexts/context.h"
#include "softgpu/device/driver.h"
#include "softgpu/device/memory/memory.h"
#include "softgpu/device/schedule/quiescence.h"
#include "softgpu/device/schedule/scheduler.h"

namespace openmps::softgpu {
namespace {

Status not_found(const std::string& name) {
  return Status(CUDA_ERROR_NOT_FOUND, "the image has no \"" + name + "\"");
}

void copy_settings(const FunctionSettings& from, FunctionSettings& to) {
  to.max_dynamic_shared = from.max_dynamic_shared.load();
  to.carveout = from.carveout.load();
  to.non_portable_cluster = from.non_portable_cluster.load();
  to.cluster_policy = from.cluster_policy.load();
  for (size_t i = 0; i < to.cluster.size(); ++i) to.cluster[i] = from.cluster[i].load();
}

// Which dimension a CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_* is about.
size_t cluster_part(CUfunction_attribute attribute) {
  return attribute - CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH;
}

// What a kernel may use without asking: what the static part leaves of 48 KiB or, as seen on an
// H200, of all that a block can have if it is more than that already.
uint32_t default_dynamic_shared(const Config& config, const KernelInfo& info) {
  const uint32_t most = info.static_shared_bytes <= kDefaultSharedPerBlock
                            ? kDefaultSharedPerBlock
                            : sm_limits(config.compute_capability).shared_per_block_optin;
  return most - std::min(most, info.static_shared_bytes);
}

// What loading does to the context: quiescence, unless SOFTGPU_LOADING_WAITS says no.
class LoadingPause {
 public:
  LoadingPause(Driver& driver, ExecutionContext& execution) {
    if (driver.config.loading_waits) quiescence_.emplace(driver.scheduler, execution);
  }

 private:
  std::optional<Quiescence> quiescence_;
};

// Module globals are device memory. A .const variable is not writable by kernels, but by copies:
// the engine refuses stores to the constant space by itself.
Result<uint64_t> place_global(Context& context, const GlobalInfo& global) {
  const unsigned flags = global.is_managed ? unsigned{CU_MEM_ATTACH_GLOBAL} : 0;
  // Allocations are aligned to 512 bytes, more than PTX variables ask for.
  return context.driver().memory.allocate_device(context, std::max<uint64_t>(global.bytes, 1),
                                                 RangeKind::kModuleGlobal, flags);
}

}  // namespace

Status check_usable(const KernelInfo& info) {
  return info.unusable.empty() ? Status() : Status(CUDA_ERROR_INVALID_PTX, info.unusable);
}

Module::~Module() {
  // Tearing a context down has removed the ranges already.
  if (context->execution() != execution) return;
  for (size_t i = 0; i < global_addresses.size(); ++i) {
    if (global_addresses[i] != 0 && !shared_globals[i]) {
      context->driver().memory.free_global(global_addresses[i]);
    }
  }
}

Result<std::shared_ptr<Function>> Module::function(uint32_t index) {
  const MutexLock lock(mutex_);
  std::shared_ptr<Function>& function = functions_[index];
  if (function != nullptr) return function;
  linked->program().complete(index);
  auto made = std::make_shared<Function>();
  made->module = shared_from_this();
  made->index = index;
  made->info = &linked->program().kernels()[index];
  if (const std::shared_ptr<Library> of = library.lock()) {
    copy_settings(of->kernels[index]->settings, made->settings);
  } else {
    made->settings.max_dynamic_shared =
        default_dynamic_shared(context->driver().config, *made->info);
    made->loaded = true;
  }
  made->handle = context->driver().functions.add(made);
  if (made->handle == nullptr) return Status(CUDA_ERROR_OUT_OF_MEMORY, "too many functions");
  function = std::move(made);
  return function;
}

Result<std::shared_ptr<Function>> Module::function(const std::string& name) {
  const auto& kernels = linked->program().kernels();
  for (uint32_t i = 0; i < kernels.size(); ++i) {
    if (kernels[i].name != name) continue;
    linked->program().complete(i);
    OPENMPS_RETURN_IF_ERROR(check_usable(kernels[i]));
    return function(i);
  }
  return not_found(name);
}

Status Module::global(const std::string& name, uint64_t* address, uint64_t* bytes) const {
  const auto& globals = linked->program().globals();
  for (size_t i = 0; i < globals.size(); ++i) {
    if (globals[i].name != name || global_addresses[i] == 0) continue;
    *address = global_addresses[i];
    *bytes = globals[i].bytes;
    return Status();
  }
  const auto& kernels = linked->program().kernels();
  const bool kernel = std::any_of(kernels.begin(), kernels.end(),
                                  [&](const KernelInfo& other) { return other.name == name; });
  return kernel ? Status(CUDA_ERROR_INVALID_VALUE, name + " is a kernel") : not_found(name);
}

void Module::forget_functions() {
  std::map<uint32_t, std::shared_ptr<Function>> functions;
  {
    const MutexLock lock(mutex_);
    functions.swap(functions_);
  }
  for (const auto& [index, function] : functions) {
    context->driver().functions.remove(function->handle);
  }
}

namespace {

// PTX of a program's own is compiled at once, as NVIDIA's driver does, and its mistakes are errors
// of loading; a module of cuBLAS or cuDNN, of which a program uses a few kernels of hundreds, has
// megabytes.
constexpr size_t kMostPtxAtOnce = 256 << 10;

// The file that an image came with: many a library ships machine code only.
std::string origin_of(const void* image) {
  Dl_info info{};
  if (dladdr(image, &info) == 0 || info.dli_fname == nullptr) return "";
  return info.dli_fname;
}

}  // namespace

Result<std::shared_ptr<const Program>> compile_image(const Config& config, const void* image,
                                                     size_t size, std::string* log) {
  CompileOptions options;
  options.compute_capability = config.compute_capability;
  options.max_shared_bytes = sm_limits(config.compute_capability).shared_per_block_optin;
  options.origin = origin_of(image);
  options.most_at_once = kMostPtxAtOnce;
  CompileError error;
  std::shared_ptr<const Program> program = compile(image, size, options, &error);
  if (error.code == CUDA_ERROR_NO_BINARY_FOR_GPU && !options.origin.empty()) {
    error.log += ", of " + options.origin;
  }
  *log = error.log;
  if (program == nullptr) {
    return Status(error.code == CUDA_SUCCESS ? CUDA_ERROR_INVALID_IMAGE : error.code, error.log);
  }
  return program;
}

namespace {

// Place a program in the context and give it a handle. `placed`: globals that exist already, with
// the values that they keep.
Result<std::shared_ptr<Module>> place_module(const std::shared_ptr<Context>& context,
                                             std::shared_ptr<const Program> program,
                                             const std::map<uint32_t, uint64_t>& placed) {
  auto module = std::make_shared<Module>();
  module->context = context;
  module->execution = context->execution();
  const std::vector<GlobalInfo>& globals = program->globals();
  for (uint32_t i = 0; i < globals.size(); ++i) {
    auto found = placed.find(i);
    uint64_t address = found == placed.end() ? 0 : found->second;
    if (found == placed.end() && !globals[i].is_extern) {
      Result<uint64_t> made = place_global(*context, globals[i]);
      if (!made.ok()) return made.status();
      address = *made;
    }
    module->global_addresses.push_back(address);
    module->shared_globals.push_back(found != placed.end());
  }
  // link() writes initial values; variables that exist already keep theirs.
  std::vector<std::pair<uint64_t, std::vector<char>>> kept;
  for (const auto& [index, address] : placed) {
    auto* bytes = reinterpret_cast<const char*>(address);
    kept.emplace_back(address, std::vector<char>(bytes, bytes + globals[index].bytes));
  }
  module->linked = link(std::move(program), module->global_addresses);
  for (const auto& [address, bytes] : kept) {
    memcpy(reinterpret_cast<void*>(address), bytes.data(), bytes.size());
  }
  if (module->linked == nullptr) {
    return Status(CUDA_ERROR_INVALID_IMAGE, "the image has unresolved symbols");
  }
  module->handle = context->driver().modules.add(module);
  if (module->handle == nullptr) return Status(CUDA_ERROR_OUT_OF_MEMORY, "too many modules");
  return module;
}

}  // namespace

Result<std::shared_ptr<Module>> load_module(const std::shared_ptr<Context>& context,
                                            std::shared_ptr<const Program> program) {
  const std::shared_ptr<ExecutionContext> execution = context->execution();
  if (execution == nullptr) {
    return Status(CUDA_ERROR_CONTEXT_IS_DESTROYED, "the context is not active");
  }
  const LoadingPause pause(context->driver(), *execution);
  return place_module(context, std::move(program), {});
}

Status unload_module(Driver& driver, CUmodule handle) {
  std::shared_ptr<Module> module = driver.modules.find(handle);
  if (module == nullptr || module->library.lock() != nullptr) {
    return Status(CUDA_ERROR_INVALID_HANDLE, "not a module");
  }
  driver.scheduler.wait_idle(*module->execution);
  module->execution->flush_output();
  if (driver.modules.remove(handle) == nullptr) {
    return Status(CUDA_ERROR_INVALID_HANDLE, "not a module");
  }
  module->forget_functions();
  return Status();
}

// ---- Libraries --------------------------------------------------------------------------------

Result<std::shared_ptr<Library>> load_library(Driver& driver,
                                              std::shared_ptr<const Program> program) {
  auto library = std::make_shared<Library>();
  library->driver = &driver;
  library->program = std::move(program);
  const auto& infos = library->program->kernels();
  for (uint32_t i = 0; i < infos.size(); ++i) {
    auto kernel = std::make_shared<Kernel>();
    kernel->library = library;
    kernel->index = i;
    kernel->info = &infos[i];
    kernel->program = library->program;
    kernel->settings.max_dynamic_shared = default_dynamic_shared(driver.config, infos[i]);
    kernel->handle = driver.kernels.add(kernel);
    library->kernels.push_back(std::move(kernel));
  }
  library->handle = driver.libraries.add(library);
  if (library->handle == nullptr) return Status(CUDA_ERROR_OUT_OF_MEMORY, "too many libraries");
  return library;
}

Status unload_library(Driver& driver, CUlibrary handle) {
  std::shared_ptr<Library> library = driver.libraries.remove(handle);
  if (library == nullptr) return Status(CUDA_ERROR_INVALID_HANDLE, "not a library");
  for (const auto& kernel : library->kernels) driver.kernels.remove(kernel->handle);
  std::map<uint64_t, std::shared_ptr<Module>> instances;
  {
    const MutexLock lock(library->mutex);
    instances.swap(library->instances);
  }
  for (const auto& [id, module] : instances) {
    const Quiescence quiescence(driver.scheduler, *module->execution);
    driver.modules.remove(module->handle);
    module->forget_functions();
  }
  return Status();
}

Result<std::shared_ptr<Module>> Library::instance(const std::shared_ptr<Context>& context) {
  std::shared_ptr<ExecutionContext> execution = context->execution();
  if (execution == nullptr) {
    return Status(CUDA_ERROR_CONTEXT_IS_DESTROYED, "the context is not active");
  }
  if (std::shared_ptr<Module> made = find_instance(execution->id)) return made;
  // Not with the mutex held: other contexts go on.
  const LoadingPause pause(context->driver(), *execution);
  const MutexLock lock(mutex);
  auto found = instances.find(execution->id);
  if (found != instances.end()) return found->second;
  // Instances belong to the context that owns the memory, not to a green view of it.
  std::shared_ptr<Context> owner = context->green_parent ? context->green_parent : context;
  Result<std::shared_ptr<Module>> module = place_module(owner, program, managed_globals);
  if (!module.ok()) return module.status();
  (*module)->library = weak_from_this();
  instances.emplace(execution->id, *module);
  return module;
}

std::shared_ptr<Module> Library::find_instance(uint64_t execution_id) {
  const MutexLock lock(mutex);
  auto found = instances.find(execution_id);
  return found == instances.end() ? nullptr : found->second;
}

Library::~Library() {
  for (const auto& [index, address] : managed_globals) driver->memory.free_global(address);
}

Status Library::managed(const std::string& name, uint64_t* address, uint64_t* bytes) {
  const MutexLock lock(mutex);
  const std::vector<GlobalInfo>& globals = program->globals();
  auto global = std::find_if(globals.begin(), globals.end(),
                             [&](const GlobalInfo& other) { return other.name == name; });
  if (global == globals.end() || global->is_extern || !global->is_managed) return not_found(name);
  auto index = static_cast<uint32_t>(global - globals.begin());
  *bytes = global->bytes;
  auto found = managed_globals.find(index);
  if (found == managed_globals.end() && !instances.empty()) {
    // Already placed in a context, where the host reaches it, too.
    *address = instances.begin()->second->global_addresses[index];
    return Status();
  }
  if (found == managed_globals.end()) {
    Result<uint64_t> made = driver->memory.allocate_library_global(
        driver->devices.front(), std::max<uint64_t>(global->bytes, 1));
    if (!made.ok()) return made.status();
    found = managed_globals.emplace(index, *made).first;
    initialise_global(index, *made);
  }
  *address = found->second;
  return Status();
}

// Link a throw-away copy of the program whose variable is the real one.
void Library::initialise_global(uint32_t index, uint64_t address) const {
  const std::vector<GlobalInfo>& globals = program->globals();
  std::vector<std::vector<uint64_t>> scratch;
  std::vector<uint64_t> addresses;
  for (uint32_t i = 0; i < globals.size(); ++i) {
    scratch.emplace_back(globals[i].bytes / sizeof(uint64_t) + 1);
    addresses.push_back(i == index ? address : reinterpret_cast<uint64_t>(scratch.back().data()));
  }
  (void)link(program, std::move(addresses));
}

void Library::drop_instance(uint64_t execution_id) {
  std::shared_ptr<Module> dropped;
  const MutexLock lock(mutex);
  auto found = instances.find(execution_id);
  if (found == instances.end()) return;
  dropped = std::move(found->second);
  instances.erase(found);
}

Result<std::shared_ptr<Kernel>> Library::kernel(const std::string& name) const {
  for (const auto& kernel : kernels) {
    if (kernel->info->name == name) return kernel;
  }
  return not_found(name);
}

namespace {

Result<std::shared_ptr<Function>> kernel_function(const std::shared_ptr<Context>& context,
                                                  const std::shared_ptr<Kernel>& kernel) {
  std::shared_ptr<Library> library = kernel->library.lock();
  if (library == nullptr) return Status(CUDA_ERROR_INVALID_HANDLE, "the library was unloaded");
  kernel->program->complete(kernel->index);
  OPENMPS_RETURN_IF_ERROR(check_usable(*kernel->info));
  Result<std::shared_ptr<Module>> module = library->instance(context);
  if (!module.ok()) return module.status();
  return (*module)->function(kernel->index);
}

}  // namespace

Result<std::shared_ptr<Function>> find_function(const std::shared_ptr<Context>& context,
                                                CUfunction handle) {
  Driver& driver = context->driver();
  if (std::shared_ptr<Function> function = driver.functions.find(handle)) return function;
  std::shared_ptr<Kernel> kernel = driver.kernels.find(reinterpret_cast<CUkernel>(handle));
  if (kernel == nullptr) return Status(CUDA_ERROR_INVALID_HANDLE, "not a function");
  return kernel_function(context, kernel);
}

void load_function(Function& function) {
  if (function.loaded.load(std::memory_order_acquire)) return;
  const LoadingPause pause(function.module->context->driver(), *function.module->execution);
  function.loaded.store(true, std::memory_order_release);
}

Result<std::shared_ptr<Function>> resolve_function(const std::shared_ptr<Context>& context,
                                                   CUfunction handle) {
  Result<std::shared_ptr<Function>> function = find_function(context, handle);
  if (function.ok()) load_function(**function);
  return function;
}

Result<std::shared_ptr<Function>> load_kernel(const std::shared_ptr<Context>& context,
                                              const std::shared_ptr<Kernel>& kernel) {
  Result<std::shared_ptr<Function>> function = kernel_function(context, kernel);
  if (function.ok()) load_function(**function);
  return function;
}

// ---- Attributes -------------------------------------------------------------------------------

Result<int> function_attribute(const Config& config, const KernelInfo& info,
                               const FunctionSettings& settings, CUfunction_attribute attribute) {
  const SmLimits limits = sm_limits(config.compute_capability);
  uint32_t registers = std::max(1u, info.registers);
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: {
      uint32_t by_registers = limits.registers / registers / kWarpSize * kWarpSize;
      return static_cast<int>(std::min({info.max_threads, kMaxThreadsPerBlock, by_registers}));
    }
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES: return static_cast<int>(info.static_shared_bytes);
    case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES: return 0;
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES: return static_cast<int>(info.local_bytes);
    case CU_FUNC_ATTRIBUTE_NUM_REGS: return static_cast<int>(info.registers);
    case CU_FUNC_ATTRIBUTE_PTX_VERSION: return static_cast<int>(info.target);
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION: return static_cast<int>(config.compute_capability);
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      return static_cast<int>(settings.max_dynamic_shared.load());
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT: return settings.carveout.load();
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
      return settings.non_portable_cluster.load();
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
      return settings.cluster_policy.load();
    case CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET: return info.explicit_cluster ? 1 : 0;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
      return static_cast<int>(required_cluster(info, settings)[cluster_part(attribute)]);
    case CU_FUNC_ATTRIBUTE_CACHE_MODE_CA: return 0;
    default: return Status(CUDA_ERROR_INVALID_VALUE, "no such function attribute");
  }
}

Status set_kernel_attribute(const Config& config, Kernel& kernel, CUfunction_attribute attribute,
                            int value) {
  OPENMPS_RETURN_IF_ERROR(
      set_function_attribute(config, *kernel.info, kernel.settings, attribute, value));
  const std::shared_ptr<Library> library = kernel.library.lock();
  if (library == nullptr) return Status();
  const MutexLock lock(library->mutex);
  for (const auto& [id, module] : library->instances) {
    Result<std::shared_ptr<Function>> function = module->function(kernel.index);
    if (!function.ok()) return function.status();
    OPENMPS_RETURN_IF_ERROR(
        set_function_attribute(config, *kernel.info, (*function)->settings, attribute, value));
  }
  return Status();
}

Status set_function_attribute(const Config& config, const KernelInfo& info,
                              FunctionSettings& settings, CUfunction_attribute attribute,
                              int value) {
  const SmLimits limits = sm_limits(config.compute_capability);
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: {
      uint64_t total = static_cast<uint64_t>(info.static_shared_bytes) +
                       static_cast<uint64_t>(std::max(value, 0));
      if (value < 0 || total > limits.shared_per_block_optin) {
        return Status(CUDA_ERROR_INVALID_VALUE, "more shared memory than a block can have");
      }
      settings.max_dynamic_shared = static_cast<uint32_t>(value);
      return Status();
    }
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      if (value < -1 || value > 100) {
        return Status(CUDA_ERROR_INVALID_VALUE, "a carve-out is -1 or a percentage");
      }
      settings.carveout = value;
      return Status();
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
      settings.non_portable_cluster = value;
      return Status();
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
      if (value < CU_CLUSTER_SCHEDULING_POLICY_DEFAULT ||
          value > CU_CLUSTER_SCHEDULING_POLICY_LOAD_BALANCING) {
        return Status(CUDA_ERROR_INVALID_VALUE, "no such policy");
      }
      settings.cluster_policy = value;
      return Status();
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
      if (value < 0) return Status(CUDA_ERROR_INVALID_VALUE, "a negative number of blocks");
      if (info.required_cluster[0] != 0) {
        return Status(CUDA_ERROR_NOT_PERMITTED, "the code says which clusters the kernel requires");
      }
      settings.cluster[cluster_part(attribute)] = static_cast<uint32_t>(value);
      return Status();
    default:
      return Status(CUDA_ERROR_INVALID_VALUE,
                    "function attribute " + std::to_string(attribute) + " can't be set");
  }
}

cuda::Dimensions required_cluster(const KernelInfo& info, const FunctionSettings& settings) {
  cuda::Dimensions required{};
  for (size_t i = 0; i < required.size(); ++i) {
    required[i] =
        info.required_cluster[0] != 0 ? info.required_cluster[i] : settings.cluster[i].load();
  }
  return required;
}

}  // namespace openmps::softgpu
