// SPDX-License-Identifier: Apache-2.0
// The objects behind the handles that a program holds: plain data in the session's tables. The
// operations on them live in the file of their kind (context.h, stream.h, event.cc, module.h, ...).
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "client/handle_table.h"
#include "client/image.h"
#include "client/jit_options.h"
#include "client/known_occupancy.h"
#include "cuda/abi.h"
#include "cuda/old_launch.h"
#include "cuda/stream_attributes.h"
#include "wire/commands/code.h"
#include "wire/commands/stream.h"
#include "wire/device_facts.h"

namespace openmps::client {

struct GreenContext;
struct Stream;

struct Context : Object {
  // The owner of objects that are made while this context is current: for a green context's it is
  // the primary context.
  [[nodiscard]] Context* owner() { return parent != nullptr ? parent : this; }
  [[nodiscard]] bool includes(const Context* other) const {
    return other == this || other->parent == this;
  }
  // Kernels of both run on the same SMs.
  [[nodiscard]] bool runs_like(const Context& other) const {
    return device == other.device && green == other.green && sms == other.sms;
  }
  [[nodiscard]] inline uint32_t green_id() const;  // 0: it is no green context's

  uint32_t device = 0;       // the program's ordinal
  uint32_t wire_device = 0;  // the worker's
  std::atomic<uint32_t> flags{0};
  bool primary = false;
  // Primary contexts keep their handle for ever and are active while somebody retains them.
  std::atomic<bool> active{false};
  std::atomic<uint32_t> retained{0};
  std::atomic<uint32_t> attached{0};     // cuCtxAttach without its cuCtxDetach
  std::atomic<Stream*> legacy{nullptr};  // the NULL stream, made at first use
  // Blocking streams have been given work that no fence of the legacy stream covers yet. Written
  // under the channel's order (fence.h).
  std::atomic<bool> unjoined{false};
  // Of a green context, as cuCtxFromGreenCtx gives it: has streams and a share of the SMs of its
  // own, everything else is the primary context's.
  GreenContext* green = nullptr;
  Context* parent = nullptr;
  // Streams that the program does not know, made at first use (event_api.cc): where events
  // of the whole context are recorded, and behind what its later work comes.
  std::atomic<Stream*> gathering{nullptr};
  std::atomic<Stream*> barrier{nullptr};
  std::atomic<uint32_t> peers{0};  // devices whose memory it may use, a bit each
  // Limits that never change (context_api.cc), one more than their values; 0: not asked for yet.
  std::array<std::atomic<uint64_t>, CU_LIMIT_MAX> fixed_limits{};
  uint32_t sms = 0;  // that its work may use at most (context_sms.h); 0: any number
  // By CUDA_LAUNCH_BLOCKING: launches return when all work of the context is done.
  bool launches_block = false;
  CUfunc_cache cache_config = CU_FUNC_CACHE_PREFER_NONE;
  CUsharedconfig shared_config = CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE;
  unsigned long long unique_id = 0;
};

struct GreenContext : Object {
  Context* view = nullptr;
  uint32_t sms = 0;
  unsigned long long unique_id = 0;
};

uint32_t Context::green_id() const { return green != nullptr ? green->id : 0; }

// A CUdevResourceDesc; never destroyed, as CUDA has no call for it.
struct ResourceDescriptor : Object {
  uint32_t sms = 0;
};

struct Stream : Object {
  Context* context = nullptr;
  wire::StreamKind kind = wire::StreamKind::kBlocking;
  uint32_t flags = 0;
  int priority = 0;
  bool per_thread = false;  // owned by a thread, not by the program
  // Its green context was destroyed: nothing can be done with it but destroying it.
  std::atomic<bool> detached{false};
  unsigned long long unique_id = 0;
  cuda::StreamAttributes attributes;  // guarded by Streams::lock
  // Fence state: written under the channel's order (fence.h).
  uint32_t fence_slot = 0;
  std::atomic<uint64_t> sequence{0};  // value of the last fence that was pushed
  std::atomic<bool> dirty{false};     // work was pushed since
  // Value of the fence that covers what the program can see the end of: all but copies out of
  // staging pieces, which are done for the program once they are under way.
  std::atomic<uint64_t> visible{0};
  std::atomic<uint32_t> capture{0};  // number of the capture that it takes part in; 0: none
};

struct Event : Object {
  Context* context = nullptr;
  uint32_t flags = 0;
  // Other processes know it, too: what has become of it is asked of the worker.
  bool shared = false;
  std::atomic<uint64_t> recorded{0};  // FencePoint of the last record; 0: never recorded
  std::atomic<uint32_t> capture{0};   // last recorded in this capture; 0: outside of any
};

struct Function;

// A CUmodule, a CUlibrary, or the CUmodule of a CUlibrary: one object, one wire id, two handles.
struct Module : Object {
  Context* context = nullptr;  // of a module; libraries belong to none
  wire::ModuleKind kind = wire::ModuleKind::kModule;
  Mutex lock{LockRank::kClientModule};
  std::atomic<bool> loaded{false};  // libraries may be sent at first use
  Image image GUARDED_BY(lock);     // until then
  std::unordered_map<std::string, Function*> functions GUARDED_BY(lock);
  // By device (the program's ordinal) and name: a library has its variables on each device.
  std::map<std::pair<uint32_t, std::string>, wire::GetGlobal::Reply> globals GUARDED_BY(lock);
};

// A CUfunction or CUkernel.
struct Function : Object {
  Module* module = nullptr;
  std::string name;
  int32_t attributes[wire::kFunctionAttributes] = {};
  bool prints = false;  // its image refers to the device's printf
  uint32_t parameter_bytes = 0;
  std::vector<wire::ParameterLayout> parameters;
  // A library's kernel has attributes on each device: those above are the first device's. The
  // largest dynamic shared memory that any other one was allowed.
  std::atomic<int32_t> shared_elsewhere{0};
  // The program has set CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_*: launches say the clusters, and the
  // worker's function, which other programs use, has none of its own.
  std::atomic<bool> clusters_are_set{false};
  std::unique_ptr<cuda::OldLaunch> old_launch;  // old_launch_api.cc
  // Shapes in which the driver took it (launch_check.cc); 0: none yet.
  std::atomic<uint64_t> known_block{0};
  std::atomic<uint64_t> known_cluster{0};
  mutable KnownOccupancy occupancy;  // occupancy.h
};

// A CUlinkState. Its result is the program's until the link is destroyed.
struct Link : Object {
  Mutex lock{LockRank::kClientLink};
  JitOptions options GUARDED_BY(lock);
  std::vector<unsigned char> result GUARDED_BY(lock);
};

}  // namespace openmps::client
