// SPDX-License-Identifier: Apache-2.0
// Modules and libraries. Their images are sent to the worker as blobs. A function is looked up in
// the worker once, and kept with all facts that attributes and launches need. Any thread.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "client/context/contexts.h"
#include "client/context/managed_variables.h"
#include "client/devices.h"
#include "client/handle_table.h"
#include "client/image.h"
#include "client/jit_options.h"
#include "client/link/channel.h"
#include "client/link/kernel_output.h"
#include "client/link/staging.h"
#include "client/memory/memory.h"
#include "client/objects.h"
#include "client/sent_image.h"
#include "cuda/abi.h"

namespace openmps::client {

// The contents of an image file. Errors: CUDA_ERROR_FILE_NOT_FOUND, CUDA_ERROR_INVALID_IMAGE (too
// large).
[[nodiscard]] CUresult read_image_file(const char* name, std::vector<std::byte>* contents);

enum class SymbolKind { kGlobal, kManaged };

class Modules : public HandleTable<Module> {
 public:
  Modules(Channel& channel, Staging& staging, const Devices& devices, const Contexts& contexts,
          DeviceMemory& memory, ManagedVariables& managed, KernelOutput& output, bool thins_images)
      : HandleTable<Module>(HandleKind::kModule, wire::kMaxModules),
        channel_(channel),
        staging_(staging),
        devices_(devices),
        contexts_(contexts),
        memory_(memory),
        managed_(managed),
        output_(output),
        thins_images_(thins_images) {}

  HandleTable<Function> functions{HandleKind::kFunction};

  // Sends an image ahead of the command that uses it; *blob is the image's id on the wire.
  [[nodiscard]] CUresult send_image(const SentImage& image, wire::Id* blob);
  // Sends an image and loads it. On failure no module is made.
  [[nodiscard]] CUresult load(Context* context, wire::ModuleKind kind, const Image& image,
                              const JitOptions& options, Module** module);
  // A library whose image the program keeps readable: the image is sent when it is first needed.
  [[nodiscard]] CUresult defer_library(Image image, Module** module);
  [[nodiscard]] CUresult ensure_loaded(Module& module);
  [[nodiscard]] CUresult unload(Module* module);

  // By name, cached. Errors: CUDA_ERROR_NOT_FOUND, and those of loading.
  [[nodiscard]] CUresult get_function(Module& module, const char* name, Function** function);
  // `current`: a library's variable has a copy on each device, and this context selects one. A
  // managed variable has its memory in this process when this returns.
  [[nodiscard]] CUresult get_global(Module& module, Context* current, const char* name,
                                    SymbolKind kind, wire::GetGlobal::Reply* global);
  // The names of all functions, in the driver's order.
  [[nodiscard]] CUresult function_names(Module& module, std::vector<std::string>* names);

  // A CUlibrary and the CUmodule of its library are handles of one Module, with different tags.
  [[nodiscard]] Module* find_library(CUlibrary handle) const;

 private:
  CUresult send_blob(const SentImage& image, wire::Id blob);
  CUresult load_blob(Module& module, uint32_t device, wire::Id blob, const JitOptions& options);
  CUresult send_and_load(Module& module, uint32_t device, const SentImage& image,
                         const JitOptions& options);
  CUresult send_and_load(Module& module, uint32_t device, const Image& image,
                         const JitOptions& options);
  [[nodiscard]] uint32_t device_of(const Module& module) const;
  CUresult request_function(Module& module, const std::string& name, Function** function);

  Channel& channel_;
  Staging& staging_;
  const Devices& devices_;
  const Contexts& contexts_;
  DeviceMemory& memory_;
  ManagedVariables& managed_;
  KernelOutput& output_;
  const bool thins_images_;
  std::atomic<uint32_t> next_blob_{0};
};

[[nodiscard]] CUlibrary library_handle(const Module& module);

}  // namespace openmps::client
