// SPDX-License-Identifier: Apache-2.0
// See returns.h.
#include "worker/device/returns.h"

#include <new>
#include <utility>

#include "worker/device/in_context.h"

namespace openmps::worker {

void Returns::add(const GivenUp& given_up, GatedCall what, uint32_t device, CUcontext context,
                  std::function<CUresult()> call, std::function<void()> done, Order order) {
  sweep();
  // The caller has made the context current. To look holds nobody back. What can't be given back
  // stays until the worker is renewed.
  const bool at_once = order == Order::kAny && waiting_.empty();
  if (at_once && gate_.run_quiescent({what, device, nullptr, Patience::kOneHold}, call)) {
    return done();
  }
  auto made = std::make_shared<Return>();
  made->done = std::move(done);
  waiting_.push_back({made, {shown_, given_up, wire::ReturnWait::kQuietMoment}});
  try {
    gate_.defer(
        what, device,
        [&driver = driver_, bell = bell_, kept = kept_, context, call = std::move(call), made] {
          CUresult result = CUDA_SUCCESS;
          {
            // After a fault a context may refuse to become current; releasing is tried all the
            // same.
            const InContext current(driver, context);
            result = call();
          }
          made->made.store(true, std::memory_order_release);
          bell->ring();
          return result;
        },
        ContextGate::Urgency::kSoon);
  } catch (const std::bad_alloc&) {
    waiting_.pop_back();
    throw;
  }
}

void Returns::sweep() {
  std::erase_if(waiting_, [](const auto& waiting) {
    if (!waiting.made->made.load(std::memory_order_acquire)) return false;
    waiting.made->done();
    return true;
  });
}

bool Returns::wait() {
  const size_t before = waiting_.size();
  gate_.wait_until([this] { return sweep(), waiting_.empty(); }, &gate_client_);
  return waiting_.size() < before;
}

void Returns::end() {
  waiting_.clear();
  kept_.reset();
}

}  // namespace openmps::worker
