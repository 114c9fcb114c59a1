// SPDX-License-Identifier: Apache-2.0
// What every part of a session needs: the driver, the devices, the mapped channel, and which client
// it serves. The parts (streams, memory, ...) borrow it. Session's thread, except where a comment
// says otherwise.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/mutex.h"
#include "cuda/status.h"
#include "wire/channel_view.h"
#include "wire/client_limits.h"
#include "wire/handshake.h"
#include "worker/core/channel_pages.h"
#include "worker/core/device_parts.h"
#include "worker/core/journal.h"
#include "worker/device/background.h"
#include "worker/device/cold_lane.h"
#include "worker/device/context_gate.h"
#include "worker/device/deferred_releases.h"
#include "worker/device/devices.h"
#include "worker/device/placement.h"
#include "worker/device/shown.h"
#include "worker/device/stream_slots.h"
#include "worker/device/usage.h"
#include "worker/partitions/session_group.h"
#include "worker/partitions/sm_partitions.h"
#include "worker/recording/recorder.h"

namespace openmps::worker {

// The limits of a session.
struct SessionLimits {
  Rank rank = Rank::kNormal;
  wire::ClientLimits client;                      // as the server granted them
  std::array<uint32_t, wire::kMaxDevices> sms{};  // of each device, by these limits; 0: all
  uint32_t reservation = 0;  // the number of the reservation whose SMs it uses; 0: none
};

struct SessionInfo {
  uint32_t id = 0;
  uint32_t window = 0;
  uint32_t client_pid = 0;
  wire::Adoption adoption = wire::Adoption::kNone;
  wire::Replay replay = wire::Replay::kCopies;
  SessionLimits limits;                 // at the session's start
  std::shared_ptr<SessionGroup> group;  // null: the session is in no group
  std::string command;

  [[nodiscard]] bool is_adopted() const { return adoption != wire::Adoption::kNone; }
};

// Increment the session's wake word and wake the client's threads that wait on it. Any thread.
void wake_client(wire::ChannelHeader& header);

class SessionCore {
 public:
  // `cold`: null: there is no cold lane. `partitions`: null: the session has all SMs. `slots`: of
  // the main contexts; null: stream slots of that device are not counted.
  SessionCore(const Clock& clock, const DriverTable& driver, const Devices& devices,
              ContextGate& gate, ColdLanes* cold, SmPartitions* partitions,
              const PerDevice<std::shared_ptr<StreamSlots>>& slots, const UsageRows& usage,
              SessionInfo info);
  ~SessionCore();
  SessionCore(const SessionCore&) = delete;
  SessionCore& operator=(const SessionCore&) = delete;

  [[nodiscard]] uint64_t window_base() const { return wire::window_base(info.window); }
  [[nodiscard]] uint64_t device_end() const { return window_base() + wire::kDeviceBytes; }
  [[nodiscard]] uint64_t window_end() const { return window_base() + wire::kWindowBytes; }

  // A violation: there is no device of that index.
  [[nodiscard]] Status check_device(uint32_t device) const;
  // The context of a placement. That of the cold lane exists once something has been placed there.
  [[nodiscard]] CUcontext context(const Placement& place) const;
  // Make the placement's context current on this thread, unless it is.
  Status use(const Placement& place);
  Status use(uint32_t device) { return use(Placement{device}); }
  // The placement whose context is current on this thread.
  [[nodiscard]] const Placement& current() const { return current_; }

  // Take stream slots for so many streams, or branches of executable graphs, in the placement's
  // context, also if there are fewer: then the driver waits for all work of the context when it
  // makes the streams. All functions that take slots throw std::bad_alloc.
  StreamSlot take_slots(const Placement& place, uint32_t count = 1);
  // How many of the slots a session leaves to others: a session with few streams, or executable
  // graphs, takes the last ones. Few are as many streams as PyTorch makes for each priority.
  enum class Leaves { kNone, kQuarter };
  static constexpr size_t kFew = 32;
  static constexpr Leaves leaves(size_t has) {
    return has <= kFew ? Leaves::kNone : Leaves::kQuarter;
  }
  // Take slots only if there are so many beyond those that are left to others. False: there are
  // not; more are made at the next quiescence.
  [[nodiscard]] bool take_free_slots(const Placement& place, uint32_t count, Leaves leaves,
                                     StreamSlot* taken);
  // Take slots, and wait for the quiescence in which more are made if need be. Not between the
  // gate's enter() and leave(). CUDA_ERROR_NOT_READY: the session stops;
  // CUDA_ERROR_MPS_SERVER_NOT_READY: the gate has given up.
  Status await_slots(const Placement& place, uint32_t count, Leaves leaves, StreamSlot* taken);

