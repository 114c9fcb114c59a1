// SPDX-License-Identifier: Apache-2.0
// See module.h. On the wire, modules and libraries have ids of one space, and functions and kernels
// are one kind of object.
#include "client/context/module.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/mutex.h"
#include "base/program_switches.h"
#include "base/thread_end.h"
#include "base/unique_fd.h"
#include "client/check.h"
#include "client/debug.h"

namespace openmps::client {
namespace {

constexpr uint64_t kTypeShift = 56;
// From a CUmodule to the CUlibrary of the same object.
constexpr uint64_t kLibraryDistance =
    (static_cast<uint64_t>(HandleKind::kLibrary) - static_cast<uint64_t>(HandleKind::kModule))
    << kTypeShift;

}  // namespace

// Each chunk is a call with a reply, after which the staging piece is free again. A round trip
// costs little beside copying half a megabyte.
CUresult Modules::send_blob(const SentImage& image, wire::Id blob) {
  const uint64_t total = image.bytes();
  OPENMPS_CUDA_CHECK(channel_.push(wire::BlobBegin{total, blob}));
  for (uint64_t offset = 0; offset < total;) {
    Staging::Piece piece;
    const uint64_t bytes = std::min(total - offset, kLargePieceBytes);
    OPENMPS_CUDA_CHECK(staging_.acquire(bytes, &piece));
    image.copy(offset, bytes, piece.data);
    const CUresult result =
        channel_.call(wire::BlobData{blob, static_cast<uint32_t>(bytes), offset, piece.address()});
    staging_.release(piece);
    OPENMPS_CUDA_CHECK(result);
    offset += bytes;
  }
  return CUDA_SUCCESS;
}

// Loads an image that has been sent. Fills the logs of the options.
CUresult Modules::load_blob(Module& module, uint32_t device, wire::Id blob,
                            const JitOptions& options) {
  const wire::ModuleLoad command{.module = module.id,
                                 .blob = blob,
                                 .device = device,
                                 .kind = module.kind,
                                 .log_bytes = std::max(options.info_bytes, options.error_bytes)};
  wire::ReplyOf<wire::ModuleLoad> reply;
  const CUresult result = channel_.call(command, {options.scalars}, &reply);
  const auto [info, error] = reply.tail();
  copy_jit_logs(options, info, error);
  if (result != CUDA_SUCCESS) {
    debug_line("loading a module failed with error %d: %.*s", static_cast<int>(result),
               static_cast<int>(std::min<size_t>(error.size(), 512)), error.data());
  }
  return result;
}

CUresult Modules::send_and_load(Module& module, uint32_t device, const SentImage& image,
                                const JitOptions& options) {
  return memory_.retry_after_reclaim([&]() -> CUresult {
    wire::Id blob = 0;
    OPENMPS_CUDA_CHECK(send_image(image, &blob));
    return load_blob(module, device, blob, options);
  });
}

// Leaves out code that no visible device can run, unless the options may select other code than the
// driver does. If that image does not load, the whole image is loaded, and errors are of that load.
CUresult Modules::send_and_load(Module& module, uint32_t device, const Image& image,
                                const JitOptions& options) {
  const std::vector<uint32_t> capabilities = devices_.capabilities();
  OPENMPS_CUDA_CHECK(check_code_of(image, capabilities));
  const bool forces_ptx = jit_switches().forced;
  if ((thins_images_ && options.scalars.empty()) || forces_ptx) {
    const SentImage thin(image, capabilities, forces_ptx);
    if (thin.is_whole() || forces_ptx) return send_and_load(module, device, thin, options);
    if (send_and_load(module, device, thin, options) == CUDA_SUCCESS) return CUDA_SUCCESS;
  }
  return send_and_load(module, device, SentImage(image), options);
}

// A library is for all devices; most likely it will be used on that of the current context.
uint32_t Modules::device_of(const Module& module) const {
  if (module.context != nullptr) return module.context->wire_device;
  Context* current = nullptr;
  return contexts_.current(&current) == CUDA_SUCCESS ? current->wire_device : devices_[0];
}

CUresult read_image_file(const char* name, std::vector<std::byte>* contents) {
  const CancellationHeld held;
  const UniqueFd file(open(name, O_RDONLY | O_CLOEXEC));
  struct stat info {};
  if (!file.valid() || fstat(file.get(), &info) != 0) return CUDA_ERROR_FILE_NOT_FOUND;
  if (static_cast<uint64_t>(info.st_size) > cuda::kMostImageBytes) return CUDA_ERROR_INVALID_IMAGE;
  contents->resize(static_cast<size_t>(info.st_size));
  size_t done = 0;
  while (done < contents->size()) {
    const ssize_t got = read(file.get(), contents->data() + done, contents->size() - done);
    if (got <= 0) return CUDA_ERROR_FILE_NOT_FOUND;
    done += static_cast<size_t>(got);
  }
  return CUDA_SUCCESS;
}

CUresult Modules::send_image(const SentImage& image, wire::Id* blob) {
  // Few blobs exist at a time: an id is used again long after the blob that had it was loaded.
  *blob = next_blob_.fetch_add(1, std::memory_order_relaxed) % wire::kMaxObjects + 1;
  return send_blob(image, *blob);
}

CUresult Modules::load(Context* context, wire::ModuleKind kind, const Image& image,
                       const JitOptions& options, Module** module) {
  return make(module, [&](Module& made) {
    made.context = context != nullptr ? context->owner() : nullptr;
    made.kind = kind;
    made.loaded.store(true, std::memory_order_relaxed);
    return send_and_load(made, device_of(made), image, options);
  });
}

CUresult Modules::defer_library(Image image, Module** module) {
  return make(module, [&](Module& made) {
    made.kind = wire::ModuleKind::kLibrary;
    const MutexLock guard(made.lock);
    made.image = std::move(image);
    return CUDA_SUCCESS;
  });
}

CUresult Modules::ensure_loaded(Module& module) {
  if (module.loaded.load(std::memory_order_acquire)) return CUDA_SUCCESS;
  const MutexLock guard(module.lock);
  if (module.loaded.load(std::memory_order_relaxed)) return CUDA_SUCCESS;
  OPENMPS_CUDA_CHECK(send_and_load(module, device_of(module), module.image, JitOptions{}));
  module.loaded.store(true, std::memory_order_release);
  return CUDA_SUCCESS;
}

// Looks the function up in the worker. The caller holds the module's lock.
CUresult Modules::request_function(Module& module, const std::string& name, Function** function) {
  return functions.make(function, [&](Function& made) {
    const wire::GetFunction command{
        .module = module.id, .function = made.id, .kind = module.kind, .device = device_of(module)};
    wire::ReplyOf<wire::GetFunction> reply;
    OPENMPS_CUDA_CHECK(channel_.call(command, {name}, &reply));
    made.module = &module;
    made.name = name;
    memcpy(made.attributes, reply->attributes, sizeof(made.attributes));
    made.prints = (reply->flags & wire::kFunctionPrints) != 0;
    if (made.prints) output_.found_printing_function();
    made.parameter_bytes = reply->parameter_bytes;
    const auto layout = reply.tail().parameters;
    made.parameters.assign(layout.begin(), layout.end());
    return CUDA_SUCCESS;
  });
}

CUresult Modules::get_function(Module& module, const char* name, Function** function) {
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (strlen(name) >= wire::kMaxNameBytes) return CUDA_ERROR_NOT_FOUND;
  OPENMPS_CUDA_CHECK(ensure_loaded(module));
  const MutexLock guard(module.lock);
  if (const auto known = module.functions.find(name); known != module.functions.end()) {
    *function = known->second;
    return CUDA_SUCCESS;
  }
  OPENMPS_CUDA_CHECK(request_function(module, name, function));
  module.functions.emplace(name, *function);
  return CUDA_SUCCESS;
}

CUresult Modules::get_global(Module& module, Context* current, const char* name, SymbolKind kind,
                             wire::GetGlobal::Reply* global) {
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (strlen(name) >= wire::kMaxNameBytes) return CUDA_ERROR_NOT_FOUND;
  OPENMPS_CUDA_CHECK(ensure_loaded(module));
  const MutexLock guard(module.lock);
  Context* context = module.context != nullptr ? module.context : current;
  const auto key = std::make_pair(context->device, std::string(name));
  if (const auto known = module.globals.find(key); known != module.globals.end()) {
    *global = known->second;
    return CUDA_SUCCESS;
  }
  const wire::GetGlobal command{.module = module.id,
                                .kind = module.kind,
                                .device = context->wire_device,
                                .managed = kind == SymbolKind::kManaged ? 1u : 0u};
  wire::ReplyOf<wire::GetGlobal> reply;
  OPENMPS_CUDA_CHECK(channel_.call(command, {name}, &reply));
  *global = *reply;
  memory_.add_mapping(context->owner(), global->address, global->bytes, AllocationKind::kGlobal,
                      true);
  module.globals.emplace(key, *global);
  return kind == SymbolKind::kManaged || global->managed != 0
             ? managed_.add(&module, global->address, global->bytes)
             : CUDA_SUCCESS;
}

CUresult Modules::function_names(Module& module, std::vector<std::string>* names) {
  OPENMPS_CUDA_CHECK(ensure_loaded(module));
  names->clear();
  for (;;) {
    wire::ReplyOf<wire::ModuleFunctions> head;
    OPENMPS_CUDA_CHECK(channel_.call(
        wire::ModuleFunctions{module.id, static_cast<uint32_t>(names->size())}, {}, &head));
    std::string_view text = head.tail().text;
    for (uint32_t i = 0; i < head->names; ++i) {
      const size_t length = text.find('\0');
      if (length == std::string_view::npos) return CUDA_ERROR_MPS_RPC_FAILURE;
      names->emplace_back(text.substr(0, length));
      text.remove_prefix(length + 1);
    }
    if (names->size() >= head->functions) return CUDA_SUCCESS;
    if (head->names == 0) return CUDA_ERROR_NOT_SUPPORTED;  // a name longer than a reply
  }
}

CUresult Modules::unload(Module* module) {
  if (!retire(module)) return CUDA_ERROR_INVALID_HANDLE;
  std::vector<Function*> retired;
  {
    const MutexLock guard(module->lock);
    for (const auto& [name, function] : module->functions) {
      if (functions.retire(function)) retired.push_back(function);
    }
    for (const auto& [key, global] : module->globals) {
      memory_.remove_mapping(global.address);
    }
  }
  managed_.remove(module);
  CUresult result = CUDA_SUCCESS;
  if (module->loaded.load(std::memory_order_relaxed)) {
    result = channel_.push(wire::ModuleUnload{module->id});
  }
  // Ids may be used again only behind the unload command in the ring.
  for (Function* function : retired) functions.recycle(function);
  recycle(module);
  return result;
}

CUlibrary library_handle(const Module& module) {
  return reinterpret_cast<CUlibrary>(module.handle + kLibraryDistance);
}

Module* Modules::find_library(CUlibrary handle) const {
  const auto value = reinterpret_cast<uint64_t>(handle);
  if (value >> kTypeShift != kHandleTag + static_cast<uint64_t>(HandleKind::kLibrary)) {
    return nullptr;
  }
  Module* module = find(value - kLibraryDistance);
  return module != nullptr && module->kind == wire::ModuleKind::kLibrary ? module : nullptr;
}

}  // namespace openmps::client
