// SPDX-License-Identifier: Apache-2.0
// See session_parts.h.
#include "worker/session/session_parts.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/adaptive_wait.h"
#include "worker/device/log.h"

namespace openmps::worker {
namespace {

// Between two looks at what a closing session still does: from about the length of a small kernel
// to a tick that costs nothing.
constexpr WaitPlan kDrainPlan{.nap_until_ns = kNever, .nap = {20'000, 2'000'000}};
// Between two looks at pending releases, each of which costs one event query.
constexpr uint64_t kReleaseLookNs = 1'000'000;
// Between two looks at work that is not known to have ended: what ends is known to have ended when
// the driver reports a fault, 90 ms after it at the soonest (decision 42), after which it answers
// no more.
constexpr uint64_t kEndLookNs = 25'000'000;
// Between two looks whether code can move from the cold context to the main one.
constexpr uint64_t kMoveLookNs = 100'000'000;
// A session that drains for longer gets a line in the log.
constexpr uint64_t kSlowDrainNs = 10'000'000'000;

// Null: hardware-queue credits are not counted.
PerDevice<QueueCredits>* credits_of(WorkerParts& worker) {
  return worker.performance.connections ? &worker.credits : nullptr;
}

}  // namespace

SessionParts::SessionParts(const DriverTable& driver, const Devices& devices, ContextGate& gate,
                           WorkerParts& worker, SessionInfo info)
    : pressure(worker.pressure),
      core(worker.clock, driver, devices, gate, worker.cold.get(), worker.partitions.get(),
           worker.slots, worker.usage, std::move(info)),
      memory(core, worker.addresses, worker.kept_memory, worker.keeper.get(), worker.store,
             worker.pressure),
      greens(core, memory, worker.descriptors),
      streams(core, worker.shares, credits_of(worker), worker.performance.budgets,
              worker.performance.holds_waits),
      ipc_commands(core, worker.exchange, memory, events),
      modules(core, memory, worker.images, worker.memory.get()),
      prints(core, worker.output, modules, stop),
      fences(core, waits, credits_of(worker)),
      backlog(core, streams, admission, worker.value_watch.get()),
      batch(worker.performance.batches),
      limits(core, memory, worker.limits) {
  memory.gives_up = [this] {
    // The server takes a session that says nothing for one that hangs.
    const uint64_t leaves_by = leaves_by_ns.load(std::memory_order_relaxed);
    if (leaves_by != 0 && core.clock.now_ns() >= leaves_by) {
      stay("it waits for memory, or moves it");
    }
    return stop.load(std::memory_order_relaxed) || hands_over.load(std::memory_order_relaxed);
  };
  if (worker.recorder != nullptr) {
    core.recorded =
        &recorded.emplace(*worker.recorder, core.info.id, core.info.client_pid, core.info.command);
  }
  core.gate_client.stop = &stop;
  core.cold_gate_client.stop = &stop;
}

uint64_t SessionParts::service() {
  streams.sweep_retired();
  waits.sweep();
  core.releases.sweep();
  const uint64_t now = core.clock.now_ns();
  const uint64_t moves_ns = modules.plan_moves(now);
  const uint64_t next = memory.give_back_old();
  const uint64_t store_ns = memory.give_back_store();
  uint64_t longest = core.releases.waits_for_work() ? kReleaseLookNs : ~0ull;
  if (core.journal.is_open() && streams.look_for_ends()) longest = std::min(longest, kEndLookNs);
  core.gate.run_deferred();
  if (core.cold != nullptr) core.cold_gate->run_deferred();
  if (modules.has_cold_code() && core.gate.has_deferred()) longest = std::min(longest, kMoveLookNs);
  for (const uint64_t due : {next, moves_ns, store_ns}) {
    if (due != 0) longest = std::min(longest, due > now ? due - now : 1);
  }
  return longest;
}

bool SessionParts::is_idle() {
  const bool idle = streams.idle() && !streams.has_lost_context();
  if (idle) streams.end_budgets(core.clock.now_ns());
  return idle && backlog.empty() && !streams.has_streams_to_look_at() && waits.size() == 0 &&
         core.releases.empty();
}

std::string_view SessionParts::keeps_from_leaving() {
  if (const std::string_view why = core.journal.stays(); !why.empty()) return why;
  if (!core.journal.is_open()) return "it has no journal";
  if (greens.has_given()) return "it has asked for SM resources";
  if (!physical.inbox.empty()) return "a descriptor is on its way";
  return is_quiet() ? "" : kBusy;
}

bool SessionParts::is_quiet() {
  waits.sweep();
  return pending.empty() && batch.empty() && backlog.empty() && streams.idle() &&
         !streams.has_streams_to_look_at() && fences.passed() && words.idle();
}

void SessionParts::drain() {
  const uint64_t slow_from_ns = core.clock.now_ns() + kSlowDrainNs;
  bool is_logged = false;
  batch.clear();
  backlog.drop();
  AdaptiveWait wait(core.clock, kDrainPlan);
  while (!streams.idle()) {
    if (fences.pass_all_waits()) wait.restart();
    if (!is_logged && core.clock.now_ns() > slow_from_ns) {
      is_logged = true;
      log("Session " + std::to_string(core.info.id) + " (client " +
          std::to_string(core.info.client_pid) + ") still waits for its last work to end");
    }
    wait.pause();
  }
  wait.restart();
  while (!fences.passed() || !words.idle()) wait.pause();
}

// Each part is released before the parts that it uses: executable graphs hold functions, streams
// hold everything.
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
  core.releases.release_all();
  greens.release_all();
  core.parts.release_all();
  prints.release_all();
  links.release_all();
  modules.release_all();
  arrays.release_all();
  physical.release_all();
  memory.release_all();
  core.releases.end();
}

}  // namespace openmps::worker