  // Release an executable graph whose launches have ended (DeferredReleases::add_graph()). Keeps
  // `part`, the green context of its kernels, and `slots` until then.
  void release_graph(uint32_t device, CUgraphExec exec, uint64_t nodes,
                     const std::shared_ptr<const void>& part, const StreamSlot& slots) noexcept;

  // The session's limits from now on, and now. Any thread.
  void change(const SessionLimits& limits);
  [[nodiscard]] wire::ClientLimits limits() const {
    const MutexLock lock(limits_mutex_);
    return limits_;
  }

  // The session changes what it shares with later clients until a new worker starts: the device's
  // heap, limits.
  void taint() {
    is_tainted_ = true;
    view.header().tainted.store(1, std::memory_order_release);
  }
  [[nodiscard]] bool is_tainted() const { return is_tainted_; }

  // Null: the session is in no group.
  [[nodiscard]] SessionGroup* group() const { return info.group.get(); }

  // The priority of a driver's stream for that which the program has asked for.
  [[nodiscard]] int32_t driver_priority(uint32_t device, int32_t asked) const {
    const Device& on = devices.at(device);
    return worker::driver_priority(rank.load(std::memory_order_relaxed), asked, on.least_priority,
                                   on.greatest_priority);
  }

  // Bytes of the staging arena that a command names; null: not all of them are in the arena.
  [[nodiscard]] unsigned char* staged(uint64_t address, uint64_t bytes) const {
    const uint64_t offset = address - (device_end() + wire::kStagingOffset);
    const bool inside = bytes <= wire::kStagingBytes && offset <= wire::kStagingBytes - bytes;
    return inside ? view.staging() + offset : nullptr;
  }
  // The address is in the host part of the session's window.
  [[nodiscard]] bool is_host(uint64_t address) const {
    return address >= device_end() && address < window_end();
  }
  // The device address of a host address in the registered part of the channel.
  [[nodiscard]] CUdeviceptr device_address(const void* host) const {
    return reinterpret_cast<CUdeviceptr>(host) + channel_delta;
  }
  // The device address of any address that a command names: only those of the channel may differ.
  [[nodiscard]] CUdeviceptr device_address(uint64_t address) const;

  const Clock& clock;
  const DriverTable& driver;
  const Devices& devices;
  ContextGate& gate;
  GateClient gate_client;
  GateClient cold_gate_client;                                  // of the cold lane's gate
  ColdLanes* const cold;                                        // null: there is none
  ContextGate* const cold_gate;                                 // null: there is no cold lane
  const std::shared_ptr<Bell> bell = std::make_shared<Bell>();  // its executor's
  Background background;
  const SessionInfo info;
  // As the last change() said.
  std::atomic<Rank> rank{info.limits.rank};
  std::atomic<float> weight{0};       // as the last change() said; 0: none is stated
  std::atomic<float> work_time_s{0};  // as the last change() said; 0: no limit
  SessionUsage usage;
  Recorder::Member* recorded = nullptr;  // null: the session can't be recorded
  uint64_t command_end = 0;  // of the command that is executed, in its ring; 0: it is in none
  wire::ChannelView view;    // set once the host file is mapped
  Journal journal;
  ShownValues shown_values{view};
  ShownReturns shown_returns{view};
  DeferredReleases releases{driver, gate, gate_client, bell, shown_returns};
  DeviceParts parts;
  ChannelPages pages{driver, devices, gate, gate_client, releases};
  // 0 where a device uses the host's pointers for registered memory, as all current GPUs do.
  uint64_t channel_delta = 0;
  // Texture and surface objects of the session, whose handles belong to the main context: while
  // there are any, the session's code runs there. Modules that can't leave the cold context: while
  // there are any, the session gets no such objects.
  uint32_t image_objects = 0;
  uint32_t cold_homes = 0;

 private:
  // Null: slots are not counted there.
  [[nodiscard]] std::shared_ptr<StreamSlots> slots(const Placement& place) const;
  // Have more made at the next quiescence if few are left.
  void make_more_slots(const Placement& place, const std::shared_ptr<StreamSlots>& slots) noexcept;

  mutable Mutex limits_mutex_{LockRank::kSessionLimits};
  wire::ClientLimits limits_;
  const PerDevice<std::shared_ptr<StreamSlots>>& main_slots_;
  static constexpr uint32_t kNoDevice = ~0u;
  Placement current_{kNoDevice};
  bool is_tainted_ = false;
};

}  // namespace openmps::worker
