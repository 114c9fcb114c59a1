// SPDX-License-Identifier: Apache-2.0
// openmps-server: sessions that leave a worker which is well, for the next one
// (docs/decisions/0044).
#include <algorithm>
#include <utility>

#include "base/text.h"
#include "server/server.h"
#include "wire/kept.h"
#include "wire/message.h"

namespace openmps::server {

bool Server::has_session_between_workers() const {
  return std::ranges::any_of(sessions_.all(), [](const auto& entry) {
    return entry.second->is_leaving || entry.second->state == SessionState::kMoving;
  });
}

void Server::renew(const wire::Query& query) {
  MoveQuery wanted{.kind = query.query, .ticket = query.ticket};
  for (const auto& [name, domain] : workers_.domains()) {
    if (Workers::serving(*domain) == nullptr) continue;
    if (!workers_.may_retire_another(*domain)) {
      return answer(query.query, query.ticket, {CUDA_ERROR_NOT_PERMITTED});
    }
    wanted.domains.insert(name);
  }
  if (wanted.domains.empty()) {
    return answer(query.query, query.ticket, {CUDA_ERROR_MPS_SERVER_NOT_READY});
  }
  const std::set<std::string> names = wanted.domains;
  moves_.push_back(std::move(wanted));
  for (const std::string& name : names) {
    Domain& domain = *workers_.domains().at(name);
    log_.write(format_text("Worker %d is to be replaced, as was asked for",
                           static_cast<int>(domain.current->process->pid())));
    // The spare may be of the program that was installed before.
    workers_.end_spare(domain);
    if (!workers_.start_spare(domain, Workers::Again::kYes)) on_no_spare(domain);
  }
}

// The new worker is ready: until now the old one has served.
void Server::begin_renewal(Domain& domain) {
  const Worker* const worker = Workers::serving(domain);
  bool any = false;
  for (MoveQuery& query : moves_) {
    if (worker == nullptr || query.domains.erase(domain.name) == 0) continue;
    any = true;
    for (const uint32_t id : sessions_.ids_of(*worker)) {
      if (sessions_.find(id)->state != SessionState::kActive) continue;
      if (wire::takes_over()) {
        query.sessions.insert(id);
      } else {
        ++query.stayed;
      }
    }
  }
  if (any) workers_.retire_serving(domain, Workers::Retires::kWell);
}

void Server::on_no_spare(const Domain& domain) {
  for (MoveQuery& query : moves_) {
    if (query.domains.erase(domain.name) != 0) query.result = CUDA_ERROR_MPS_SERVER_NOT_READY;
  }
  answer_moves();
}

bool Server::is_to_leave(const Session& session) {
  if (session.state != SessionState::kActive || session.worker == nullptr) return false;
  const Worker* const serving = Workers::serving(*session.domain);
  if (serving == nullptr || serving == session.worker) return false;
  return session.worker->state == WorkerState::kRetiring ||
         (session.worker->state == WorkerState::kServing &&
          session.worker->domain != session.domain);
}

void Server::send_home() {
  if (!wire::takes_over()) return;
  for (const auto& [id, session] : sessions_.all()) {
    if (is_to_leave(*session)) ask_to_leave(*session);
  }
}

void Server::ask_to_leave(Session& session) {
  if (session.is_leaving) return;
  session.is_leaving = true;
  ++session.leave_tries;
  session.worker->process->send(
      wire::message_bytes(wire::LeaveSession{.session = session.id, .limit_ms = kLetGoMs}));
  Workers::note_session(*session.worker);
  session.is_late = false;
  session.adoption_timer = loop_.call_after(kLetGoMs + options_.drain_ms,
                                            [this, id = session.id] { on_leave_late(id); });
}

void Server::on_leave_late(uint32_t id) {
  Session* const session = sessions_.find(id);
  if (session == nullptr || !session->is_leaving || session->worker == nullptr) return;
  session->adoption_timer = 0;
  if (!std::exchange(session->is_late, true)) {
    session->adoption_timer = loop_.call_after(kReadFirstMs, [this, id] { on_leave_late(id); });
    return;
  }
  const Worker& worker = *session->worker;
  log_.write(format_text("Client %s can't leave worker %d, which hangs and is killed",
                         session->name().c_str(), static_cast<int>(worker.process->pid())));
  worker.process->kill_now();  // on_sessions_lost() is next
}

void Server::on_left(Session& session, const wire::HandedOver& over) {
  const uint32_t id = session.id;
  if (over.outcome == wire::Outcome::kComing) return;
  if (over.outcome != wire::Outcome::kStays) {
    if (session.state != SessionState::kActive) {  // its client has left meanwhile
      forget_session(id);
    } else {
      begin_move(session, wire::Adoption::kHandedOver, nullptr);
      session.leave_worker();
      session.leave_tries = 0;
      adopt_waiting();
    }
    after_session();
    return;
  }
  session.is_leaving = false;
  loop_.cancel(std::exchange(session.adoption_timer, 0));
  if (session.state != SessionState::kActive) return;
  pass_parked(session);
  tell_awaited_residence(session);
  // What has no end of itself is not asked again.
  if (!session.stays().empty() || session.leave_tries >= kMostLetGoTries) {
    log_.write("Client " + session.name() + " stays in worker " +
               std::to_string(session.worker->process->pid()) + ": " +
               printable(field_text(over.reason)));
    session.leave_tries = 0;
    set_domain(session, *session.worker->domain);
    note_left(id, &MoveQuery::stayed);
    return;
  }
  loop_.call_after(kLetGoAgainMs, [this, id] {
    Session* const stays = sessions_.find(id);
    if (stays != nullptr && is_to_leave(*stays)) ask_to_leave(*stays);
  });
}

void Server::note_left(uint32_t id, uint32_t MoveQuery::*outcome) {
  for (MoveQuery& query : moves_) {
    if (query.sessions.erase(id) != 0 && outcome != nullptr) ++(query.*outcome);
  }
  answer_moves();
}

void Server::answer_moves() {
  std::erase_if(moves_, [&](const MoveQuery& query) {
    if (!query.domains.empty() || !query.sessions.empty()) return false;
    answer(query.kind, query.ticket,
           {.result = query.result, .amount = query.moved, .stayed = query.stayed});
    return true;
  });
}

}  // namespace openmps::server
