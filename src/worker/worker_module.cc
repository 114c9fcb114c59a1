// SPDX-License-Identifier: Apache-2.0
// Blobs, modules and their globals. Functions are in worker_function.cc.
#include "worker/worker_module.h"

#include <algorithm>
#include <utility>

#include "worker/driver_check.h"
#include "worker/image_bounds.h"
#include "worker/jit_options.h"
#include "worker/prelinked.h"

namespace openmps::worker {

using wire::ModuleKind;

Status Modules::begin_blob(const wire::BlobBegin& command) {
  if (command.bytes == 0 || command.bytes > wire::kMaxSessionImageBytes) {
    return violation("an image of " + std::to_string(command.bytes) + " bytes");
  }
  auto blob = std::make_unique<Blob>();
  blob->bytes = command.bytes;
  const auto too_many = [](const char* what, uint64_t most) {
    return Status(CUDA_ERROR_OUT_OF_MEMORY, std::string(what) + " of the session would exceed " +
                                                std::to_string(most) + " bytes");
  };
  if (command.bytes > wire::kMaxAnnouncedBytes - announced_bytes_) {
    blob->error = too_many("images that are not loaded yet", wire::kMaxAnnouncedBytes);
  } else if (command.bytes > wire::kMaxSessionImageBytes - image_bytes_) {
    blob->error = too_many("the images", wire::kMaxSessionImageBytes);
  } else {
    announced_bytes_ += command.bytes;
    image_bytes_ += command.bytes;
  }
  return blobs_.insert(command.blob, std::move(blob));
}

Status Modules::append_blob(const wire::BlobData& command) {
  Blob* blob = nullptr;
  OPENMPS_RETURN_IF_ERROR(blobs_.get(command.blob, &blob));
  const uint64_t staging = core_.device_end() + wire::kStagingOffset;
  const bool staged = command.source >= staging && command.bytes <= wire::kStagingBytes &&
                      command.source - staging <= wire::kStagingBytes - command.bytes;
  if (!staged || command.offset != blob->data.size() ||
      command.bytes > blob->bytes - command.offset) {
    // A blob over the limit keeps no data, so its offsets do not grow.
    if (staged && !blob->error.ok()) return Status();
    return violation("a chunk of " + std::to_string(command.bytes) + " bytes at " +
                     std::to_string(command.offset) + " of an image of " +
                     std::to_string(blob->bytes));
  }
  if (!blob->error.ok()) return Status();
  const unsigned char* source = core_.view.staging() + (command.source - staging);
  blob->data.insert(blob->data.end(), source, source + command.bytes);
  return Status();
}

// A blob counts until it is taken: whoever keeps the bytes counts them anew.
Status Modules::take_blob(wire::Id id, ImageBytes* image) {
  const std::unique_ptr<Blob> blob = blobs_.take(id);
  if (blob == nullptr) return violation("there is no blob " + std::to_string(id));
  if (!blob->error.ok()) return blob->error;
  announced_bytes_ -= blob->bytes;
  image_bytes_ -= blob->bytes;
  if (blob->data.size() != blob->bytes) {
    return violation("an image of " + std::to_string(blob->bytes) + " bytes of which " +
                     std::to_string(blob->data.size()) + " have come");
  }
  *image = std::move(blob->data);
  return Status();
}

class Modules::PendingLoad : public Pending {
 public:
  PendingLoad(Modules& modules, wire::Id id, std::unique_ptr<Module> module,
              std::shared_ptr<Making> making)
      : modules_(modules), id_(id), module_(std::move(module)), making_(std::move(making)) {}

  [[nodiscard]] bool ready() const override {
    return making_->done.load(std::memory_order_acquire);
  }
  Status finish(ReplyWriter& reply) override {
    return modules_.finish_load(id_, std::move(module_), *making_, reply);
  }

