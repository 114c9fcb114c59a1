// SPDX-License-Identifier: Apache-2.0
// openmps-server: sessions that outlive their worker (docs/decisions/0042).
#include "server/recovery.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "base/clock.h"
#include "base/text.h"
#include "server/answers.h"
#include "server/server.h"
#include "wire/kept.h"
#include "wire/message.h"

namespace openmps::server {
namespace {

std::string text_of(const wire::HandedOver& over) {
  if (field_text(over.kernel).empty()) return "a launch that failed";
  const std::string kernel = printable(field_text(over.kernel));
  const auto stream = static_cast<unsigned long long>(over.stream);
  if (over.grid[0] == 0) return format_text("%s, stream %llu", kernel.c_str(), stream);
  return format_text("kernel %s, grid %ux%ux%u, block %ux%ux%u, stream %llu", kernel.c_str(),
                     over.grid[0], over.grid[1], over.grid[2], over.block[0], over.block[1],
                     over.block[2], stream);
}

std::string command_of(const Session& session) {
  return printable(field_text(session.admit.hello.command));
}

}  // namespace

// ---- A worker is lost ---------------------------------------------------------------------------

bool Server::note_worker_lost(Domain& domain) {
  const uint64_t now = now_ns();
  std::deque<uint64_t>& lost = domain.lost_at_ns;
  lost.push_back(now);
  while (now - lost.front() > kTakeoverPeriodMs * kNsPerMs) lost.pop_front();
  return wire::takes_over() && lost.size() <= kMostTakeovers;
}

void Server::on_worker_lost(Worker& worker, const wire::WorkerLost& lost) {
  if (!note_worker_lost(*worker.domain) || worker.state == WorkerState::kLost) {
    wire::SessionFault fault{.result = lost.result};
    fill_field(fault.reason, field_text(lost.reason));
    on_context_lost(worker, fault);
    return;
  }
  const std::string reason = printable(field_text(lost.reason));
  log_.write(format_text("Server is handling a fatal GPU error: CUDA error %u: %s (worker %d)",
                         lost.result, reason.c_str(), static_cast<int>(worker.process->pid())));
  Takeover& takeover = *takeovers_.emplace_back(std::make_unique<Takeover>());
  takeover.worker = &worker;
  takeover.reason = reason;
  takeover.stands_still = lost.stands_still != 0;
  takeover.recovery = std::make_shared<Recovery>();
  takeover.recovery->began_ns = now_ns();
  takeover.recovery->result = static_cast<CUresult>(lost.result);
  for (const uint32_t id : sessions_.ids_of(worker)) {
    Session& session = *sessions_.find(id);
    if (session.state == SessionState::kOpening) {
      open_again(session);
    } else if (session.state == SessionState::kMoving) {
      // It was being made again: its journal is as it was.
      loop_.cancel(std::exchange(session.adoption_timer, 0));
      session.leave_worker();
      session.adoption = wire::Adoption::kFound;  // that worker may have changed what it found
      if (session.tries < kMostTries) continue;
      lose(session, CUDA_ERROR_MPS_RPC_FAILURE, "the worker that made it again is lost as well");
      forget_session(id);
    } else if (session.state == SessionState::kActive) {
      begin_move(session, wire::Adoption::kHandedOver, takeover.recovery);
      takeover.awaited.insert(id);
      ++takeover.sessions;
    } else {
      ++takeover.sessions;
    }
  }
  workers_.on_lost(worker);
  if (takeover.awaited.empty()) {
    judge(takeover);
  } else {
    takeover.timer =
        loop_.call_after(kHandOverMs, [this, &takeover] { takeover.timer = 0, judge(takeover); });
  }
}

Takeover* Server::takeover_of(const Worker& worker) const {
  const auto found = std::ranges::find_if(
      takeovers_, [&worker](const auto& takeover) { return takeover->worker == &worker; });
  return found == takeovers_.end() ? nullptr : found->get();
}

Status Server::on_handed_over(Worker& worker, const wire::HandedOver& over) {
  Takeover* const takeover = takeover_of(worker);
  Session* const session = session_of(worker, over.session);
  if (session != nullptr && session->is_leaving && takeover == nullptr) {
    on_left(*session, over);
    return Status();
  }
  // It was on its way when the worker was lost: the word on that follows.
  if (over.outcome == wire::Outcome::kStays) return Status();
  if (over.outcome == wire::Outcome::kComing) {
    if (takeover != nullptr) takeover->coming.insert(over.session);
    return Status();
  }
  if (takeover == nullptr || session == nullptr || takeover->awaited.erase(over.session) == 0) {
    return Status();  // its client has left, or it is too late
  }
  session->over = over;
  takeover->handed_over.push_back(over.session);
  if (takeover->is_judged) {
    decide(*takeover, *session);
    adopt_waiting();
    end_lost_workers_soon();
  } else if (takeover->awaited.empty()) {
    judge(*takeover);
  }
  return Status();
}

// A kernel of the guilty session was under way, and has assertions if one of them has failed. If
// that is true of one session alone, it is guilty.
uint32_t Server::name_culprit(const Takeover& takeover) {
  struct Suspect {
    Session* session;
    std::string work;
  };
  std::vector<Suspect> suspects;
  for (const uint32_t id : takeover.handed_over) {
    Session* const session = sessions_.find(id);
    if (session == nullptr || session->over.has_kernel == 0) continue;
    if (takeover.recovery->result == CUDA_ERROR_ASSERT && session->over.asserts == 0) continue;
    suspects.push_back({session, text_of(session->over)});
  }
  // After most faults other streams run on for a while.
  std::ranges::stable_sort(suspects, std::greater(),
                           [](const Suspect& suspect) { return suspect.session->over.still_ms; });
  for (const uint32_t id : takeover.awaited) {
    Session* const session = sessions_.find(id);
    if (session == nullptr) continue;
    const Result<Session::Left> left = session->look_at_left();
    if (left.ok() && !left->is_unfinished) continue;
    suspects.push_back({session, "work whose kernel is not known, since its thread is late"});
  }
  Recovery& recovery = *takeover.recovery;
  if (suspects.empty()) {
    log_.write("Nobody's kernel is known to have been running: the fault is not blamed on anybody");
    note_fault(*takeover.worker->domain, nullptr, recovery.result, takeover.reason);
    return 0;
  }
  // Of a session whose client has left nothing is known.
  const size_t unknown = takeover.sessions - takeover.handed_over.size() - takeover.awaited.size();
  if (suspects.size() == 1 && unknown == 0) {
    const auto& [guilty, work] = suspects.front();
    recovery.culprit = format_text("PID %u (%s): %s", guilty->admit.pid,
                                   command_of(*guilty).c_str(), work.c_str());
    log_.write("Fault by client " + guilty->name() + " (" + command_of(*guilty) + "): " + work +
               ": the only one with " +
               (recovery.result == CUDA_ERROR_ASSERT ? "an assertion" : "a kernel") +
               " on the device");
    note_fault(*takeover.worker->domain, guilty, recovery.result, takeover.reason + ": " + work);
    note_guilty(*guilty);
    return guilty->id;
  }
  log_.write(format_text("The fault is one of %zu clients', %zu of which have left:",
                         suspects.size() + unknown, unknown));
  for (const auto& [session, work] : suspects) {
    const uint32_t still_ms = session->over.still_ms;
    log_.write("Suspect is client " + session->name() + " (" + command_of(*session) + "): " + work +
               (still_ms == 0 ? "" : format_text("; for %u ms nothing of it has ended", still_ms)));
  }
  recovery.culprit = format_text("one of %zu programs", suspects.size() + unknown);
  note_fault(*takeover.worker->domain, nullptr, recovery.result,
             takeover.reason + ": by " + recovery.culprit);
  // Where nothing tells the first from the others, nobody is kept apart.
  const bool is_told_apart = suspects.size() == 1 || suspects[0].session->over.still_ms >
                                                         suspects[1].session->over.still_ms;
  if (unknown == 0 && is_told_apart) note_suspect(*suspects.front().session);
  return 0;
}

void Server::note_fault(const Domain& domain, const Session* culprit, CUresult result,
                        std::string_view what) {
  wire::Event event = make_event(wire::EventKind::kFault, culprit, what, result);
  fill_field(event.domain, domain.name);
  history_.note(event);
}

void Server::lose(Session& session, CUresult result, const std::string& why) {
  log_.write("Client " + session.name() + " (" + command_of(session) + ") is lost: " + why);
  session.end_with(result);
  history_.note(make_event(wire::EventKind::kLost, &session, why, result));
  note_decided(session, &Recovery::lost);
}

// What is known now decides; sessions that are late follow.
void Server::judge(Takeover& takeover) {
  loop_.cancel(std::exchange(takeover.timer, 0));
  takeover.guilty = name_culprit(takeover);
  takeover.is_judged = true;
  for (const uint32_t id : takeover.handed_over) {
    if (Session* const session = sessions_.find(id)) decide(takeover, *session);
  }
  if (!takeover.awaited.empty()) {
    takeover.timer = loop_.call_after(kLateMs, [this, &takeover] { kill_late(takeover); });
  }
  start_awaited_workers();
  adopt_waiting();
  end_lost_workers_soon();
}

void Server::kill_late(Takeover& takeover) {
  takeover.timer = 0;
  if (takeover.awaited.empty()) return;
  const bool are_coming = std::ranges::any_of(
      takeover.awaited, [&](uint32_t id) { return takeover.coming.contains(id); });
  const uint32_t most = takeover.stands_still ? kMostWaitsAtStandstill : kMostWaits;
  if (are_coming && ++takeover.waits < most) {
    takeover.timer = loop_.call_after(kLateMs, [this, &takeover] { kill_late(takeover); });
    return;
  }
  log_.write(
      format_text("%zu clients are late, since their threads are in the driver: worker %d "
                  "is killed, and they are taken from it",
                  takeover.awaited.size(), static_cast<int>(takeover.worker->process->pid())));
  takeover.worker->process->kill_now();
  // No thread leaves the kernel after that; one that was running has been interrupted by then.
  takeover.timer = loop_.call_after(kKilledMs, [this, &takeover] {
    takeover.timer = 0;
    take_late(takeover);
  });
}

void Server::take_late(Takeover& takeover) {
  for (const uint32_t id : std::exchange(takeover.awaited, {})) {
    Session* const session = sessions_.find(id);
    if (session == nullptr) continue;
    session->adoption = wire::Adoption::kFound;
    session->over = {};
    if (const std::string stays = session->stays(); !stays.empty()) {
      session->over.outcome = wire::Outcome::kLost;
      fill_field(session->over.reason, stays);
    }
    decide(takeover, *session);
  }
  adopt_waiting();
  end_lost_workers_soon();
}

void Server::begin_move(Session& session, wire::Adoption adoption,
                        const std::shared_ptr<Recovery>& recovery) {
  session.state = SessionState::kMoving;
  session.is_leaving = false;
  loop_.cancel(std::exchange(session.adoption_timer, 0));
  session.adoption = adoption;
  session.over = {};
  session.tries = 0;
  session.recovery = recovery;
  if (recovery != nullptr) ++recovery->open;
}

bool Server::take_from_dead(Session& session, const std::shared_ptr<Recovery>& recovery) {
  std::string why = session.stays();
  const Result<Session::Left> left = session.look_at_left();
  if (why.empty() && !left.ok()) why = left.status().message();
  if (left.ok() && left->is_in_command) {
    const bool is_same = session.died_at == left->position;
    session.died_at = left->position;
    if (is_same && why.empty()) why = "its command was being executed when two workers died";
  }
  begin_move(session, wire::Adoption::kFound, recovery);
  session.leave_worker();
  if (why.empty()) return true;
  lose(session, recovery->result, why);
  return false;
}

void Server::decide(const Takeover& takeover, Session& session) {
  if (session.state != SessionState::kMoving || session.worker != takeover.worker) return;
  const CUresult result = takeover.recovery->result;
  if (session.id == takeover.guilty) {
    lose(session, result, "the fault is its own");
  } else if (session.over.outcome == wire::Outcome::kLost) {
    lose(session, result, printable(field_text(session.over.reason)));
  } else {
    session.leave_worker();
  }
}

// The end of a process with contexts delays the driver calls of others by up to a second (an H200,
// driver 580): it comes when the sessions have been made again. Unless the GPU waits for it.
void Server::end_lost_workers_soon() {
  if (std::exchange(ends_lost_workers_, true)) return;
  loop_.call_after(0, [this] {
    ends_lost_workers_ = false;
    for (size_t i = 0; i < takeovers_.size();) {
      const Takeover& takeover = *takeovers_[i];
      const bool is_done = takeover.recovery->open == 0 || takeover.stands_still;
      if (!takeover.is_judged || !takeover.awaited.empty() || !is_done) {
        ++i;
        continue;
      }
      const std::unique_ptr<Takeover> ended = std::move(takeovers_[i]);
      takeovers_.erase(takeovers_.begin() + static_cast<std::ptrdiff_t>(i));
      loop_.cancel(ended->timer);
      if (!workers_.stopping()) workers_.discard(*ended->worker);
    }
    after_session();
  });
}

// ---- Another worker makes the sessions again ----------------------------------------------------

void Server::adopt_waiting() {
  auto under_way = static_cast<size_t>(std::ranges::count_if(sessions_.all(), [](const auto& of) {
    return of.second->state == SessionState::kMoving && of.second->worker != nullptr;
  }));
  // First those whose client waits. The others would delay them: the driver makes one thing at a
  // time. on_adopted() and after_session() go on.
  std::vector<Session*> idle;
  for (const auto& [id, session] : sessions_.all()) {
    if (under_way >= kMostAtOnce) return;
    Worker* const worker = Workers::serving(*session->domain);
    if (session->state != SessionState::kMoving || session->worker != nullptr ||
        worker == nullptr) {
      continue;
    }
    if (session->over.outcome != wire::Outcome::kTold && session->seems_idle()) {
      idle.push_back(session.get());
    } else {
      adopt(*session, *worker);
      ++under_way;
    }
  }
  for (Session* session : idle) {
    if (under_way++ >= kMostIdleAtOnce) return;
    adopt(*session, *Workers::serving(*session->domain));
  }
}

void Server::adopt(Session& session, Worker& worker) {
  session.worker = &worker;
  session.passing = 0;
  ++session.tries;
  kept_.give_memory(session.id, [&](std::span<const std::byte> message, std::span<const int> fds) {
    worker.process->send(message, fds);
  });
  wire::OpenSession open = make_open_session(session, grants_.groups());
  open.adoption = session.adoption;
  open.residence = session.residence;
  sessions_.lend_window(session);
  const int files[] = {session.host_file.get(), session.journal.get()};
  worker.process->send(wire::message_bytes(open), files);
  Workers::note_session(worker);
  session.is_late = false;
  session.adoption_timer =
      loop_.call_after(kAdoptionMs, [this, id = session.id] { on_adoption_late(id); });
}

void Server::on_adoption_late(uint32_t id) {
  Session* const session = sessions_.find(id);
  if (session == nullptr || session->state != SessionState::kMoving) return;
  session->adoption_timer = 0;
  if (!std::exchange(session->is_late, true)) {
    session->adoption_timer = loop_.call_after(kReadFirstMs, [this, id] { on_adoption_late(id); });
    return;
  }
  const CUresult result = CUDA_ERROR_MPS_RPC_FAILURE;
  lose(*session, result, "it could not be made again in time");
  end_session(*session, result);
}

void Server::on_adopted(Session& session, const wire::SessionReady& ready) {
  loop_.cancel(std::exchange(session.adoption_timer, 0));
  const std::shared_ptr<Recovery> recovery = session.recovery;
  if (ready.result != CUDA_SUCCESS) {
    // The worker's contexts are lost: the message about that follows, and the session waits.
    if (ready.result == CUDA_ERROR_MPS_SERVER_NOT_READY && session.tries < kMostTries) {
      session.leave_worker();
      session.adoption = wire::Adoption::kFound;
      adopt_waiting();
      return;
    }
    lose(session, recovery != nullptr ? recovery->result : CUDA_ERROR_MPS_RPC_FAILURE,
         printable(field_text(ready.reason)));
    forget_session(session.id);
    after_session();
    return;
  }
  const bool is_told = ready.lost_streams != 0;
  const int pid = static_cast<int>(session.worker->process->pid());
  log_.write(
      format_text("Client %s (%s) is moved to worker %d: ", session.name().c_str(),
                  command_of(session).c_str(), pid) +
      (is_told ? format_text("what was under way in %u of its streams is lost, its memory is "
                             "kept",
                             ready.lost_streams)
       : ready.given_again != 0
           ? format_text("what was under way is given again by %u commands", ready.given_again)
           : "nothing was under way"));
  session.state = SessionState::kActive;
  adopt_waiting();
  ++session.moves;
  history_.note(make_event(
      wire::EventKind::kMoved, &session,
      format_text("to worker %d of domain %s", pid, session.worker->domain->name.c_str())));
  note_left(session.id, &MoveQuery::moved);
  session.go_on(recovery != nullptr ? recovery->culprit : "");
  pass_parked(session);
  tell_awaited_residence(session);
  tell_of_traces(session);
  note_decided(session, is_told ? &Recovery::told : &Recovery::moved);
  look_at_joined_devices();
}

void Server::pass_parked(Session& session) {
  for (auto& [message, descriptor] : std::exchange(session.parked, {})) {
    ++session.passing;
    const int file = descriptor.get();
    session.worker->process->send(wire::message_bytes(message), {&file, 1});
  }
  choose_reading(session);
}

void Server::note_decided(Session& session, uint32_t Recovery::*outcome) {
  const std::shared_ptr<Recovery> recovery = std::exchange(session.recovery, nullptr);
  if (recovery == nullptr) return;
  ++(*recovery.*outcome);
  if (--recovery->open != 0) return;
  end_lost_workers_soon();
  const std::string what =
      format_text("after %llu ms: %u moved, %u told, %u lost",
                  static_cast<unsigned long long>((now_ns() - recovery->began_ns) / kNsPerMs),
                  recovery->moved, recovery->told, recovery->lost);
  log_.write("Server is ACTIVE again " + what);
  history_.note(make_event(wire::EventKind::kTakeover, nullptr, what, recovery->result));
}

// ---- The spare ----------------------------------------------------------------------------------

void Server::on_spare_ready(const Worker& worker) {
  kept_.give_images([&](std::span<const std::byte> message, std::span<const int> fds) {
    worker.process->send(message, fds);
  });
  begin_renewal(*worker.domain);
}

// The start of a process with contexts delays what others ask of the driver by up to 3 s while a
// lost worker is there (an H200, driver 580).
bool Server::is_moving() const { return workers_.has_lost() || has_session_between_workers(); }

void Server::look_at_spares() {
  for (const auto& [name, domain] : workers_.domains()) look_at_spare(*domain);
}

// A spare is kept while there are clients that it would be for: several, or one of a domain whose
// programs have faulted. Who is in quarantine waits.
void Server::look_at_spare(Domain& domain) {
  const Spare wish = options_.worker.spare;
  if (!wire::takes_over() || wish == Spare::kOff || workers_.stopping()) return;
  if (domain.name == kQuarantineDomain) return;
  const bool is_renewed = std::ranges::any_of(
      moves_, [&domain](const MoveQuery& query) { return query.domains.contains(domain.name); });
  if (is_renewed) return;  // it has one, for that
  const bool has_faulted = !domain.lost_at_ns.empty();
  const uint32_t wanted = wish == Spare::kOn || has_faulted ? 1 : 2;
  const uint32_t clients = sessions_.clients(domain);
  if (clients == 0) {
    loop_.cancel(std::exchange(domain.spare_timer, 0));
    workers_.end_spare(domain);
  } else if (clients >= wanted && domain.spare == nullptr && domain.spare_timer == 0 &&
             !is_moving()) {
    const uint64_t delay_ms = has_faulted ? kNextSpareDelayMs : kSpareDelayMs;
    domain.spare_timer = loop_.call_after(delay_ms, [this, wanted, &domain] {
      domain.spare_timer = 0;
      // Otherwise it is looked at again when they have moved.
      if (sessions_.clients(domain) >= wanted && !is_moving()) workers_.start_spare(domain);
    });
  }
}

}  // namespace openmps::server
