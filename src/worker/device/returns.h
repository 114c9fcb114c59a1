// SPDX-License-Identifier: Apache-2.0
// What a session gives back by driver calls that wait for all work of the shared context (arrays,
// host pages, green contexts; docs/decisions/0013). Such a call needs a quiet moment: this one, or
// a later one that the gate finds, so that the session's executor goes on and the session can end.
// Session's thread, but for the calls.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <utility>

#include "api/driver_table.h"
#include "worker/device/background.h"
#include "worker/device/context_gate.h"
#include "worker/device/shown.h"

namespace openmps::worker {

class Returns {
 public:
  Returns(const DriverTable& driver, ContextGate& gate, const GateClient& gate_client,
          std::shared_ptr<Bell> bell, ShownReturns& shown)
      : driver_(driver),
        gate_(gate),
        gate_client_(gate_client),
        bell_(std::move(bell)),
        shown_(shown) {}

  // From now on calls keep this alive until they have been made, beyond the session's end.
  void set_kept(std::shared_ptr<const void> kept) { kept_ = std::move(kept); }
  // Make `call`, which waits for the work of `device` (or ContextGate::kAllDevices), with `context`
  // current, and then `done` on the session's thread, if the session lives. `call` keeps alive what
  // it uses. `given_up`: what is shown as given back by it. kBehind: not before what waits for such
  // a moment already. Throws std::bad_alloc before anything has happened.
  enum class Order { kAny, kBehind };
  void add(const GivenUp& given_up, GatedCall what, uint32_t device, CUcontext context,
           std::function<CUresult()> call, std::function<void()> done, Order order = Order::kAny);
  // `done` of the calls that have been made. The bell rings when there is one.
  void sweep();
  [[nodiscard]] bool empty() const { return waiting_.empty(); }
  // The session needs what they give back: until all calls have been made, as long as the gate has
  // patience. False: nothing came back.
  bool wait();
  // The session ends. What has not been given back by now is later.
  void end();

 private:
  struct Return {
    std::atomic<bool> made{false};
    std::function<void()> done;
  };
  // The row is the session's; the call may be made after its end.
  struct Waiting {
    std::shared_ptr<Return> made;
    ShownReturns::Row shown;
  };

  const DriverTable& driver_;
  ContextGate& gate_;
  const GateClient& gate_client_;
  const std::shared_ptr<Bell> bell_;
  ShownReturns& shown_;
  std::shared_ptr<const void> kept_;
  std::deque<Waiting> waiting_;
};

}  // namespace openmps::worker
