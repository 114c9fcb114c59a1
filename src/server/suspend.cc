// SPDX-License-Identifier: Apache-2.0
// openmps-server: sessions whose memory is moved to the host because the operator says so
// (docs/decisions/0052). Their workers move it, and know by themselves when others need memory.
#include <algorithm>
#include <utility>

#include "server/answers.h"
#include "server/server.h"
#include "wire/message.h"

namespace openmps::server {

void Server::suspend(const wire::Query& query) {
  const bool goes = query.query == wire::QueryKind::kSuspend;
  SuspendQuery wanted{.kind = query.query, .ticket = query.ticket};
  bool is_there = false;
  for (const auto& [id, session] : sessions_.all()) {
    if (!is_meant(query, *session) || session->state == SessionState::kEnding) continue;
    is_there = true;
    session->residence = goes ? query.change.residence : wire::Residence::kDevice;
    wanted.sessions.insert(id);
    if (session->state == SessionState::kActive && !session->is_leaving) tell_residence(*session);
  }
  if (!is_there) wanted.result = CUDA_ERROR_INVALID_VALUE;
  suspensions_.push_back(std::move(wanted));
  answer_suspensions();
}

void Server::tell_residence(const Session& session) {
  session.worker->process->send(wire::message_bytes(wire::SuspendSession{
      .session = session.id, .residence = session.residence, .limit_ms = kLetGoMs}));
  Workers::note_session(*session.worker);
}

void Server::tell_awaited_residence(const Session& session) {
  const bool is_awaited = std::ranges::any_of(suspensions_, [&session](const SuspendQuery& query) {
    return query.sessions.contains(session.id);
  });
  if (is_awaited) tell_residence(session);
}

// One answer to several that came before the worker had read the first.
void Server::on_session_suspended(Worker& worker, const wire::SessionSuspended& suspended) {
  Session* const session = session_of(worker, suspended.session);
  if (session == nullptr) return;
  if (session->residence != wire::Residence::kHeld || suspended.result != CUDA_SUCCESS) {
    session->residence = wire::Residence::kDevice;
  }
  for (SuspendQuery& query : suspensions_) {
    if (query.sessions.erase(suspended.session) == 0) continue;
    if (query.result == CUDA_SUCCESS) query.result = static_cast<CUresult>(suspended.result);
    query.moved += suspended.moved;
    query.stays += suspended.stays;
  }
  answer_suspensions();
}

void Server::answer_suspensions() {
  std::erase_if(suspensions_, [&](const SuspendQuery& query) {
    if (!query.sessions.empty()) return false;
    answer(query.kind, query.ticket,
           {.result = query.result, .moved_bytes = query.moved, .stayed_bytes = query.stays});
    return true;
  });
}

}  // namespace openmps::server
