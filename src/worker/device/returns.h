// SPDX-License-Identifier: Apache-2.0
// What a session gives back by driver calls that wait for all work of the shared context (arrays,
// host pages, green contexts; docs/decisions/0013). Such a call has to find a quiet moment: this
// one, or another thread looks for it, so that the session's executor goes on. Calls are made in
// the order in which they came. Session's thread, but for the calls.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <utility>

#include "api/driver_table.h"
#include "worker/device/background.h"
#include "worker/device/context_gate.h"

namespace openmps::worker {

class Returns {
 public:
  Returns(const DriverTable& driver, ContextGate& gate, std::shared_ptr<Bell> bell)
      : driver_(driver), gate_(gate), bell_(std::move(bell)) {}

  // Make `call`, which waits for the work of `device` (or ContextGate::kAllDevices), with `context`
  // current, and then `done` on the session's thread. `call` keeps alive what it uses. Throws
  // std::bad_alloc before anything has happened.
  void add(GatedCall what, uint32_t device, CUcontext context, std::function<CUresult()> call,
           std::function<void()> done);
  // `done` of the calls that have been made. The bell rings when there is one.
  void sweep();
  [[nodiscard]] bool empty() const { return waiting_.empty(); }
  // Until every call has been made: the session ends, or needs what they give back.
  void finish();

 private:
  struct Return {
    std::atomic<bool> made{false};
    std::function<void()> done;
  };

  const DriverTable& driver_;
  ContextGate& gate_;
  const std::shared_ptr<Bell> bell_;
  std::deque<std::shared_ptr<Return>> waiting_;
  // Not the one that compiles: who waits for code does not wait for a quiet moment.
  Background background_;
};

}  // namespace openmps::worker
