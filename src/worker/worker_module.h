// SPDX-License-Identifier: Apache-2.0
// The modules and libraries of a session, their functions and globals, and the images on their way
// into one. Loading synchronises the shared context, so it goes through the gate. Session's thread
// only.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "wire/decode.h"
#include "worker/image_facts.h"
#include "worker/image_store.h"
#include "worker/jit_options.h"
#include "worker/object_table.h"
#include "worker/reply_writer.h"
#include "worker/session_core.h"
#include "worker/worker_memory.h"

namespace openmps::worker {

// What all images of a session may take together: blobs on their way and those of live modules. The
// largest known, those of PyTorch's libraries, are below 2 GiB together.
inline constexpr uint64_t kMaxSessionImageBytes = 4 * wire::kGiB;

struct Function {
  CUfunction handle = nullptr;  // or a CUkernel, which the driver takes in its place
  bool is_kernel = false;
  uint32_t device = 0;           // of a module's function
  uint32_t loaded = 0;           // of a kernel: the devices that have its code, by bit
  uint32_t parameter_bytes = 0;  // end of the last parameter
  // Of its image; a kernel that prints runs in turns (worker_prints.h).
  bool prints = false;
  bool asserts = false;
  uint32_t quiet_launches = 0;
  uint64_t texts_seen = 0;
  LoadedLibrary* library = nullptr;  // of a kernel
};

struct Module {
  wire::ModuleKind kind = wire::ModuleKind::kModule;
  uint32_t device = 0;
  CUmodule module = nullptr;
  std::shared_ptr<LoadedLibrary> library;  // perhaps shared with other sessions
  // Kept while the module lives: what another worker would load it from.
  std::shared_ptr<const ImageBytes> image;
  ImageFacts facts;
  std::vector<wire::Id> functions;
  std::vector<uint64_t> globals;  // start addresses
};

class Modules {
 public:
  Modules(SessionCore& core, SessionMemory& memory) : core_(core), memory_(memory) {}

  Status begin_blob(const wire::BlobBegin& command);
  // Chunks come in order, out of the staging arena.
  Status append_blob(const wire::BlobData& command);
  // A whole image, now the caller's.
  Status take_blob(wire::Id id, ImageBytes* image);
  // Replies ModuleLoadReply and the JIT logs, also when loading fails.
  Status load(const wire::ModuleLoad& command, wire::Variable options, ReplyWriter& reply);
  Status unload(wire::Id id);
  Status get_function(const wire::GetSymbol& command, wire::Variable name, ReplyWriter& reply);
  Status get_global(const wire::GetSymbol& command, wire::Variable name, ReplyWriter& reply);
  Status symbols(wire::Id id, ReplyWriter& reply);
  // Whole names, from a number on, as many as the reply holds.
  Status function_names(const wire::ModuleFunctions& command, ReplyWriter& reply);

  // Some function of the session may print, or assert.
  [[nodiscard]] bool any_prints() const { return any_prints_; }
  [[nodiscard]] bool any_asserts() const { return any_asserts_; }
  Status function(wire::Id id, Function** function) const { return functions_.get(id, function); }
  // The functions that go with a module; none if there is no such module.
  [[nodiscard]] std::span<const wire::Id> functions_of(wire::Id module) const {
    const Module* found = modules_.find(module);
    return found == nullptr ? std::span<const wire::Id>() : found->functions;
  }
  // Before work with `function` is made for `device`: its code is there, loaded in a quiet moment
  // and not inside a launch. The session is not between the gate's enter() and leave().
  Status ensure_loaded(Function& function, uint32_t device);
  Status set_attribute(const wire::FunctionAttribute& command);
  Status get_attribute(const wire::FunctionAttribute& command, ReplyWriter& reply);
  Status occupancy(const wire::Occupancy& command, ReplyWriter& reply);
  Status cluster_occupancy(const wire::ClusterOccupancy& command, wire::Variable attributes,
                           ReplyWriter& reply);

  void release_all();

 private:
  struct Blob {
    uint64_t bytes = 0;
    std::vector<unsigned char> data;
    Status error;  // reported by the load that uses it
  };

  Status load_driver_module(Module& module, JitOptions& jit);
  Status load_driver_library(Module& module, const wire::ModuleLoad& command, JitOptions& jit);
  // The module, and the device that its symbol is wanted on, whose context becomes current.
  Status find_module(const wire::GetSymbol& command, Module** module, uint32_t* device);
  Status read_attribute(const Function& function, uint32_t device, uint32_t attribute,
                        int32_t* value);
  Status function_device(const Function& function, uint32_t wanted, uint32_t* device);
  void read_layout(Function& function, std::vector<wire::ParameterLayout>* layout);
  CUresult list_functions(const Module& module, std::vector<CUfunction>* functions);
  Status release(Module& module);

  SessionCore& core_;
  SessionMemory& memory_;
  ObjectTable<Blob> blobs_{"blob"};
  ObjectTable<Module> modules_{"module"};
  ObjectTable<Function> functions_{"function"};
  uint64_t image_bytes_ = 0;  // of blobs and modules
  bool any_prints_ = false;
  bool any_asserts_ = false;
};

}  // namespace openmps::worker