 private:
  Modules& modules_;
  const wire::Id id_;
  std::unique_ptr<Module> module_;
  std::shared_ptr<Making> making_;
};

Status Modules::load(const wire::ModuleLoad& command, wire::Variable options, ReplyWriter& reply) {
  OPENMPS_RETURN_IF_ERROR(core_.check_device(command.device));
  OPENMPS_RETURN_IF_ERROR(modules_.check_free(command.module));
  if (command.kind > static_cast<uint32_t>(ModuleKind::kLibrary)) {
    return violation("a module of kind " + std::to_string(command.kind));
  }
  ImageBytes image;
  OPENMPS_RETURN_IF_ERROR(take_blob(command.blob, &image));
  JitOptions jit;
  OPENMPS_RETURN_IF_ERROR(jit.set(command.log_bytes, command.option_count, options));
  OPENMPS_RETURN_IF_ERROR(check_image_bounds(image));

  auto module = std::make_unique<Module>();
  module->kind = static_cast<ModuleKind>(command.kind);
  module->device = command.device;
  module->facts = read_image_facts(image, core_.devices.at(command.device).capability);
  // Before the driver allocates them.
  OPENMPS_RETURN_IF_ERROR(memory_.charge(command.device, module->facts.variable_bytes));
  module->charged = module->facts.variable_bytes;
  image_bytes_ += image.size();
  image.push_back(0);  // PTX is text that ends with NUL
  module->image = core_.commons.images.intern(std::move(image));
  auto making = std::make_shared<Making>(core_, module->image);
  making->jit = std::move(jit);
  // Options change the code, and variables are a session's own.
  making->shareable = command.option_count == 0 && !module->facts.has_variables;
  if (!module->facts.compiles) {
    make(*making);
    return finish_load(command.module, std::move(module), *making, reply);
  }
  core_.background.run([making] {
    make(*making);
    making->done.store(true, std::memory_order_release);
    making->bell->ring();
  });
  reply.answer_later(
      std::make_unique<PendingLoad>(*this, command.module, std::move(module), std::move(making)));
  return Status();
}

// Compiles what has to be compiled. Waits for no work, needs no context and holds nobody up. Any
// thread.
void Modules::make(Making& making) {
  const auto load = [&making](std::shared_ptr<LoadedLibrary>* made) {
    const DriverImage image(std::span(*making.image).first(making.image->size() - 1));
    CUlibrary handle = nullptr;
    const CUresult result = making.gate.run_at_once(GatedCall::kLibraryLoad, [&] {
      return making.driver.cuLibraryLoadData(&handle, image.data(), making.jit.names(),
                                             making.jit.values(), making.jit.count(), nullptr,
                                             nullptr, 0);
    });
    OPENMPS_RETURN_IF_ERROR(check(result, "cuLibraryLoadData"));
    *made = std::make_shared<LoadedLibrary>(making.driver, making.gate, handle);
    return Status();
  };
  making.status = making.shareable ? making.images.library(making.image, load, &making.library)
                                   : load(&making.library);
}

Status Modules::finish_load(wire::Id id, std::unique_ptr<Module> module, Making& making,
                            ReplyWriter& reply) {
  Status status = making.status;
  module->library = std::move(making.library);
  if (status.ok()) status = core_.use(module->device);
  if (status.ok() && module->kind == ModuleKind::kModule) {
    status = check(core_.gate.run(GatedCall::kModuleLoad, module->device, &core_.feeder,
                                  [&] { return place(*module); }),
                   "cuLibraryGetModule");
  }
  making.jit.put_logs(reply);
  if (status.ok()) status = modules_.check_free(id);
  if (!status.ok()) {
    image_bytes_ -= module->image->size() - 1;
    memory_.refund(module->device, module->charged);
    return status;
  }
  return modules_.insert(id, std::move(module));
}

CUresult Modules::place(Module& module) {
  const CUresult result = core_.driver.cuLibraryGetModule(&module.module, module.library->handle);
  if (result != CUDA_SUCCESS) return result;
  module.library->note_loaded(module.device, false);
  return load_functions(module, module.device);
}

CUresult Modules::load_functions(const Module& module, uint32_t device) {
  const DriverTable& driver = core_.driver;
  if (driver.cuFuncLoad == nullptr || module.library->is_whole(device) ||
      module.image->size() > kMostBytesLoadedTogether) {
    return CUDA_SUCCESS;
  }
  std::vector<CUfunction> functions;
  const CUresult listed = list_functions(module, &functions);
  if (listed != CUDA_SUCCESS || functions.size() > kMostLoadedTogether) return CUDA_SUCCESS;
  for (CUfunction function : functions) {
    CUresult result = CUDA_SUCCESS;
    if (module.kind == ModuleKind::kLibrary) {
      result = driver.cuKernelGetFunction(&function, reinterpret_cast<CUkernel>(function));
    }
    if (result == CUDA_SUCCESS) result = driver.cuFuncLoad(function);
    // Who asks for that function is told; nobody else is.
    if (result != CUDA_SUCCESS) return is_sticky(result) ? result : CUDA_SUCCESS;
  }
  module.library->note_loaded(device, true);
  return CUDA_SUCCESS;
}

void Modules::release(Module& module) {
  for (const wire::Id id : module.functions) functions_.take(id).reset();
  for (const uint64_t address : module.globals) memory_.remove_global(address);
  image_bytes_ -= module.image->size() - 1;
  memory_.refund(module.device, module.charged);
  module.library.reset();  // unloads it, if nobody else holds it
}

Status Modules::unload(wire::Id id) {
  const std::unique_ptr<Module> module = modules_.take(id);
  if (module == nullptr) return violation("there is no module " + std::to_string(id));
  release(*module);
  return Status();
}

Status Modules::find_module(const wire::GetSymbol& command, Module** module, uint32_t* device) {
  OPENMPS_RETURN_IF_ERROR(modules_.get(command.module, module));
  // NOLINTNEXTLINE(clang-analyzer-core.NullDereference): get() succeeds with an object only.
  if (static_cast<uint32_t>((*module)->kind) != command.kind) {
    return violation("module " + std::to_string(command.module) + " is not of kind " +
                     std::to_string(command.kind));
  }
  *device = (*module)->kind == ModuleKind::kLibrary ? command.device : (*module)->device;
  OPENMPS_RETURN_IF_ERROR(core_.check_device(*device));
  return core_.use(*device);
}

Status Modules::get_global(const wire::GetSymbol& command, wire::Variable name,
                           ReplyWriter& reply) {
  Module* module = nullptr;
  uint32_t device = 0;
  OPENMPS_RETURN_IF_ERROR(find_module(command, &module, &device));
  const std::string symbol(reinterpret_cast<const char*>(name.data()), name.size());
  CUdeviceptr address = 0;
  size_t bytes = 0;
  // The first look at a symbol of a lazily loaded image loads it.
  const auto look = [&] {
    if (module->kind == ModuleKind::kModule) {
      return core_.driver.cuModuleGetGlobal_v2(&address, &bytes, module->module, symbol.c_str());
    }
    return (command.managed != 0 ? core_.driver.cuLibraryGetManaged
                                 : core_.driver.cuLibraryGetGlobal)(
        &address, &bytes, module->library->handle, symbol.c_str());
  };
  const CUresult result =
      module->library->is_loaded(device)
          ? look()
          : core_.gate.run(GatedCall::kFunctionLoad, device, &core_.feeder, look);
  if (result == CUDA_SUCCESS) module->library->note_loaded(device, false);
  OPENMPS_RETURN_IF_ERROR(check(result, "cuModuleGetGlobal"));
  if (std::find(module->globals.begin(), module->globals.end(), address) == module->globals.end()) {
    memory_.add_global(address, bytes);
    module->globals.push_back(address);
  }
  // A module's variables are all asked for alike. Where the driver doesn't know, it is none.
  int managed = 0;
  static_cast<void>(
      core_.driver.cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, address));
  reply.put(wire::GlobalReply{address, bytes, managed != 0 ? 1u : 0u, 0});
  return Status();
}

Status Modules::symbols(wire::Id id, ReplyWriter& reply) {
  Module* module = nullptr;
  OPENMPS_RETURN_IF_ERROR(modules_.get(id, &module));
  OPENMPS_RETURN_IF_ERROR(core_.use(module->device));
  unsigned count = 0;
  const CUresult result =
      module->kind == ModuleKind::kModule
          ? core_.driver.cuModuleGetFunctionCount(&count, module->module)
          : core_.driver.cuLibraryGetKernelCount(&count, module->library->handle);
  OPENMPS_RETURN_IF_ERROR(check(result, "cuModuleGetFunctionCount"));
  // The driver does not tell how many globals there are.
  reply.put(wire::ModuleSymbolsReply{count, 0});
  return Status();
}

void Modules::release_all() {
  modules_.for_each([this](Module& module) { release(module); });
  modules_.clear();
  blobs_.clear();
  functions_.clear();
}

}  // namespace openmps::worker
