// SPDX-License-Identifier: Apache-2.0
// openmps-server: sessions that are recorded because the operator asks (docs/decisions/0057). Their
// workers record; the server tells those to which a session comes later, too.
#include <sys/epoll.h>

#include <algorithm>
#include <utility>

#include "server/answers.h"
#include "server/server.h"
#include "wire/message.h"

namespace openmps::server {

void Server::trace(const wire::Query& query, ForeignFd to) {
  const auto refuse = [&](CUresult result) { answer(query.query, query.ticket, {result}); };
  if (!to.valid()) return refuse(CUDA_ERROR_INVALID_HANDLE);
  if (traces_.size() >= kMostTraces) return refuse(CUDA_ERROR_NOT_PERMITTED);
  traces_.push_back({query, std::move(to)});
  const TraceOrder& order = traces_.back();
  uint32_t count = 0;
  for (const auto& [id, session] : sessions_.all()) {
    if (!order.means(*session) || session->state == SessionState::kEnding) continue;
    ++count;
    if (session->state == SessionState::kActive) tell_of(order, *session);
  }
  const int reader = order.to.get();
  const Status watched = loop_.watch(reader, EPOLLRDHUP, [this, reader](uint32_t) {
    end_traces([reader](const TraceOrder& one) { return one.to.get() == reader; });
  });
  if (!watched.ok() || (count == 0 && order.is_of_client())) {
    if (watched.ok()) loop_.forget(reader);
    traces_.pop_back();
    return refuse(watched.ok() ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_OPERATING_SYSTEM);
  }
  answer(query.query, query.ticket, {.result = CUDA_SUCCESS, .amount = count});
}

bool Server::TraceOrder::means(const Session& session) const {
  return !is_of_client() || is_meant(query, session);
}

void Server::tell_of(const TraceOrder& order, Session& session) {
  wire::PassDescriptor message;
  message.session = session.id;
  message.ticket = wire::kRecordTicket;
  ++session.passing;
  const int reader = order.to.get();
  session.worker->process->send(wire::message_bytes(message), {&reader, 1});
  choose_reading(session);
}

void Server::tell_of_traces(Session& session) {
  for (const TraceOrder& order : traces_) {
    if (order.means(session)) tell_of(order, session);
  }
}

// Of a client that has ended nothing more comes.
void Server::end_traces_without_client() {
  end_traces([this](const TraceOrder& order) {
    return order.is_of_client() && std::ranges::none_of(sessions_.all(), [&](const auto& entry) {
             return order.means(*entry.second);
           });
  });
}

void Server::end_traces(const std::function<bool(const TraceOrder&)>& which) {
  std::erase_if(traces_, [&](const TraceOrder& order) {
    if (!which(order)) return false;
    loop_.forget(order.to.get());
    return true;
  });
}

}  // namespace openmps::server
