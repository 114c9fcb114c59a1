// SPDX-License-Identifier: Apache-2.0
// See returns.h.
#include "worker/device/returns.h"

#include <new>
#include <utility>

namespace openmps::worker {

void Returns::add(GatedCall what, uint32_t device, CUcontext context,
                  std::function<CUresult()> call, std::function<void()> done) {
  sweep();
  CUresult ignored = CUDA_SUCCESS;  // what can't be given back stays until the worker is renewed
  // The caller has made the context current. To look holds nobody back.
  if (waiting_.empty() && gate_.run_soon(what, device, nullptr, 0, &ignored, call)) return done();
  auto made = std::make_shared<Return>();
  made->done = std::move(done);
  waiting_.push_back(made);
  try {
    background_.run([&driver = driver_, &gate = gate_, bell = bell_, what, device, context,
                     call = std::move(call), made] {
      // After a fault a context may refuse to become current; releasing is tried all the same.
      driver.cuCtxSetCurrent(context);
      try {
        gate.run(what, device, call);
      } catch (const std::bad_alloc&) {
        // It stays until the worker is renewed.
      }
      made->made.store(true, std::memory_order_release);
      made->made.notify_all();
      bell->ring();
    });
  } catch (const std::bad_alloc&) {
    waiting_.pop_back();
    throw;
  }
}

void Returns::sweep() {
  while (!waiting_.empty() && waiting_.front()->made.load(std::memory_order_acquire)) {
    waiting_.front()->done();
    waiting_.pop_front();
  }
}

void Returns::finish() {
  for (const auto& waiting : waiting_) waiting->made.wait(false, std::memory_order_acquire);
  sweep();
}

}  // namespace openmps::worker
