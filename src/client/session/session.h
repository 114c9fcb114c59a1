// SPDX-License-Identifier: Apache-2.0
// This process's session: its parts, built in the order in which they use each other. Made by
// cuInit and never destroyed: when the process ends, the socket closes and the server cleans up. A
// forked child does not use the parent's session. Any thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/kept_fd.h"
#include "base/mutex.h"
#include "base/shared_memory.h"
#include "base/unique_fd.h"
#include "client/check.h"
#include "client/context/contexts.h"
#include "client/context/event.h"
#include "client/context/managed_variables.h"
#include "client/context/module.h"
#include "client/context/shared_memory.h"
#include "client/context/stream.h"
#include "client/context/transfer.h"
#include "client/devices.h"
#include "client/graphs/capture.h"
#include "client/graphs/graph.h"
#include "client/graphs/graph_memory.h"
#include "client/graphs/user_object.h"
#include "client/handle_table.h"
#include "client/link/callbacks.h"
#include "client/link/channel.h"
#include "client/link/connect.h"
#include "client/link/fence.h"
#include "client/link/kernel_output.h"
#include "client/link/passage.h"
#include "client/link/staging.h"
#include "client/memory/array.h"
#include "client/memory/host_register.h"
#include "client/memory/memory.h"
#include "client/memory/memory_pool.h"
#include "client/memory/pinned.h"
#include "client/memory/places.h"
#include "client/memory/virtual_memory.h"
#include "client/objects.h"
#include "client/session/graph_exec.h"
#include "client/session/recording.h"
#include "cuda/abi.h"

namespace openmps::client {

struct Session {
  // `visible`: the devices that the program sees.
  Session(Connection&& made, std::vector<uint32_t> visible);
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  [[nodiscard]] uint32_t device_count() const { return devices.size(); }
  [[nodiscard]] bool valid_device(CUdevice device) const { return devices.valid(device); }
  [[nodiscard]] const wire::DeviceFacts& device(uint32_t ordinal) const {
    return devices.facts(ordinal);
  }

  // Waits for the work of a stream, or of all streams of a context (nullptr: of all contexts), that
  // of destroyed streams included, and fetches what the device has changed of managed variables.
  [[nodiscard]] CUresult synchronize(Stream& stream) {
    return memory.reclaim_after(managed.fetch_after(streams.synchronize(stream)));
  }
  [[nodiscard]] CUresult synchronize(const Context* context) {
    return memory.reclaim_after(managed.fetch_after(streams.synchronize(context)));
  }

  KeptFd socket;
  Mapping window;
  const uint64_t window_base;
  uint64_t memory_limit[wire::kMaxDevices];  // by the worker's device; 0: none
  const Devices devices;
  // Answers of the worker that can't change are kept.
  const bool keeps_answers;
  // Images are sent without the code for other devices.
  const bool thins_images;

  const MonotonicClock clock;
  Channel channel;
  Fences fences{channel};
  Staging staging{channel, fences};
  KernelOutput output{channel};
  Callbacks callbacks{channel, fences};

  DeviceMemory memory{channel, fences, window_base};
  VirtualMemory virtual_memory;
  Passage passage;
  PinnedHeap pinned;
  HostRegistrations registered{channel, passage};
  MemoryPools pools{devices, memory};
  HandleTable<PhysicalMemory> physical{HandleKind::kPhysicalMemory};
  Arrays arrays{channel, memory};
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
  Recording recording{channel, passage, streams, devices};
  Modules modules{channel, staging, devices, contexts, memory, managed, output, thins_images};
  HandleTable<Link> links{HandleKind::kLink};
  GraphExecs graph_execs{
      channel, fences,  graph_memory,
      output,  managed, {contexts, modules, events, arrays, places, callbacks, pinned}};

  HandleTable<GreenContext> greens{HandleKind::kGreenContext};
  HandleTable<ResourceDescriptor> descriptors{HandleKind::kResourceDescriptor};
  // Held from a split of an SM resource until its parts have been read.
  Mutex resource_lock{LockRank::kClientResources};
  // By the bytes of the resources.
  std::map<std::string, ResourceDescriptor*> known_descriptors GUARDED_BY(resource_lock);
};

// ---- The process's one session ------------------------------------------------------------------

// The first step of every CUDA call. CUDA_ERROR_NOT_INITIALIZED before cuInit and in a forked
// child; the reason once the session has ended.
[[nodiscard]] CUresult enter(Session** session);
// As enter(), also once the session has ended: for calls that the client answers by itself.
[[nodiscard]] CUresult enter_local(Session** session);

// cuInit with a daemon. Errors: those of the server; CUDA_ERROR_MPS_CONNECTION_FAILED.
[[nodiscard]] CUresult initialize_session(const std::string& control_socket);

}  // namespace openmps::client
