// SPDX-License-Identifier: Apache-2.0
// The connected state of this process: one session with its channel, its memory and its objects.
// Made by cuInit, never destroyed (the end of the process closes the socket, and the server cleans
// up), dropped untouched by a forked child. Any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/shared_memory.h"
#include "base/unique_fd.h"
#include "client/array.h"
#include "client/callbacks.h"
#include "client/capture.h"
#include "client/channel.h"
#include "client/copy_pool.h"
#include "client/fence.h"
#include "client/graph.h"
#include "client/graph_exec.h"
#include "client/graph_memory.h"
#include "client/handle_table.h"
#include "client/host_register.h"
#include "client/kernel_output.h"
#include "client/managed_variables.h"
#include "client/memory.h"
#include "client/memory_pool.h"
#include "client/objects.h"
#include "client/passage.h"
#include "client/pinned.h"
#include "client/shared_memory.h"
#include "client/staging.h"
#include "client/user_object.h"
#include "client/virtual_memory.h"
#include "cuda/abi.h"
#include "cuda/status.h"
#include "wire/device_facts.h"

namespace openmps::client {

// What connecting yields, before any object exists.
struct Connection {
  UniqueFd socket;
  Mapping window;  // device part without access, host part the host file
  UniqueFd host_file;
  std::unique_ptr<wire::Facts> facts;
  uint64_t window_base = 0;
  uint64_t spin_ns = 0;
  uint64_t memory_limit[wire::kMaxDevices] = {};  // granted; by the worker's device, 0: none
};

struct Session {
  explicit Session(Connection&& made);
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // The program's device ordinals are those that CUDA_VISIBLE_DEVICES leaves.
  [[nodiscard]] uint32_t device_count() const { return static_cast<uint32_t>(devices.size()); }
  [[nodiscard]] bool valid_device(CUdevice device) const {
    return device >= 0 && static_cast<uint32_t>(device) < device_count();
  }
  [[nodiscard]] const wire::DeviceFacts& device(uint32_t ordinal) const {
    return facts->device[devices[ordinal]];
  }

  UniqueFd socket;
  Mapping window;
  const std::unique_ptr<wire::Facts> facts;
  const uint64_t window_base;
  const std::vector<uint32_t> devices;       // ordinal -> the worker's device
  uint64_t memory_limit[wire::kMaxDevices];  // by the worker's device; 0: none

  Channel channel;
  Fences fences;
  Staging staging;
  DeviceMemory memory;
  VirtualMemory virtual_memory;
  Passage passage;
  OpenedMemory opened;
  PinnedHeap pinned;
  HostRegistrations registered;
  CopyPool copy_pool;
  Callbacks callbacks;
  Captures captures;
  KernelOutput output;
  ManagedVariables managed;

  HandleTable<Context> contexts{HandleKind::kContext};
  // The program has made contexts beside the primary ones: the worker's order of copies ends at a
  // context, so staged copies are then waited for.
  std::atomic<bool> several_contexts{false};
  HandleTable<Stream> streams{HandleKind::kStream};
  HandleTable<Event> events{HandleKind::kEvent, wire::kMaxEvents};
  HandleTable<Module> modules{HandleKind::kModule, wire::kMaxModules};
  HandleTable<Function> functions{HandleKind::kFunction};
  HandleTable<Link> links{HandleKind::kLink};
  HandleTable<MemoryPool> pools{HandleKind::kMemoryPool};
  HandleTable<PhysicalMemory> physical{HandleKind::kPhysicalMemory};
  HandleTable<Graph> graphs{HandleKind::kGraph};
  HandleTable<GraphExec> graph_execs{HandleKind::kGraphExec, wire::kMaxGraphExecs};
  HandleTable<GraphNode> graph_nodes{HandleKind::kGraphNode};
  HandleTable<UserObject> user_objects{HandleKind::kUserObject};
  std::mutex graph_lock;  // of all graphs; taken before any other lock of the session
  GraphMemory graph_memory{memory, fences};
  HandleTable<Array> arrays{HandleKind::kArray};
  HandleTable<MipmappedArray> mipmapped_arrays{HandleKind::kMipmappedArray};
  ImageObjects images;

  HandleTable<GreenContext> greens{HandleKind::kGreenContext};
  HandleTable<ResourceDescriptor> descriptors{HandleKind::kResourceDescriptor};
  std::map<std::string, ResourceDescriptor*> known_descriptors;  // by the bytes of the resources
  std::mutex resource_lock;  // of the descriptors, and around a split with its reading

  Context* primary[wire::kMaxDevices] = {};          // by the program's ordinal, made at connect
  MemoryPool* default_pool[wire::kMaxDevices] = {};  // likewise
  std::atomic<MemoryPool*> current_pool[wire::kMaxDevices] = {};
  std::mutex context_lock;  // activation, creation and destruction of contexts
  std::mutex stream_lock;   // creation of default streams
  std::atomic<uint64_t> next_unique_id{1};
  std::atomic<uint32_t> next_blob{0};
};

// ---- The process's one session ------------------------------------------------------------------

// CUDA_SUCCESS and the session; CUDA_ERROR_NOT_INITIALIZED before cuInit and in a forked child; the
// reason once the session has ended. What every implementation begins with.
[[nodiscard]] CUresult enter(Session** session);
// The same without the question whether the session still lives: for what is answered locally.
[[nodiscard]] CUresult enter_local(Session** session);

// cuInit of the connected mode. Errors: what the server answered; CUDA_ERROR_MPS_CONNECTION_FAILED.
[[nodiscard]] CUresult initialize_session(const std::string& control_socket);
// Connect to the daemon. Errors are the CUresult of cuInit with the reason.
Result<Connection> connect(const std::string& control_socket);

// ---- Waiting for everything ---------------------------------------------------------------------

// All work of a context's streams (nullptr: of all contexts), destroyed streams included, is done.
[[nodiscard]] CUresult synchronize(Session& session, const Context* context);

}  // namespace openmps::client

// Return early with the CUresult of a call that did not succeed.
#define OPENMPS_CUDA_CHECK(expression)                                                  \
  do {                                                                                  \
    if (const CUresult result_ = (expression); result_ != CUDA_SUCCESS) return result_; \
  } while (false)
