// SPDX-License-Identifier: Apache-2.0
// The connected state of this process: its parts, built in the order in which they use each other.
// Made by cuInit, never destroyed (the end of the process closes the socket, and the server cleans
// up), dropped untouched by a forked child. Any thread.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "base/shared_memory.h"
#include "base/unique_fd.h"
#include "client/array.h"
#include "client/callbacks.h"
#include "client/capture.h"
#include "client/channel.h"
#include "client/check.h"
#include "client/connect.h"
#include "client/contexts.h"
#include "client/devices.h"
#include "client/event.h"
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
#include "client/module.h"
#include "client/objects.h"
#include "client/passage.h"
#include "client/pinned.h"
#include "client/places.h"
#include "client/shared_memory.h"
#include "client/staging.h"
#include "client/stream.h"
#include "client/transfer.h"
#include "client/user_object.h"
#include "client/virtual_memory.h"
#include "cuda/abi.h"

namespace openmps::client {

struct Session {
  explicit Session(Connection&& made);
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  [[nodiscard]] uint32_t device_count() const { return devices.size(); }
  [[nodiscard]] bool valid_device(CUdevice device) const { return devices.valid(device); }
  [[nodiscard]] const wire::DeviceFacts& device(uint32_t ordinal) const {
    return devices.facts(ordinal);
  }

  // Wait for a stream's work, or for all of a context's (nullptr: of all contexts), destroyed
  // streams included, and bring what the device has changed of managed variables.
  [[nodiscard]] CUresult synchronize(Stream& stream) {
    return managed.fetch_after(streams.synchronize(stream));
  }
  [[nodiscard]] CUresult synchronize(const Context* context) {
    return managed.fetch_after(streams.synchronize(context));
  }

  UniqueFd socket;
  Mapping window;
  const uint64_t window_base;
  uint64_t memory_limit[wire::kMaxDevices];  // by the worker's device; 0: none
  const Devices devices;

  Channel channel;
  Fences fences{channel};
  Staging staging{channel, fences};
  KernelOutput output{channel};
  Callbacks callbacks{channel, fences};

  DeviceMemory memory{channel, fences, window_base};
  VirtualMemory virtual_memory;
  Passage passage;
  PinnedHeap pinned;
  HostRegistrations registered;
  MemoryPools pools{devices, memory};
  HandleTable<PhysicalMemory> physical{HandleKind::kPhysicalMemory};
  Arrays arrays{channel};
  Places places{devices, memory, pinned, registered, arrays};

  UserObjects user_objects;
  GraphMemory graph_memory{memory, fences};
  Graphs graphs{channel, graph_memory};
  Captures captures{graphs};

  Contexts contexts{devices};
  Streams streams{channel, fences, devices, captures, output};
  Events events{channel};
  OpenedMemory opened{channel, memory, devices, contexts, streams, window_base};
  Transfers transfers{channel, fences, staging, contexts, places, streams, output};
  ManagedVariables managed{contexts, streams, transfers};
  Modules modules{channel, staging, devices, contexts, memory, managed, output};
  HandleTable<Link> links{HandleKind::kLink};
  GraphExecs graph_execs{
      channel, fences,  graph_memory,
      output,  managed, {contexts, modules, events, arrays, places, callbacks, pinned}};

  HandleTable<GreenContext> greens{HandleKind::kGreenContext};
  HandleTable<ResourceDescriptor> descriptors{HandleKind::kResourceDescriptor};
  std::map<std::string, ResourceDescriptor*> known_descriptors;  // by the bytes of the resources
  std::mutex resource_lock;  // of the descriptors, and around a split with its reading
};

// ---- The process's one session ------------------------------------------------------------------

// CUDA_SUCCESS and the session; CUDA_ERROR_NOT_INITIALIZED before cuInit and in a forked child; the
// reason once the session has ended. What every implementation begins with.
[[nodiscard]] CUresult enter(Session** session);
// The same without the question whether the session still lives: for what is answered locally.
[[nodiscard]] CUresult enter_local(Session** session);

// cuInit of the connected mode. Errors: what the server answered; CUDA_ERROR_MPS_CONNECTION_FAILED.
[[nodiscard]] CUresult initialize_session(const std::string& control_socket);

}  // namespace openmps::client
