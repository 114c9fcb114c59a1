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
  const Worker* const worker = workers_.serving();
  if (worker == nullptr) {
    return answer(query.query, query.ticket, {CUDA_ERROR_MPS_SERVER_NOT_READY});
  }
  if (!workers_.may_retire_another()) {
    return answer(query.query, query.ticket, {CUDA_ERROR_NOT_PERMITTED});
  }
  log_.write(format_text("Worker %d is to be replaced, as was asked for",
                         static_cast<int>(worker->process->pid())));
  Renewal renewal;
  renewal.ticket = query.ticket;
  renewals_.push_back(std::move(renewal));
  // The spare may be of the program that was installed before.
  workers_.end_spare();
  if (!workers_.start_spare(Workers::Again::kYes)) on_no_spare();
}

// The new worker is ready: until now the old one has served.
void Server::begin_renewals() {
  const Worker* const worker = workers_.serving();
  const bool any =
      std::ranges::any_of(renewals_, [](const Renewal& renewal) { return !renewal.has_begun; });
  if (!any || worker == nullptr) return;
  for (Renewal& renewal : renewals_) {
    if (renewal.has_begun) continue;
    for (const uint32_t id : sessions_.ids_of(*worker)) {
      if (sessions_.find(id)->state != SessionState::kActive) continue;
      if (wire::takes_over()) {
        renewal.sessions.insert(id);
      } else {
        ++renewal.stayed;
      }
    }
  }
  workers_.retire_serving(Workers::Retires::kWell);
}

void Server::on_no_spare() { answer_renewals(CUDA_ERROR_MPS_SERVER_NOT_READY); }

void Server::empty_retiring() {
  for (Renewal& renewal : renewals_) renewal.has_begun = true;
  if (wire::takes_over()) {
    for (const auto& [id, session] : sessions_.all()) {
      if (session->state == SessionState::kActive && session->worker != nullptr &&
          session->worker->state == WorkerState::kRetiring) {
        ask_to_leave(*session);
      }
    }
  }
  answer_renewals(CUDA_SUCCESS);
}

void Server::ask_to_leave(Session& session) {
  if (session.is_leaving) return;
  session.is_leaving = true;
  ++session.leave_tries;
  session.worker->process->send(
      wire::message_bytes(wire::LeaveSession{.session = session.id, .limit_ms = kLetGoMs}));
  Workers::note_session(*session.worker);
  session.adoption_timer = loop_.call_after(kLetGoMs + options_.drain_ms,
                                            [this, id = session.id] { on_leave_late(id); });
}

void Server::on_leave_late(uint32_t id) {
  Session* const session = sessions_.find(id);
  if (session == nullptr || !session->is_leaving || session->worker == nullptr) return;
  session->adoption_timer = 0;
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
      session.worker = nullptr;
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
  // What has no end of itself is not asked again.
  if (!session.stays().empty() || session.leave_tries >= kMostLetGoTries) {
    log_.write("Client " + session.name() + " stays in worker " +
               std::to_string(session.worker->process->pid()) + ": " +
               printable(field_text(over.reason)));
    session.leave_tries = 0;
    note_left(id, &Renewal::stayed);
    return;
  }
  loop_.call_after(kLetGoAgainMs, [this, id] {
    Session* const stays = sessions_.find(id);
    if (stays == nullptr || stays->state != SessionState::kActive || stays->worker == nullptr ||
        stays->worker->state != WorkerState::kRetiring || workers_.serving() == nullptr) {
      return;
    }
    ask_to_leave(*stays);
  });
}

void Server::note_left(uint32_t id, uint32_t Renewal::*outcome) {
  for (Renewal& renewal : renewals_) {
    if (renewal.sessions.erase(id) != 0 && outcome != nullptr) ++(renewal.*outcome);
  }
  answer_renewals(CUDA_SUCCESS);
}

void Server::answer_renewals(CUresult result) {
  std::erase_if(renewals_, [&](const Renewal& renewal) {
    const bool is_over = renewal.has_begun && renewal.sessions.empty();
    const bool has_failed = result != CUDA_SUCCESS && !renewal.has_begun;
    if (!is_over && !has_failed) return false;
    answer(wire::QueryKind::kRenew, renewal.ticket,
           {.result = has_failed ? result : CUDA_SUCCESS,
            .amount = renewal.moved,
            .stayed = renewal.stayed});
    return true;
  });
}

}  // namespace openmps::server
