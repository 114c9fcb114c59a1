// SPDX-License-Identifier: Apache-2.0
// Turns and the attribution of text. See kernel_output.h.
#include "worker/printing/kernel_output.h"

#include <algorithm>
#include <string>

#include "worker/device/driver_check.h"
#include "worker/device/log.h"

namespace openmps::worker {
namespace {

// How long a session keeps the turn while others wait, so that the turn does not change with every
// launch of two busy sessions: a change waits for the kernels in flight.
constexpr uint64_t kTurnNs = 2'000'000;
// A session whose kernels have not ended loses the turn to one that has waited this long, if both
// are known to print: some debugging sessions' kernels never end. The text of the two may be mixed
// up from then on, so this is longer than most kernels take.
constexpr uint64_t kLongestWaitNs = 1'000'000'000;
// The bound where one of the two sessions has never printed: most kernels that could print never do
// (NCCL's wait for kernels of other processes), so the wait must be short.
constexpr uint64_t kSuspectWaitNs = 20'000'000;
constexpr uint64_t kPauseNs = 20'000;  // the time of a small kernel
// The most that the time between two looks counts. More is time in which this thread did not run:
// then the kernel, or the thread that was to start it, may not have run either.
constexpr uint64_t kLongestLookNs = 1'000'000;

// The driver's text for a failed assert(): "FILE:LINE: FUNCTION: block: [...], thread: [...]
// Assertion `...` failed."
constexpr std::string_view kAssertion = "Assertion `";
// Only text near the end can be about the fault that is examined.
constexpr size_t kMostFailures = 64u << 10;

}  // namespace

void KernelOutput::add(Client& client) {
  const MutexLock lock(mutex_);
  client.registered = true;
  clients_.push_back(&client);
}

void KernelOutput::remove(Client& client) {
  const MutexLock lock(mutex_);
  if (!client.registered) return;
  collect();
  for (const Client::Mark& mark : client.marks) {
    client.driver->cuCtxSetCurrent(client.devices->at(mark.device).context);
    client.driver->cuEventDestroy_v2(mark.event);
  }
  client.marks.clear();
  std::erase(clients_, &client);
  client.registered = false;
  if (!clients_.empty()) return;
  for (uint32_t i = 0; i < drains_.size(); ++i) {
    if (drains_[i] == nullptr) continue;
    client.driver->cuCtxSetCurrent(client.devices->at(i).context);
    client.driver->cuEventDestroy_v2(drains_[i]);
    drains_[i] = nullptr;
  }
}

// ---- Attribution of text ------------------------------------------------------------------------

// Find out which kernels have finished, have the driver print what was written, and give the text
// to its sessions. A session whose kernels have all finished gives the turn back. mutex_ is held.
void KernelOutput::collect() {
  for (Client* client : clients_) {
    client->running = client->launching;
    client->finished = client->finished_quiet = false;
    for (Client::Mark& mark : client->marks) {
      if (!mark.open) continue;
      if (client->driver->cuEventQuery(mark.event) == CUDA_ERROR_NOT_READY) {
        client->running = true;
        continue;
      }
      client->driver->cuEventSynchronize(mark.event);
      mark.open = false;
      (mark.quiet ? client->finished_quiet : client->finished) = true;
    }
  }
  const ProcessOutput::Text text = process_.take();
  failures_ += text.error;
  if (failures_.size() > kMostFailures) failures_.erase(0, failures_.size() - kMostFailures);
  if (!text.output.empty()) distribute(text.output);
  for (Client* client : clients_) {
    const bool waits = std::any_of(
        client->marks.begin(), client->marks.end(),
        [](const Client::Mark& mark) { return mark.open && !mark.late && !mark.quiet; });
    client->holds = client->holds && (waits || (client->launching && !client->launches_quiet));
  }
}

// The sessions that the text belongs to, by the first criterion that any session meets; they are
// several only after a lost turn, or where kernels run without a turn. mutex_ is held.
void KernelOutput::distribute(const std::string& text) {
  using Is = bool (*)(const Client&);
  constexpr Is kKinds[] = {
      [](const Client& c) { return c.finished; },
      [](const Client& c) { return c.holds; },
      [](const Client& c) {
        return (c.running || c.finished_quiet) && c.texts.load(std::memory_order_relaxed) != 0;
      },
      [](const Client& c) { return c.finished_quiet; },
      [](const Client& c) { return c.running; },
  };
  for (const Is is : kKinds) {
    bool any = false;
    for (Client* client : clients_) {
      if (!is(*client)) continue;
      any = true;
      client->ring.put(wire::OutputKind::kOutput, text);
      client->texts.fetch_add(1, std::memory_order_relaxed);
    }
    if (any) return;
  }
}

// Have the driver print what the client's kernels have written so far, also unfinished ones.
void KernelOutput::drain(const Client& client) {
  for (const Client::Mark& mark : client.marks) {
    const CUevent event = drains_[mark.device];
    if (mark.open && client.driver->cuEventQuery(event) == CUDA_SUCCESS) {
      client.driver->cuEventSynchronize(event);
    }
  }
}

// ---- Turns --------------------------------------------------------------------------------------

KernelOutput::Client* KernelOutput::other_holder(const Client& client) {
  for (Client* other : clients_) {
    if (other != &client && other->holds) return other;
  }
  return nullptr;
}

// Shows the session that `client` waits for: the one that has the turn, or the first in line.
void KernelOutput::show_wait(const Client& client, const Client* holder) {
  if (client.shown == nullptr) return;
  Hindrances by;
  by.add((holder != nullptr ? holder : waiting_.front())->session, 0, wire::Hindrance::kPrintTurn);
  by.show(*client.shown);
}

// Text that has been printed so far belongs to the session that loses the turn.
void KernelOutput::lose_turn(Client& client, const Client& to) {
  drain(client);
  collect();
  client.holds = false;
  for (Client::Mark& mark : client.marks) mark.late |= mark.open;
  if (client.has_lost) return;
  client.has_lost = true;
  log("Session " + std::to_string(client.session) + " loses its turn to print to session " +
      std::to_string(to.session) +
      ": its kernels that may print have not ended. What both print from now on may reach both");
}

// A session whose kernels have not ended in this time loses the turn to the other.
uint64_t KernelOutput::longest_wait_ns(const Client& holder, const Client& next) {
  const bool both = holder.texts.load(std::memory_order_relaxed) != 0 &&
                    next.texts.load(std::memory_order_relaxed) != 0;
  return both ? kLongestWaitNs : kSuspectWaitNs;
}

void KernelOutput::begin(Client& client, bool quiet, const std::atomic<bool>& stop) {
  const MutexLock lock(mutex_);
  const uint64_t start = clock_.now_ns();
  const bool keeps = client.holds && (waiting_.empty() || start - client.since_ns < kTurnNs);
  client.launches_quiet = quiet && !client.holds;
  if (!keeps && !quiet) {
    waiting_.push_back(&client);
    const ShownWait shown(client.shown, client.usage, start, wire::ExecutorWait::kPrintTurn,
                          wire::HeldFor::kPrintTurn);
    const Client* waited_for = nullptr;
    uint64_t waited_ns = 0;  // for that session, as the first in line
    for (uint64_t last = start;;) {
      collect();
      Client* holder = other_holder(client);
      const bool first = waiting_.front() == &client;
      if (first && holder == nullptr) break;
      show_wait(client, holder);
      const uint64_t now = clock_.now_ns();
      const bool goes_on = first && holder == waited_for;
      waited_ns = goes_on ? waited_ns + std::min(now - last, kLongestLookNs) : 0;
      waited_for = first ? holder : nullptr;
      last = now;
      if (first && waited_ns > longest_wait_ns(*holder, client)) {
        lose_turn(*holder, client);
        break;
      }
      if (stop.load(std::memory_order_acquire)) {
        client.launches_quiet = true;
        break;
      }
      const MutexUnlock unlocked(mutex_);
      clock_.sleep(kPauseNs);
    }
    std::erase(waiting_, &client);
    client.holds = false;  // a new turn begins
  }
  if (!client.launches_quiet && !client.holds) {
    client.holds = true;
    client.since_ns = clock_.now_ns();
  }
  client.launching = true;
}

// The event is in a stream of its own, so it is reached at once whatever runs. The context is
// current.
Status KernelOutput::make_drain(const DriverTable& driver, CUevent* event) {
  CUstream stream = nullptr;
  OPENMPS_RETURN_IF_ERROR(
      check(driver.cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0),
            "cuStreamCreate for what kernels print"));
  CUevent made = nullptr;
  CUresult result = driver.cuEventCreate(&made, CU_EVENT_DISABLE_TIMING);
  if (result == CUDA_SUCCESS) result = driver.cuEventRecord(made, stream);
  driver.cuStreamDestroy_v2(stream);
  if (result == CUDA_SUCCESS) {
    *event = made;
  } else if (made != nullptr) {
    driver.cuEventDestroy_v2(made);
  }
  return check(result, "an event for what kernels print");
}

