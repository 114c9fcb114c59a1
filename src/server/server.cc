// SPDX-License-Identifier: Apache-2.0
// openmps-server: messages of daemon and clients, and of workers about sessions.
#include "server/server.h"

#include <sys/epoll.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "base/shared_memory.h"
#include "base/text.h"
#include "server/answers.h"
#include "wire/message.h"

namespace openmps::server {
namespace {

// Longer than PassDescriptor, the only message that a client may send after Hello.
constexpr size_t kMaxClientPacketBytes = 4096;

}  // namespace

Server::Server(EventLoop& loop, const Log& log, ServerOptions options)
    : loop_(loop),
      log_(log),
      options_(std::move(options)),
      disposal_(loop, Disposal::Peers::kOneUser) {}

Status Server::take_daemon(UniqueFd daemon) {
  daemon_ = std::make_unique<PacketPeer>(
      loop_, std::move(daemon),
      PacketPeer::Options{.max_packet_bytes = wire::kMaxMessageBytes,
                          .descriptors = Descriptors::kTaken,
                          .disposal = &disposal_},
      PacketPeer::Callbacks{[this](Packet packet) { on_daemon_packet(std::move(packet)); },
                            [this](const std::string&) { on_daemon_gone(); }});
  return daemon_->start();
}

Status Server::start(UniqueFd daemon) {
  const Result<PeerCredentials> who = peer_credentials(daemon.get());
  if (!who.ok()) return who.status();
  daemon_user_ = who->uid;
  OPENMPS_RETURN_IF_ERROR(take_daemon(std::move(daemon)));
  hang_ups_.reset(epoll_create1(EPOLL_CLOEXEC));
  if (!hang_ups_.valid()) {
    return Status(CUDA_ERROR_OPERATING_SYSTEM, std::string("epoll_create1: ") + strerror(errno));
  }
  log_.write("Initializing server process");
  workers_.start(workers_.common());
  return Status();
}

// ---- Daemon -----------------------------------------------------------------------------------

void Server::on_daemon_packet(Packet packet) {
  Result<wire::MessageHeader> header = wire::read_header(packet.data);
  Status status = header.status();
  if (header.ok()) {
    switch (header->kind) {
      case wire::MessageKind::kAdmit: {
        wire::Admit admit;
        status = wire::read_message(packet.data, &admit);
        if (!status.ok()) break;
        if (packet.fds.size() != 1) {
          // The system had no descriptor left to receive the connection with, and has closed it.
          status = Status(CUDA_ERROR_MPS_CONNECTION_FAILED, "a client without its connection");
          break;
        }
        on_admit(admit, ForeignFd(disposal_, std::move(packet.fds[0])));
        break;
      }
      case wire::MessageKind::kQuery: {
        wire::Query query;
        status = wire::read_message(packet.data, &query);
        if (!status.ok()) break;
        on_query(query,
                 packet.fds.empty() ? ForeignFd() : ForeignFd(disposal_, std::move(packet.fds[0])));
        break;
      }
      case wire::MessageKind::kProbe: daemon_->send(wire::message_bytes(wire::Alive{})); break;
      case wire::MessageKind::kSetGroup: {
        wire::SetGroup message;
        status = wire::read_message(packet.data, &message);
        if (status.ok()) grants_.set_group(message);
        break;
      }
      case wire::MessageKind::kShutdown: {
        wire::Shutdown shutdown;
        status = wire::read_message(packet.data, &shutdown);
        if (status.ok()) on_shutdown(shutdown);
        break;
      }
      default: status = Status(CUDA_ERROR_INVALID_VALUE, "a kind of message that no daemon sends");
    }
  }
  if (!status.ok()) log_.write("Ignoring a message of the daemon: " + status.message());
}

void Server::on_daemon_gone() {
  daemon_.reset();
  terminations_.clear();  // a next daemon would take the answers for its own
  moves_.clear();
  suspensions_.clear();
  log_.write("The control daemon has gone: the server ends with its last client");
  const bool may_rejoin = !leaving_ && !options_.control_socket.empty();
  leaving_ = true;
  after_session();
  if (may_rejoin) look_for_daemon();
}

// The server accepts another daemon of this user at this socket.
void Server::look_for_daemon() {
  if (workers_.stopping() || sessions_.clients() + waiting_.size() == 0) return;
  Result<UniqueFd> socket = connect_to(options_.control_socket, Waits::kNo);
  const Result<PeerCredentials> who =
      socket.ok() ? peer_credentials(socket->get()) : socket.status();
  if (!who.ok() || who->uid != daemon_user_ || !take_daemon(std::move(socket).value()).ok()) {
    loop_.call_after(kRejoinMs, [this] { look_for_daemon(); });
    return;
  }
  log_.write(format_text("There is another control daemon (PID %d): the server is its",
                         static_cast<int>(who->pid)));
  leaving_ = false;
  wire::Rejoin rejoin;
  fill_field(rejoin.server, options_.name);
  daemon_->send(wire::message_bytes(rejoin));
  history_.tell_all();
}

void Server::on_admit(const wire::Admit& admit, ForeignFd client) {
  log_.write(format_text("Received new client request for {PID: %u}", admit.pid));
  // A client that comes after the end of another program must not see what that one has left.
  notice_hang_ups();
  look_at_joined_devices();
  const Result<PeerCredentials> who = peer_credentials(client.get());
  if (!who.ok() || who->uid != admit.uid) {
    refuse(std::move(client), admit, CUDA_ERROR_NOT_PERMITTED, "the client is another user's");
  } else if (leaving_) {
    refuse(std::move(client), admit, CUDA_ERROR_MPS_SERVER_NOT_READY,
           "the server is shutting down");
  } else if (waiting_.size() >= wire::kMaxWindows) {
    refuse(std::move(client), admit, CUDA_ERROR_MPS_MAX_CLIENTS_REACHED,
           "too many clients wait for the worker to start");
  } else {
    Domain& domain = domain_of(admit, nullptr);
    Waiting next{admit, std::move(client), false, &domain};
    if (Workers::serving(domain) != nullptr) return open_session(std::move(next));
    waiting_.push_back(std::move(next));
    // There is no worker yet, or none could be started for the last client.
    workers_.start(domain);
  }
}

void Server::on_query(const wire::Query& query, ForeignFd descriptor) {
  switch (query.query) {
    case wire::QueryKind::kTerminate: return terminate(query);
    case wire::QueryKind::kRenew: return renew(query);
    case wire::QueryKind::kMove: return move(query);
    case wire::QueryKind::kSuspend:
    case wire::QueryKind::kResume: return suspend(query);
    case wire::QueryKind::kTrace: return trace(query, std::move(descriptor));
    case wire::QueryKind::kChange: return answer(query.query, query.ticket, grants_.change(query));
    case wire::QueryKind::kReserve:
      if (const auto outcome = grants_.reserve(query)) answer(query.query, query.ticket, *outcome);
      return look_at_joined_devices();
    default:
      daemon_->send(make_answer(query, workers_.common().state, sessions_, grants_.groups(),
                                history_, workers_.devices(), used_partitions()));
  }
}

void Server::terminate(const wire::Query& query) {
  bool is_there = false;
  Termination wanted{query.ticket, {}};
  for (const auto& [id, session] : sessions_.all()) {
    if (!is_meant(query, *session)) continue;
    is_there = true;
    // A session that has not ended in time is left to its retired worker.
    const bool is_left = session->state == SessionState::kEnding && session->drain_timer == 0;
    if (!is_left) wanted.sessions.insert(id);
  }
  const std::set<uint32_t> ids = wanted.sessions;
  terminations_.push_back(std::move(wanted));
  if (ids.empty()) {
    answer_terminations(is_there ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
    return;
  }
  for (const uint32_t id : ids) {
    Session* session = sessions_.find(id);
    if (session == nullptr || session->state == SessionState::kEnding) continue;
    log_.write("Client " + session->name() +
               " is terminated: " + printable(field_text(session->admit.hello.command)));
    history_.note(make_event(wire::EventKind::kTerminated, session, "by command",
                             CUDA_ERROR_MPS_CLIENT_TERMINATED));
    session->end_with(CUDA_ERROR_MPS_CLIENT_TERMINATED);
    if (session->state == SessionState::kOpening && session->client != nullptr) {
      refuse(*session->client, session->admit, CUDA_ERROR_MPS_CLIENT_TERMINATED,
             "the client has been terminated");
      ignore_hang_up(*session);
      session->client.reset();
    }
    end_session(*session, CUDA_ERROR_MPS_CLIENT_TERMINATED);
  }
}

// The session has ended, or is left to its retired worker because its work does not end.
void Server::note_end(uint32_t id) {
  for (Termination& termination : terminations_) termination.sessions.erase(id);
  answer_terminations(CUDA_SUCCESS);
  note_left(id, nullptr);
  for (SuspendQuery& query : suspensions_) {
    if (query.sessions.erase(id) != 0) query.result = CUDA_ERROR_INVALID_VALUE;
  }
  answer_suspensions();
  end_traces_without_client();
}

void Server::answer_terminations(CUresult result) {
  std::erase_if(terminations_, [&](const Termination& termination) {
    if (!termination.sessions.empty()) return false;
    answer(wire::QueryKind::kTerminate, termination.ticket, {result});
    return true;
  });
}

void Server::answer(wire::QueryKind kind, uint32_t ticket, const Grants::Outcome& outcome) {
  if (daemon_ == nullptr) return;
  wire::Answer answer;
  answer.query = kind;
  answer.ticket = ticket;
  answer.state = workers_.common().state;
  answer.result = outcome.result;
  answer.amount = outcome.amount;
  answer.stayed = outcome.stayed;
  answer.moved_bytes = outcome.moved_bytes;
  answer.stayed_bytes = outcome.stayed_bytes;
  daemon_->send(wire::message_bytes(answer));
}

std::vector<wire::StaticPartition> Server::used_partitions() const {
  std::vector<wire::StaticPartition> used;
  const auto note = [&used](const wire::StaticPartition& partition) {
    if (partition.sms != 0 && std::ranges::find(used, partition) == used.end()) {
      used.push_back(partition);
    }
  };
  for (const auto& [id, session] : sessions_.all()) note(session->admit.partition);
  for (const Waiting& waiting : waiting_) note(waiting.admit.partition);
  return used;
}

void Server::on_shutdown(const wire::Shutdown& shutdown) {
  if (shutdown.force != 0) {
    log_.write("Server has been told to shut down at once");
    force_stop();
    return;
  }
  log_.write("Server has been notified to shutdown");
  leaving_ = true;
  const uint32_t clients = sessions_.clients() + static_cast<uint32_t>(waiting_.size());
  if (clients == 0) {
    after_session();
    return;
  }
  log_.write(format_text("Server was unable to shutdown due to %u active clients", clients));
  wire::ShutdownRefused refused;
  refused.active_clients = clients;
  daemon_->send(wire::message_bytes(refused));
}

void Server::report_ready(CUresult result, const std::string& reason) {
  if (daemon_ == nullptr) return;
  wire::ServerReady ready;
  ready.result = result;
  const Worker* worker = Workers::serving(workers_.common());
  ready.worker_pid = worker != nullptr ? static_cast<uint32_t>(worker->process->pid()) : 0;
  fill_field(ready.reason, reason);
  daemon_->send(wire::message_bytes(ready));
}

void Server::force_stop() {
  leaving_ = true;
  for (const auto& [id, session] : sessions_.all()) session->end_with(CUDA_ERROR_MPS_RPC_FAILURE);
  waiting_.clear();
  finish(0);
}

void Server::finish(int exit_status) {
  if (workers_.stopping()) return;
  exit_status_ = exit_status;
  workers_.stop();
}

// ---- Workers ----------------------------------------------------------------------------------

bool Server::wants_worker(const Domain& domain) const {
  const bool is_awaited = std::ranges::any_of(
      waiting_, [&domain](const Waiting& waiting) { return waiting.domain == &domain; });
  const bool has_moving = std::ranges::any_of(sessions_.all(), [&domain](const auto& entry) {
    return entry.second->domain == &domain && entry.second->state == SessionState::kMoving;
  });
  const bool may_get_clients =
      domain.is_common() || (domain.device && uses_gpu_domains_) || sessions_.clients(domain) != 0;
  return is_awaited || has_moving || (!leaving_ && may_get_clients);
}

void Server::on_worker_ready(const Worker& worker) {
  options_.on_worker_ready();
  const int pid = static_cast<int>(worker.process->pid());
  log_.write(format_text("Server has started (worker %d)", pid));
  wire::Event started =
      make_event(wire::EventKind::kWorkerStarted, nullptr, format_text("worker %d serves", pid));
  fill_field(started.domain, worker.domain->name);
  history_.note(started);
  if (worker.domain->is_common()) {
    report_ready(CUDA_SUCCESS, "");
    grants_.tell_reservations(worker);
    assign_waiting();
  }
  for (const uint64_t hash : kept_.close_old_images(now_ns())) tell_of_closed_image(hash);
  kept_.give_images([&](std::span<const std::byte> message, std::span<const int> fds) {
    worker.process->send(message, fds);
  });
  adopt_waiting();
  for (MoveQuery& query : moves_) query.domains.erase(worker.domain->name);
  send_home();
  answer_moves();
  open_waiting(*worker.domain);
}

Status Server::on_worker_message(Worker& worker, wire::MessageKind kind, Packet& packet) {
  switch (kind) {
    case wire::MessageKind::kSessionSuspended: {
      wire::SessionSuspended suspended;
      OPENMPS_RETURN_IF_ERROR(wire::read_message(packet.data, &suspended));
      on_session_suspended(worker, suspended);
      return Status();
    }
    case wire::MessageKind::kMemoryShort: {
      wire::MemoryShort message;
      OPENMPS_RETURN_IF_ERROR(wire::read_message(packet.data, &message));
      workers_.tell_others(worker, wire::message_bytes(message));
      return Status();
    }
    case wire::MessageKind::kSessionReady: {
      wire::SessionReady ready;
      OPENMPS_RETURN_IF_ERROR(wire::read_message(packet.data, &ready));
      return on_session_ready(worker, ready);
    }
    case wire::MessageKind::kSessionClosed: {
      wire::SessionClosed closed;
      OPENMPS_RETURN_IF_ERROR(wire::read_message(packet.data, &closed));
      on_session_closed(worker, closed);
      return Status();
    }
    case wire::MessageKind::kWorkerLost: {
      wire::WorkerLost lost;
      OPENMPS_RETURN_IF_ERROR(wire::read_message(packet.data, &lost));
      on_worker_lost(worker, lost);
      return Status();
    }
    case wire::MessageKind::kHandedOver: {
      wire::HandedOver over;
      OPENMPS_RETURN_IF_ERROR(wire::read_message(packet.data, &over));
      return on_handed_over(worker, over);
    }
    case wire::MessageKind::kSessionFault: {
      wire::SessionFault fault;
      OPENMPS_RETURN_IF_ERROR(wire::read_message(packet.data, &fault));
      if (fault.session == 0) {
        on_context_lost(worker, fault);
      } else {
        on_session_fault(worker, fault);
      }
      return Status();
    }
    case wire::MessageKind::kReserved: {
      wire::Reserved reserved;
      OPENMPS_RETURN_IF_ERROR(wire::read_message(packet.data, &reserved));
      if (const auto answered = grants_.on_reserved(reserved)) {
        answer(wire::QueryKind::kReserve, answered->ticket, answered->outcome);
      }
      look_at_joined_devices();
      return Status();
    }
    case wire::MessageKind::kKeep: return on_keep(worker, packet);
    case wire::MessageKind::kForget: {
      wire::Forget forget;
      OPENMPS_RETURN_IF_ERROR(wire::read_message(packet.data, &forget));
      return on_forget(worker, forget);
    }
    case wire::MessageKind::kShareMemory: {
      wire::ShareMemory share;
      OPENMPS_RETURN_IF_ERROR(wire::read_message(packet.data, &share));
      if (session_of(worker, share.session) != nullptr) kept_.share_memory(share);
      if (share.ticket != 0) {
        worker.process->send(
            wire::message_bytes(wire::Give{.what = wire::Kept::kShared, .number = share.ticket}));
      }
      return Status();
    }
    case wire::MessageKind::kFindMemory: {
      wire::FindMemory find;
      OPENMPS_RETURN_IF_ERROR(wire::read_message(packet.data, &find));
      kept_.give_found(find, [&](std::span<const std::byte> message, std::span<const int> fds) {
        worker.process->send(message, fds);
      });
      return Status();
    }
    case wire::MessageKind::kPassDescriptor: return on_worker_descriptor(worker, packet);
    case wire::MessageKind::kDescriptorTaken: {
      wire::DescriptorTaken taken;
      OPENMPS_RETURN_IF_ERROR(wire::read_message(packet.data, &taken));
      Session* session = session_of(worker, taken.session);
      if (session == nullptr || session->passing == 0) return Status();
      --session->passing;
      choose_reading(*session);
      return Status();
    }
    default: return Status(CUDA_ERROR_INVALID_VALUE, "a kind of message that no worker sends");
  }
}

Session* Server::session_of(const Worker& worker, uint32_t id) const {
  Session* session = sessions_.find(id);
  return session != nullptr && session->worker == &worker ? session : nullptr;
}

Status Server::on_session_ready(Worker& worker, const wire::SessionReady& ready) {
  Session* session = session_of(worker, ready.session);
  if (session == nullptr) {
    return Status(CUDA_ERROR_INVALID_VALUE, format_text("no session %u is to open", ready.session));
  }
  if (session->state == SessionState::kMoving) {
    on_adopted(*session, ready);
    return Status();
  }
  if (ready.result == CUDA_ERROR_MPS_SERVER_NOT_READY) {
    // The worker's contexts are lost: the message about that follows.
    open_again(*session);
    return Status();
  }
  if (ready.result != CUDA_SUCCESS) {
    if (session->client != nullptr) {
      refuse(*session->client, session->admit, static_cast<CUresult>(ready.result),
             printable(field_text(ready.reason)));
    }
    erase_session(*session);
    after_session();
    return Status();
  }
  worker.domain->restart_backoff.worker_served();
  // Otherwise the client has left while its session opened, and CloseSession has been sent.
  if (session->state == SessionState::kOpening) welcome(*session);
  look_at_joined_devices();
  watch_devices();
  return Status();
}

void Server::on_session_closed(Worker& worker, const wire::SessionClosed& closed) {
  if (closed.tainted != 0) worker.is_tainted = true;
  if (session_of(worker, closed.session) == nullptr) return;
  forget_session(closed.session);
  workers_.look_at_windows(worker);
  after_session();
}

// A client that has left needs no descriptor.
Status Server::on_worker_descriptor(Worker& worker, const Packet& packet) {
  wire::PassDescriptor message;
  OPENMPS_RETURN_IF_ERROR(wire::read_message(packet.data, &message));
  Session* session = session_of(worker, message.session);
  if (session == nullptr || session->client == nullptr) return Status();
  if (packet.fds.size() != 1) {
    // The system had no descriptor left to receive it with.
    on_client_gone(message.session, "a descriptor for it was lost");
    return Status();
  }
  const int descriptor = packet.fds[0].get();
  session->client->send(wire::message_bytes(message), {&descriptor, 1});
  return Status();
}

// Without a descriptor: the system had none left to receive it with.
Status Server::on_keep(Worker& worker, Packet& packet) {
  wire::Keep keep;
  OPENMPS_RETURN_IF_ERROR(wire::read_message(packet.data, &keep));
  if (packet.fds.size() > 1 || keep.device >= wire::kMaxDevices) {
    return Status(CUDA_ERROR_INVALID_VALUE, "it has sent nothing that can be kept");
  }
  UniqueFd file = packet.fds.empty() ? UniqueFd() : std::move(packet.fds[0]);
  if (keep.what == wire::Kept::kMemory || keep.what == wire::Kept::kContents) {
    if (session_of(worker, keep.session) != nullptr) kept_.keep_memory(keep, std::move(file));
    if (keep.ticket != 0) kept_.answer_when_closed(worker, keep.ticket);
  } else if (kept_.keep_image(worker, keep, std::move(file))) {
    kept_.give_image(keep.number,
                     [&](std::span<const std::byte> message, std::span<const int> fds) {
                       workers_.tell_others(worker, message, fds);
                     });
  }
  return Status();
}

// No worker has the image any more.
void Server::tell_of_closed_image(uint64_t hash) {
  workers_.tell_all(wire::message_bytes(wire::Forget{.what = wire::Kept::kImage, .number = hash}));
}

Status Server::on_forget(Worker& worker, const wire::Forget& forget) {
  if (forget.what == wire::Kept::kImage) {
    const Kept::Forgotten forgotten =
        kept_.forget_image(worker, forget.number, has_session_between_workers());
    if (forgotten == Kept::Forgotten::kClosed) tell_of_closed_image(forget.number);
    if (forgotten == Kept::Forgotten::kLeft) {
      kept_.give_image(forget.number,
                       [&](std::span<const std::byte> message, std::span<const int> fds) {
                         worker.process->send(message, fds);
                       });
    }
  } else if (session_of(worker, forget.session) != nullptr) {
    kept_.forget_memory(forget.session, forget.number);
  }
  if (forget.ticket != 0) {
    kept_.answer_when_closed(worker, forget.ticket);
  }
  return Status();
}

void Server::on_session_fault(Worker& worker, const wire::SessionFault& fault) {
  Session* session = session_of(worker, fault.session);
  if (session == nullptr) return;  // it ended while the message was on its way
  log_.write(format_text("Client %s (%s) is ended with CUDA error %u: %s", session->name().c_str(),
                         printable(field_text(session->admit.hello.command)).c_str(), fault.result,
                         printable(field_text(fault.reason)).c_str()));
  history_.note(make_event(wire::EventKind::kClientFailed, session, field_text(fault.reason),
                           static_cast<CUresult>(fault.result)));
  // The client keeps its connection and learns the status from its channel; the worker frees what
  // the session held now, not when the client leaves.
  session->end_with(static_cast<CUresult>(fault.result));
  end_session(*session, static_cast<CUresult>(fault.result));
  // It is known already that its work does not end.
  if (fault.result != CUDA_ERROR_LAUNCH_TIMEOUT) return;
  session = sessions_.find(fault.session);
  if (session == nullptr) return;
  loop_.cancel(std::exchange(session->drain_timer, 0));
  abandon(*session);
}

void Server::on_context_lost(Worker& worker, const wire::SessionFault& fault) {
  log_.write(format_text("Server is handling a fatal GPU error: CUDA error %u: %s", fault.result,
                         printable(field_text(fault.reason)).c_str()));
  note_fault(*worker.domain, nullptr, static_cast<CUresult>(fault.result),
             field_text(fault.reason));
  log_.write("The following clients have a sticky error set:");
  for (const uint32_t id : sessions_.ids_of(worker)) {
    Session& session = *sessions_.find(id);
    if (session.state == SessionState::kOpening) {
      open_again(session);
      continue;
    }
    session.end_with(static_cast<CUresult>(fault.result));
    history_.note(make_event(wire::EventKind::kLost, &session, "its worker's contexts are lost",
                             static_cast<CUresult>(fault.result)));
    log_.write(format_text("%u %s", session.admit.pid,
                           printable(field_text(session.admit.hello.command)).c_str()));
  }
  workers_.discard(worker);
  after_session();
}

void Server::on_sessions_lost(const Worker& worker, const std::string& how) {
  const bool was_to_end = worker.state == WorkerState::kEnding ||
                          worker.state == WorkerState::kLost ||
                          worker.state == WorkerState::kStarting;
  if (!how.empty() && !was_to_end) {
    wire::Event died =
        make_event(wire::EventKind::kWorkerDied, nullptr,
                   format_text("worker %d ", static_cast<int>(worker.process->pid())) + how);
    fill_field(died.domain, worker.domain->name);
    history_.note(died);
  }
  // It has died before all its sessions were handed over.
  if (Takeover* const takeover = takeover_of(worker); takeover != nullptr) {
    if (!takeover->is_judged) judge(*takeover);
    if (!takeover->awaited.empty()) take_late(*takeover);
    loop_.cancel(takeover->timer);
    std::erase_if(takeovers_, [&worker](const auto& held) { return held->worker == &worker; });
  }
  if (!how.empty()) kept_.on_worker_gone(worker);
  const std::vector<uint32_t> ids = sessions_.ids_of(worker);
  const auto recovery = std::make_shared<Recovery>();
  recovery->began_ns = now_ns();
  recovery->result = CUDA_ERROR_MPS_RPC_FAILURE;
  const bool has_active = std::ranges::any_of(
      ids, [this](uint32_t id) { return sessions_.find(id)->state == SessionState::kActive; });
  const bool goes_on = has_active && !how.empty() && note_worker_lost(*worker.domain);
  for (const uint32_t id : ids) {
    Session& session = *sessions_.find(id);
    if (goes_on && session.state == SessionState::kActive) {
      if (!take_from_dead(session, recovery)) forget_session(id);
      continue;
    }
    // A session that was being opened has nothing to lose, so its client waits for the next worker.
    // Not twice: opening it may be what ends workers.
    if (session.state == SessionState::kOpening && session.client != nullptr && !how.empty() &&
        !std::exchange(session.has_lost_worker, true)) {
      log_.write("Client " + session.name() + " waits for the next worker: this one " + how);
      open_again(session);
      continue;
    }
    // It was being made again: its journal has what it had.
    if (session.state == SessionState::kMoving && session.tries != 0 &&
        session.tries < kMostTries && !how.empty()) {
      loop_.cancel(std::exchange(session.adoption_timer, 0));
      session.leave_worker();
      session.adoption = wire::Adoption::kFound;
      continue;
    }
    session.end_with(CUDA_ERROR_MPS_RPC_FAILURE);
    if (!how.empty() && session.client != nullptr) {
      if (session.state == SessionState::kOpening) {
        refuse(*session.client, session.admit, CUDA_ERROR_MPS_RPC_FAILURE, "the worker " + how);
      } else {
        log_.write("Client " + session.name() + " has lost its session: the worker " + how);
        history_.note(make_event(wire::EventKind::kLost, &session, "the worker " + how,
                                 CUDA_ERROR_MPS_RPC_FAILURE));
      }
    }
    forget_session(id);
  }
}

void Server::on_worker_silent(const Worker& worker) {
  for (const uint32_t id : sessions_.ids_of(worker)) {
    Session* session = sessions_.find(id);
    if (session == nullptr || session->state != SessionState::kOpening) continue;
    std::optional<Waiting> next = take_client(*session);
    if (next) waiting_.push_back(std::move(*next));
    // If the worker continues, it opens the session and closes it.
    end_session(*session, CUDA_ERROR_MPS_RPC_FAILURE);
  }
  start_awaited_workers();
  after_session();
}

void Server::start_awaited_workers() {
  std::set<Domain*> awaited;
  for (const Waiting& waiting : waiting_) awaited.insert(waiting.domain);
  for (const auto& [id, session] : sessions_.all()) {
    const bool has_none = session->state == SessionState::kMoving && session->worker == nullptr;
    const bool is_elsewhere =
        session->state == SessionState::kActive && session->worker->domain != session->domain;
    if (has_none || is_elsewhere) awaited.insert(session->domain);
  }
  for (Domain* domain : awaited) workers_.start(*domain);
}

void Server::on_worker_gone() {
  adopt_waiting();
  start_awaited_workers();
  after_session();
}

void Server::on_no_worker(Domain& domain, const std::string& reason) {
  if (!domain.is_common()) {
    log_.write("No worker can be started for domain " + domain.name + ": " + reason);
    return dissolve(domain);
  }
  log_.write("MPS server failed to start: " + reason);
  std::vector<uint32_t> lost;
  while (!waiting_.empty()) {
    refuse(std::move(waiting_.front().client), waiting_.front().admit,
           CUDA_ERROR_MPS_CONNECTION_FAILED, reason);
    waiting_.pop_front();
  }
  for (const auto& [id, session] : sessions_.all()) {
    if (session->state == SessionState::kMoving && session->worker == nullptr) lost.push_back(id);
  }
  for (const uint32_t id : lost) {
    Session& session = *sessions_.find(id);
    lose(session, CUDA_ERROR_MPS_RPC_FAILURE, "no worker can be started: " + reason);
    forget_session(id);
  }
  on_no_spare(domain);
  if (sessions_.clients() != 0) return;  // clients of older workers continue
  report_ready(CUDA_ERROR_MPS_CONNECTION_FAILED, reason);
  finish(1);
}

// ---- Sessions ---------------------------------------------------------------------------------

void Server::open_session(Waiting next) {
  const wire::Admit& admit = next.admit;
  Result<Session*> made = sessions_.create(admit, *next.domain);
  if (!made.ok()) {
    refuse(std::move(next.client), admit, made.status().code(), made.status().message());
    return;
  }
  Session& session = **made;
  session.has_lost_worker = next.has_lost_worker;
  session.only_gpu = only_gpu_of(admit);
  grants_.grant(session);
  session.worker = Workers::serving(*next.domain);
  Status status;
  try {
    status = start_session(session, std::move(next.client));
  } catch (const std::bad_alloc&) {
    status = Status(CUDA_ERROR_OUT_OF_MEMORY, "the server is out of memory");
  }
  if (status.ok()) return;
  if (session.client != nullptr) {
    refuse(*session.client, session.admit, status.code(), status.message());
  }
  erase_session(session);
}

Status Server::start_session(Session& session, ForeignFd client) {
  const uint32_t id = session.id;
  session.client = std::make_unique<PacketPeer>(
      loop_, client.take(),
      PacketPeer::Options{.max_packet_bytes = kMaxClientPacketBytes,
                          .descriptors = Descriptors::kTaken,
                          .disposal = &disposal_},
      PacketPeer::Callbacks{[this, id](Packet packet) { on_client_packet(id, std::move(packet)); },
                            [this, id](const std::string&) { on_client_gone(id, ""); },
                            [this, id](const std::string& why) {
                              log_.write(format_text("Messages to client %u wait: ", id) + why);
                            }});
  OPENMPS_RETURN_IF_ERROR(session.client->start());
  epoll_event event{};
  event.events = EPOLLET;  // EPOLLHUP, once
  event.data.u32 = id;
  if (epoll_ctl(hang_ups_.get(), EPOLL_CTL_ADD, session.client->fd(), &event) != 0) {
    return Status(CUDA_ERROR_OPERATING_SYSTEM, std::string("epoll_ctl: ") + strerror(errno));
  }
  OPENMPS_RETURN_IF_ERROR(grants_.use_partition(session));
  const wire::OpenSession open = make_open_session(session, grants_.groups());
  const int files[] = {session.host_file.get(), session.journal.get()};
  sessions_.lend_window(session);
  session.worker->process->send(wire::message_bytes(open),
                                std::span(files).first(session.journal.valid() ? 2 : 1));
  Workers::note_session(*session.worker);
  return Status();
}

void Server::welcome(Session& session) {
  const wire::Grant& granted = session.grant;
  wire::Welcome welcome;
  welcome.session = session.id;
  welcome.window_base = wire::window_base(session.window);
  welcome.server_pid = static_cast<uint32_t>(getpid());
  welcome.spin_us = session.worker->spin_us;
  welcome.limits = granted.limits;
  welcome.partition = session.admit.partition;
  const Group* const group = grants_.groups().find(granted.group);
  if (group != nullptr) {
    welcome.in_group = 1;
    welcome.group_limits = group->limits;
  }
  const int files[] = {session.host_file.get(), session.worker->facts.get()};
  session.state = SessionState::kActive;
  session.history_group = history_.on_opened(field_text(session.admit.group));
  log_.write("Client " + session.name() +
             " connected: " + printable(field_text(session.admit.hello.command)));
  if (group != nullptr) {
    log_.write("Client " + session.name() + " is in group " + printable(group->name));
  }
  if (session.admit.hello.quality == wire::Quality::kUnknown) {
    log_.write("Client " + session.name() +
               ": OPENMPS_QOS is neither latency, normal nor best-effort: ignored");
  }
  if (session.admit.hello.replay == wire::Replay::kUnknown) {
    log_.write("Client " + session.name() +
               ": OPENMPS_REPLAY is neither copies, always nor never: ignored");
  }
  const std::string_view domain = field_text(session.admit.hello.domain);
  if (!domain.empty() && !wire::is_domain_name(domain)) {
    log_.write("Client " + session.name() + ": OPENMPS_DOMAIN is no name of a domain: ignored");
  }
  if (!session.domain->is_common()) {
    log_.write("Client " + session.name() + " is in domain " + session.domain->name);
  }
  const std::vector<Device>& devices = workers_.devices();
  const uint32_t device = device_of(session.admit, devices);
  if (device < devices.size()) {
    log_.write("Device " + devices[device].name + " (uuid " + devices[device].uuid +
               ") is associated");
  }
  log_.write("Status of client " + session.name() + " is ACTIVE");
  session.client->send(wire::message_bytes(welcome), files);
  tell_awaited_residence(session);
  tell_of_traces(session);
  look_at_spare(*session.domain);
}

void Server::refuse(PacketPeer& client, const wire::Admit& admit, CUresult result,
                    const std::string& reason) {
  wire::Welcome no;
  no.result = result;
  fill_field(no.reason, reason);
  log_.write(format_text("Client refused with CUDA error %d: %s", static_cast<int>(result),
                         reason.c_str()));
  wire::Event event = make_event(wire::EventKind::kRefused, nullptr, reason, result);
  event.pid = admit.pid;
  fill_field(event.command, printable(field_text(admit.hello.command)));
  fill_field(event.group, field_text(admit.group));
  history_.note(event);
  client.send(wire::message_bytes(no));
}

void Server::refuse(ForeignFd client, const wire::Admit& admit, CUresult result,
                    const std::string& reason) {
  // The socket's buffer is empty, so nothing is left to send when the connection closes after this.
  PacketPeer peer(loop_, client.take(), {.disposal = &disposal_}, {});
  refuse(peer, admit, result, reason);
}

void Server::on_client_packet(uint32_t id, Packet packet) {
  std::vector<ForeignFd> descriptors;
  for (UniqueFd& fd : packet.fds) descriptors.emplace_back(disposal_, std::move(fd));
  Session* session = sessions_.find(id);
  if (session == nullptr) return;
  wire::PassDescriptor message;
  const Status status = wire::read_message(packet.data, &message);
  // The client library sends memory, and a connection into which its session is recorded, which the
  // worker closes on a thread of its own. Anything else is refused here.
  const auto is_expected = [&message](int descriptor) {
    return message.ticket == wire::kRecordTicket ? is_packet_socket(descriptor)
                                                 : may_be_memory(descriptor);
  };
  if (!status.ok() || descriptors.size() != 1 || !is_expected(descriptors[0].get()) ||
      session->state == SessionState::kOpening) {
    on_client_gone(id, "it sent a message that none expects");
    return;
  }
  if (session->state == SessionState::kEnding) return;
  message.session = id;
  if (session->state == SessionState::kMoving || session->is_leaving) {
    session->parked.emplace_back(message, std::move(descriptors[0]));
  } else {
    ++session->passing;
    const int descriptor = descriptors[0].get();
    session->worker->process->send(wire::message_bytes(message), {&descriptor, 1});
  }
  choose_reading(*session);
}

// A client waits when the worker has not confirmed so many of its descriptors.
void Server::choose_reading(Session& session) {
  const bool is_full =
      session.passing >= wire::kMaxPassing || session.parked.size() >= wire::kMaxPassing;
  if (session.client != nullptr) session.client->pause_reading(is_full);
}

void Server::on_client_gone(uint32_t id, const std::string& unexpected) {
  Session* session = sessions_.find(id);
  if (session == nullptr || session->client == nullptr) return;
  if (!unexpected.empty()) {
    log_.write("Client " + session->name() + " is cut off: " + unexpected);
  }
  ignore_hang_up(*session);
  session->client.reset();
  const uint32_t others = sessions_.clients() - (session->state == SessionState::kEnding ? 0 : 1);
  log_.write(format_text("Client %s exiting. Number of active client contexts is %u.",
                         session->name().c_str(), others));
  end_session(*session, CUDA_ERROR_MPS_RPC_FAILURE);
}

void Server::end_session(Session& session, CUresult result) {
  if (session.state == SessionState::kEnding) return;
  if (session.worker == nullptr) {  // it waits for one
    forget_session(session.id);
    after_session();
    return;
  }
  note_decided(session, &Recovery::lost);
  session.state = SessionState::kEnding;
  wire::CloseSession close;
  close.session = session.id;
  close.result = result;
  session.worker->process->send(wire::message_bytes(close));
  session.drain_timer =
      loop_.call_after(options_.drain_ms, [this, id = session.id] { on_drain_late(id); });
  after_session();
}

void Server::on_drain_late(uint32_t id) {
  Session* session = sessions_.find(id);
  if (session == nullptr || workers_.stopping()) return;
  session->drain_timer = 0;
  abandon(*session);
}

void Server::abandon(const Session& session) {
  const uint32_t id = session.id;
  const Worker& worker = *session.worker;
  if (worker.state != WorkerState::kServing) {  // it is replaced already
    note_end(id);
    return;
  }
  log_.write(format_text(
      "Client %s (%s) has left work that does not end: its worker %d is replaced",
      session.name().c_str(), printable(field_text(session.admit.hello.command)).c_str(),
      static_cast<int>(worker.process->pid())));
  workers_.retire_serving(*worker.domain, Workers::Retires::kStuck);
  note_end(id);
  after_session();
}

std::optional<Server::Waiting> Server::take_client(Session& session) {
  if (session.client == nullptr) return std::nullopt;
  ignore_hang_up(session);
  Waiting waiting{session.admit, ForeignFd(disposal_, session.client->release()),
                  session.has_lost_worker, session.domain};
  session.client.reset();
  return waiting;
}

void Server::open_again(Session& session) {
  const Worker* worker = session.worker;
  std::optional<Waiting> next = take_client(session);
  erase_session(session);
  if (!next) return;
  const Worker* const serving = Workers::serving(*next->domain);
  if (serving != nullptr && serving != worker) {
    open_session(std::move(*next));
  } else {
    waiting_.push_back(std::move(*next));
  }
}

void Server::erase_session(Session& session) {
  loop_.cancel(session.drain_timer);
  loop_.cancel(session.adoption_timer);
  if (session.client != nullptr) ignore_hang_up(session);
  note_decided(session, &Recovery::lost);
  const uint32_t id = session.id;
  const wire::Grant grant = session.grant;
  if (session.history_group != 0) history_.on_closed(session.history_group, session.usage());
  // Workers that it has left keep its addresses for it.
  if (session.moves != 0) workers_.tell_all(wire::message_bytes(wire::CloseSession{.session = id}));
  sessions_.erase(id);
  kept_.erase(id);
  grants_.on_session_erased(grant);
  note_end(id);
}

void Server::forget_session(uint32_t id) {
  Session* session = sessions_.find(id);
  if (session == nullptr) return;
  const uint32_t pid = session->admit.pid;
  erase_session(*session);
  grants_.on_client_gone(id, pid);
  log_.write(format_text("Client process %u disconnected", pid));
}

void Server::after_session() {
  if (workers_.stopping()) return;
  look_at_joined_devices();
  adopt_waiting();
  workers_.end_unused();
  look_at_spares();
  look_at_domains();
  leave_if_unused();
  if (!leaving_) workers_.renew_if_tainted();
}

// The connection is passed to another process, which may close it later.
void Server::ignore_hang_up(const Session& session) {
  epoll_ctl(hang_ups_.get(), EPOLL_CTL_DEL, session.client->fd(), nullptr);
}

void Server::notice_hang_ups() {
  epoll_event events[64];
  for (;;) {
    const int count = epoll_wait(hang_ups_.get(), events, std::size(events), 0);
    for (int i = 0; i < count; ++i) on_client_gone(events[i].data.u32, "");
    if (count < static_cast<int>(std::size(events))) return;
  }
}

void Server::leave_if_unused() {
  if (!leaving_ || sessions_.clients() != 0 || !waiting_.empty()) return;
  if (sessions_.empty()) {
    log_.write("Server is shutting down");
    finish(0);
  } else if (leave_timer_ == 0) {
    leave_timer_ = loop_.call_after(kLeaveMs, [this] {
      if (workers_.stopping()) return;
      log_.write("Server is shutting down: the work of clients that have gone does not end");
      finish(0);
    });
  }
}

}  // namespace openmps::server
