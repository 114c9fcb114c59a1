// SPDX-License-Identifier: Apache-2.0
// The cold context: a second context per device, for code that the main context does not have yet.
// Loading code waits in the driver for all work of the context that the code is loaded in. So code
// that is needed while other sessions' work runs is loaded and run in the cold context, at once,
// and moves to the main context in a later quiescence (docs/decisions/0016). Sessions submit to it
// through the cold streams of their streams (stream.h). One object per worker. Any thread;
// note_session() and make_ahead() are the main thread's.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "api/driver_table.h"
#include "base/mutex.h"
#include "worker/device/background.h"
#include "worker/device/context_gate.h"
#include "worker/device/devices.h"
#include "worker/device/placement.h"

namespace openmps::worker {

class ColdLanes {
 public:
  // `limits` is held while the limits of a main context are read or changed.
  ColdLanes(const DriverTable& driver, const Devices& devices, Mutex& limits);
  ~ColdLanes();
  ColdLanes(const ColdLanes&) = delete;
  ColdLanes& operator=(const ColdLanes&) = delete;

  // The contexts are made this long after the first session of a worker, or with the second one:
  // the calls of a program that starts would wait for that (0.65 s on an H200, decision 23).
  static constexpr uint64_t kAloneNs = 1'000'000'000;
  // After sessions have moved here, so that all of them go on first. Until then code is loaded in
  // the main contexts, also that of new sessions.
  static constexpr uint64_t kAdoptedNs = 3'000'000'000;

  // A session is opened, `alone` or beside others. `is_adopted`: it has been another worker's, and
  // goes on before the contexts are made.
  void note_session(bool alone, bool is_adopted, uint64_t now);
  // When make_ahead() is due, by now_ns(); 0: never.
  [[nodiscard]] uint64_t due_ns() const { return due_ns_; }
  // A spare worker's are made while nobody uses it, but not where it is needed as soon as it is
  // there: that would make the sessions that move here wait.
  static constexpr uint64_t kSpareNs = 500'000'000;
  void make_later(uint64_t now) { due_ns_ = now + kSpareNs; }
  // Make the contexts of all devices, in the background. Later, beside running work and registered
  // memory, that takes five times as long (0.76 s instead of 0.14 on an H200).
  void make_ahead();
  // From now on there are several sessions. A program that is alone waits for its own work only, as
  // natively, and needs no cold context.
  void share() { shared_.store(true, std::memory_order_release); }
  // The context, for a session that is about to load code: waits while the context is made. Null:
  // the session is alone, or the context can't be made, which the log says once.
  CUcontext want(uint32_t device);
  // The context if it has been made, else null.
  [[nodiscard]] CUcontext context(uint32_t device) const;
  [[nodiscard]] CUcontext context(const Placement& place) const {
    return place.lane == Lane::kCold ? context(place.device) : devices_.at(place.device).context;
  }

  // The stream slots of that context.
  [[nodiscard]] const std::shared_ptr<StreamSlots>& slots(uint32_t device) const;

  // Raise a limit that has been raised in the main context, in quiescence. The caller holds the
  // mutex of the limits.
  CUresult set_limit(uint32_t device, CUlimit limit, size_t value) const;

  // The gate of the cold contexts: unloading waits for all work there.
  ContextGate gate;

 private:
  struct State;
  static void make(State& state, uint32_t device);
  void begin_making(uint32_t device);

  const DriverTable& driver_;
  const Devices& devices_;
  std::atomic<bool> shared_{false};
  bool served_ = false;       // a session has been opened
  bool is_begun_ = false;     // make_ahead() has been called
  bool shares_then_ = false;  // there are several sessions, but not before make_ahead()
  uint64_t due_ns_ = 0;
  std::shared_ptr<State> state_;
  Background background_;
};

}  // namespace openmps::worker