void KernelOutput::cancel(Client& client) {
  const MutexLock lock(mutex_);
  client.launching = false;
}

Status KernelOutput::mark(Client& client, CUstream stream, uint32_t device) {
  const MutexLock lock(mutex_);
  client.launching = false;
  if (drains_[device] == nullptr) {
    OPENMPS_RETURN_IF_ERROR(make_drain(*client.driver, &drains_[device]));
  }
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
    Client::Mark made{stream, device, nullptr};
    OPENMPS_RETURN_IF_ERROR(
        check(client.driver->cuEventCreate(&made.event, CU_EVENT_DISABLE_TIMING),
              "cuEventCreate of a printing kernel"));
    client.marks.push_back(made);
    chosen = &client.marks.back();
  }
  // A kernel behind a late one of its stream is late, too.
  if (!chosen->open) chosen->late = false;
  chosen->quiet = client.launches_quiet && (!chosen->open || chosen->quiet);
  chosen->stream = stream;
  OPENMPS_RETURN_IF_ERROR(check(client.driver->cuEventRecord(chosen->event, stream),
                                "cuEventRecord of a printing kernel"));
  chosen->open = true;
  return Status();
}

bool KernelOutput::flush(Client& client) {
  const MutexLock lock(mutex_);
  if (!client.registered) return false;
  drain(client);
  collect();
  return client.running;
}

void KernelOutput::context_lost(const DriverTable& driver, std::span<const CUcontext> contexts,
                                CUresult result) {
  const MutexLock lock(mutex_);
  // A lost context has no work to wait for: this returns at once, with the last text.
  for (const CUcontext context : contexts) {
    size_t free = 0;
    size_t total = 0;
    driver.cuCtxSetCurrent(context);
    if (is_sticky(driver.cuMemGetInfo_v2(&free, &total))) driver.cuCtxSynchronize();
  }
  collect();
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
