// SPDX-License-Identifier: Apache-2.0
// The cold lane: a second context per device, for code that the main context does not have yet.
// Loading code waits inside the driver for all work of the context that it is loaded in, so code
// that is needed while others' work goes on is loaded and run there, at once, and moves to the main
// context in a later quiet moment (docs/decisions/0016). Sessions submit to it through the twins of
// their streams (stream.h). One per worker. Any thread; sessions are noted, and what is made ahead
// is made, by the one that opens them.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

#include "api/driver_table.h"
#include "worker/device/background.h"
#include "worker/device/context_gate.h"
#include "worker/device/devices.h"
#include "worker/device/placement.h"

namespace openmps::worker {

class ColdLanes {
 public:
  // `limits` is held while the limits of a main context are read or changed.
  ColdLanes(const DriverTable& driver, const Devices& devices, std::mutex& limits);
  ~ColdLanes();
  ColdLanes(const ColdLanes&) = delete;
  ColdLanes& operator=(const ColdLanes&) = delete;

  // The first program of a worker has so long to start before the contexts are made, unless another
  // comes: its calls would wait for that (0.65 s on an H200, decision 23).
  static constexpr uint64_t kAloneNs = 1'000'000'000;

  // A session is opened, `alone` or beside others.
  void note_session(bool alone, uint64_t now);
  // When make_ahead() is due, by now_ns(); 0: it is not.
  [[nodiscard]] uint64_t due_ns() const { return due_ns_; }
  // Make the contexts of all devices, in the background: beside work, and memory that sessions have
  // registered, it takes five times as long (0.76 s for 0.14 on an H200).
  void make_ahead();
  // There are several sessions from now on. A program that is alone waits for itself only, as
  // natively.
  void share() { shared_.store(true, std::memory_order_release); }
  // The context, for somebody who is about to load code: waits while it is made. Null: a session
  // is alone, or the context can't be had, which is said in the log once.
  CUcontext want(uint32_t device);
  // The same if it has been made.
  [[nodiscard]] CUcontext context(uint32_t device) const;
  [[nodiscard]] CUcontext context(const Placement& place) const {
    return place.lane == Lane::kCold ? context(place.device) : devices_.at(place.device).context;
  }

  // What streams of that context need.
  [[nodiscard]] const std::shared_ptr<StreamSlots>& slots(uint32_t device) const;

  // A limit that kernels rely on has been raised in the main context, in a quiet moment; its limits
  // are held.
  CUresult set_limit(uint32_t device, CUlimit limit, size_t value) const;

  // Quiet moments of the cold contexts: unloading waits for all work there.
  ContextGate gate;

 private:
  struct State;
  static void make(State& state, uint32_t device);
  void begin_making(uint32_t device);

  const DriverTable& driver_;
  const Devices& devices_;
  std::atomic<bool> shared_{false};
  bool served_ = false;  // some session has been opened
  uint64_t due_ns_ = 0;
  std::shared_ptr<State> state_;
  Background background_;
};

}  // namespace openmps::worker
