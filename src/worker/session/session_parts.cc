// SPDX-License-Identifier: Apache-2.0
// Waiting for a session's work, and giving back what it holds. See session_parts.h.
#include "worker/session/session_parts.h"

#include <algorithm>
#include <ctime>
#include <string>
#include <utility>

#include "base/clock.h"
#include "worker/device/log.h"

namespace openmps::worker {
namespace {

// Pauses between two looks: from about the length of a small kernel to a tick that costs nothing.
constexpr uint64_t kShortestPauseNs = 20'000;
constexpr uint64_t kLongestPauseNs = 2'000'000;
// How late what has been given up may go. While something waits to, a look costs one event query.
constexpr uint64_t kRetirementLookNs = 1'000'000;
// How soon code that runs in the cold lane is to move if nothing happens.
constexpr uint64_t kMoveLookNs = 100'000'000;
// When a session that drains gets a line in the log.
constexpr uint64_t kSlowDrainNs = 10'000'000'000;

void pause(uint64_t* ns) {
  const timespec time{0, static_cast<long>(*ns)};
  nanosleep(&time, nullptr);
  *ns = std::min(2 * *ns, kLongestPauseNs);
}

// Null: hardware-queue credits are not counted.
PerDevice<QueueCredits>* credits_of(WorkerParts& worker) {
  return worker.performance.connections ? &worker.credits : nullptr;
}

}  // namespace

SessionParts::SessionParts(const DriverTable& driver, const Devices& devices, ContextGate& gate,
                           WorkerParts& worker, SessionInfo info)
    : core(driver, devices, gate, worker.cold.get(), worker.partitions.get(), worker.slots,
           worker.usage, std::move(info)),
      memory(core, worker.addresses, worker.kept_memory),
      greens(core, memory, worker.descriptors),
      streams(core, worker.shares, credits_of(worker), worker.performance.windows,
              worker.performance.holds_waits),
      ipc_commands(core, worker.exchange, memory, events),
      modules(core, memory, retirement, worker.images, worker.memory.get(),
              worker.performance.parallel_facts),
      prints(core, worker.output, modules, stop),
      fences(core, waits, credits_of(worker)),
      backlog(core, streams, words, worker.value_watch.get(), credits_of(worker)),
      batch(worker.performance.batches),
      limits(core, memory, worker.limits) {
  core.gate_client.stop = &stop;
  core.cold_gate_client.stop = &stop;
}

uint64_t SessionParts::service() {
  streams.sweep_retired();
  waits.sweep();
  retirement.sweep();
  core.returns.sweep();
  const uint64_t now = now_ns();
  const uint64_t moves_ns = modules.tend(now);
  const uint64_t next = memory.give_back_old();
  uint64_t longest = retirement.empty() ? ~0ull : kRetirementLookNs;
  core.gate.tend();
  if (core.cold != nullptr) core.cold->gate.tend();
  if (modules.has_cold_code() && core.gate.has_later()) longest = std::min(longest, kMoveLookNs);
  for (const uint64_t due : {next, moves_ns}) {
    if (due != 0) longest = std::min(longest, due > now ? due - now : 1);
  }
  return longest;
}

bool SessionParts::is_idle() {
  const bool idle = streams.idle();
  if (idle) streams.end_windows(now_ns());
  return idle && backlog.empty() && !streams.looks_after_some() && waits.size() == 0 &&
         retirement.empty() && core.returns.empty();
}

void SessionParts::drain() {
  const uint64_t start = now_ns();
  bool told = false;
  batch.clear();
  backlog.drop();
  uint64_t ns = kShortestPauseNs;
  while (!streams.idle()) {
    if (fences.pass_all_waits()) ns = kShortestPauseNs;
    if (!told && now_ns() - start > kSlowDrainNs) {
      told = true;
      log("Session " + std::to_string(core.info.id) + " (client " +
          std::to_string(core.info.client_pid) + ") still waits for its last work to end");
    }
    pause(&ns);
  }
  ns = kShortestPauseNs;
  while (!fences.passed() || !words.idle()) pause(&ns);
}

// Users before what they use: executable graphs hold functions, streams hold everything.
void SessionParts::release() {
  batch.clear();
  backlog.drop();
  ContextGate::leave(core.gate_client);
  ipc_commands.release_all();
  limits.release_all();
  graphs.release_all();
  events.release_all();
  fences.release_all();
  words.release_all();
  streams.release_all();
  retirement.release_all();
  greens.release_all();
  core.parts.release_all();
  prints.release_all();
  links.release_all();
  modules.release_all();
  arrays.release_all();
  physical.release_all();
  memory.release_all();
  core.returns.end();
}

}  // namespace openmps::worker
