// SPDX-License-Identifier: Apache-2.0
// Turns and the attribution of text. See kernel_output.h.
#include "worker/kernel_output.h"

#include <time.h>

#include <algorithm>
#include <string>

#include "base/clock.h"
#include "worker/driver_check.h"

namespace openmps::worker {
namespace {

// A session keeps the turn for about this long while others wait, so that not every launch of two
// busy sessions is a change: a change costs the wait for the kernels in flight.
constexpr uint64_t kTurnNs = 2'000'000;
// Between sessions that both have printed the turn is waited for, unless it takes this long: their
// kernels may wait for each other.
constexpr uint64_t kLongestWaitNs = 10'000'000'000;
// With a session that has never printed: most kernels that could print never do (NCCL's wait for
// kernels of other processes), so this must not hurt.
constexpr uint64_t kSuspectWaitNs = 20'000'000;
constexpr timespec kPause{0, 20'000};  // about a small kernel

// What the driver says of a failed assert(): "FILE:LINE: FUNCTION: block: [...], thread: [...]
// Assertion `...` failed."
constexpr std::string_view kAssertion = "Assertion `";
// Only what is near the end can be about the fault that is being looked at.
constexpr size_t kMostFailures = 64u << 10;

}  // namespace

void KernelOutput::add(Client& client) {
  const std::lock_guard lock(mutex_);
  client.registered = true;
  clients_.push_back(&client);
}

void KernelOutput::remove(Client& client) {
  const std::lock_guard lock(mutex_);
  if (!client.registered) return;
  settle(client);
  for (const Client::Mark& mark : client.marks) {
    client.driver->cuCtxSetCurrent(client.devices->at(mark.device).context);
    client.driver->cuEventDestroy_v2(mark.event);
  }
  client.marks.clear();
  std::erase(clients_, &client);
  client.registered = false;
}

// Find out which of its kernels have finished and have the driver print what they wrote: a
// synchronisation that returns at once. Who has none left gives the turn back. mutex_ is held.
bool KernelOutput::settle(Client& client) {
  bool done = !client.launching;
  for (Client::Mark& mark : client.marks) {
    if (!mark.open) continue;
    if (client.driver->cuEventQuery(mark.event) == CUDA_ERROR_NOT_READY) {
      done = false;
      continue;
    }
    client.driver->cuEventSynchronize(mark.event);
    mark.open = false;
  }
  if (client.holds) distribute();  // before the turn goes: it is this session's text
  client.holds = client.holds && !done;
  return done;
}

// mutex_ is held. Among several holders (see begin()) those that have printed before did it.
void KernelOutput::distribute() {
  const ProcessOutput::Text text = process_.take();
  failures_ += text.error;
  if (failures_.size() > kMostFailures) failures_.erase(0, failures_.size() - kMostFailures);
  if (text.output.empty()) return;
  const bool any_printer = std::any_of(clients_.begin(), clients_.end(), [](const Client* client) {
    return client->holds && client->texts.load(std::memory_order_relaxed) != 0;
  });
  for (Client* client : clients_) {
    if (!client->holds) continue;
    if (any_printer && client->texts.load(std::memory_order_relaxed) == 0) continue;
    client->ring.put(wire::OutputKind::kOutput, text.output);
    client->texts.fetch_add(1, std::memory_order_relaxed);
  }
}

// Nobody else holds the turn. Else *printer says whether one of those who do has printed before.
// mutex_ is held.
bool KernelOutput::is_free_for(const Client& client, bool* printer) {
  bool free = true;
  for (Client* other : clients_) {
    if (other == &client || !other->holds || settle(*other)) continue;
    free = false;
    *printer |= other->texts.load(std::memory_order_relaxed) != 0;
  }
  return free;
}

void KernelOutput::begin(Client& client, bool quiet, const std::atomic<bool>& stop) {
  std::unique_lock lock(mutex_);
  const uint64_t start = now_ns();
  const bool keeps = client.holds && (waiting_.empty() || start - client.since_ns < kTurnNs);
  if (!keeps && !quiet) {
    waiting_.push_back(&client);
    for (;;) {
      bool printer = false;
      if (is_free_for(client, &printer) && waiting_.front() == &client) break;
      const bool both = printer && client.texts.load(std::memory_order_relaxed) != 0;
      const uint64_t limit = both ? kLongestWaitNs : kSuspectWaitNs;
      if (now_ns() - start > limit || stop.load(std::memory_order_acquire)) break;
      lock.unlock();
      nanosleep(&kPause, nullptr);
      lock.lock();
    }
    std::erase(waiting_, &client);
    client.holds = false;  // a turn begins anew
  }
  if (!client.holds) client.since_ns = now_ns();
  client.holds = true;
  client.launching = true;
}

void KernelOutput::cancel(Client& client) {
  const std::lock_guard lock(mutex_);
  client.launching = false;
}

Status KernelOutput::mark(Client& client, CUstream stream, uint32_t device) {
  const std::lock_guard lock(mutex_);
  client.launching = false;
  Client::Mark* chosen = nullptr;
  for (Client::Mark& mark : client.marks) {
    if (mark.device != device) continue;
    if (mark.open && mark.stream == stream) {
      chosen = &mark;
      break;
    }
    if (!mark.open) chosen = &mark;
  }
  if (chosen == nullptr) {
    Client::Mark made{stream, device, nullptr, false};
    OPENMPS_RETURN_IF_ERROR(
        check(client.driver->cuEventCreate(&made.event, CU_EVENT_DISABLE_TIMING),
              "cuEventCreate of a printing kernel"));
    client.marks.push_back(made);
    chosen = &client.marks.back();
  }
  chosen->stream = stream;
  OPENMPS_RETURN_IF_ERROR(check(client.driver->cuEventRecord(chosen->event, stream),
                                "cuEventRecord of a printing kernel"));
  chosen->open = true;
  return Status();
}

bool KernelOutput::flush(Client& client) {
  const std::lock_guard lock(mutex_);
  return client.registered && !settle(client);
}

void KernelOutput::context_lost(const DriverTable& driver, const Devices& devices,
                                CUresult result) {
  const std::lock_guard lock(mutex_);
  // A lost context has nothing left to wait for: this returns at once, with the last words.
  for (uint32_t i = 0; i < devices.count(); ++i) {
    size_t free = 0;
    size_t total = 0;
    driver.cuCtxSetCurrent(devices.at(i).context);
    if (is_sticky(driver.cuMemGetInfo_v2(&free, &total))) driver.cuCtxSynchronize();
  }
  distribute();
  if (result != CUDA_ERROR_ASSERT) return;
  std::string lines;
  for (size_t begin = 0; begin < failures_.size();) {
    const size_t end = std::min(failures_.find('\n', begin), failures_.size() - 1) + 1;
    const std::string_view line = std::string_view(failures_).substr(begin, end - begin);
    if (line.find(kAssertion) != std::string_view::npos) lines += line;
    begin = end;
  }
  for (Client* client : clients_) {
    if (client->asserts) client->ring.put(wire::OutputKind::kError, lines);
  }
}

}  // namespace openmps::worker
