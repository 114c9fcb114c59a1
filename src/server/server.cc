// SPDX-License-Identifier: Apache-2.0
// openmps-server's state: daemon and sessions. What comes from the worker is in server_worker.cc.
#include "server/server.h"

#include <string.h>

#include <algorithm>

#include "base/text.h"
#include "server/answers.h"
#include "wire/message.h"

namespace openmps::server {
namespace {

// Nothing that a client may send over its connection after Hello is longer: PassDescriptor.
constexpr size_t kMaxClientPacketBytes = 4096;

}  // namespace

Server::Server(EventLoop& loop, const Log& log, ServerOptions options)
    : loop_(loop), log_(log), options_(std::move(options)) {}

Status Server::start(UniqueFd daemon) {
  daemon_ = std::make_unique<PacketPeer>(
      loop_, std::move(daemon), wire::kMaxMessageBytes,
      PacketPeer::Callbacks{[this](Packet packet) { on_daemon_packet(std::move(packet)); },
                            [this](const std::string&) { on_daemon_gone(); }});
  OPENMPS_RETURN_IF_ERROR(daemon_->start());
  log_.write("Initializing server process");
  start_worker();
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
        if (status.ok() && !packet.fds.empty()) on_admit(admit, std::move(packet.fds[0]));
        break;
      }
      case wire::MessageKind::kQuery: {
        wire::Query query;
        status = wire::read_message(packet.data, &query);
        if (status.ok()) on_query(query);
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
  log_.write("The control daemon has gone: the server ends with its last client");
  leaving_ = true;
  after_session();
}

void Server::on_admit(const wire::Admit& admit, UniqueFd client) {
  log_.write(format_text("Received new client request for {PID: %u}", admit.pid));
  if (leaving_) {
    refuse(std::move(client), CUDA_ERROR_MPS_SERVER_NOT_READY, "the server is shutting down");
  } else if (context_lost_) {
    refuse(
        std::move(client), CUDA_ERROR_MPS_SERVER_NOT_READY,
        "the server recovers from a fatal GPU error and waits for the affected clients to leave");
  } else if (worker_ready_) {
    open_session(admit, std::move(client));
  } else if (waiting_.size() < wire::kMaxWindows) {
    waiting_.push_back(Waiting{admit, std::move(client)});
  } else {
    refuse(std::move(client), CUDA_ERROR_MPS_MAX_CLIENTS_REACHED,
           "too many clients wait for the worker to start");
  }
}

void Server::on_query(const wire::Query& query) {
  const std::vector<std::byte> answer = make_answer(query, state_, sessions_, devices_);
  daemon_->send(answer);
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
  ready.worker_pid = worker_ != nullptr ? static_cast<uint32_t>(worker_->pid()) : 0;
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
  if (finishing_) return;
  finishing_ = true;
  exit_status_ = exit_status;
  if (worker_ == nullptr) {
    loop_.stop();
  } else {
    worker_->stop();
  }
}

// ---- Sessions ---------------------------------------------------------------------------------

std::string Server::name_of(const Session& session) const {
  return format_text("{PID: %u, Context ID: %u}", session.admit.pid, session.id);
}

void Server::open_session(const wire::Admit& admit, UniqueFd client) {
  Result<Session*> made = sessions_.create(admit);
  if (!made.ok()) {
    refuse(std::move(client), made.status().code(), made.status().message());
    return;
  }
  Session& session = **made;
  const uint32_t id = session.id;
  session.client = std::make_unique<PacketPeer>(
      loop_, std::move(client), kMaxClientPacketBytes,
      PacketPeer::Callbacks{[this, id](const Packet& packet) { on_client_packet(id, packet); },
                            [this, id](const std::string&) { on_client_gone(id, ""); }});
  if (const Status watched = session.client->start(); !watched.ok()) {
    refuse(*session.client, watched.code(), watched.message());
    sessions_.erase(id);
    return;
  }
  const wire::OpenSession open = make_open_session(session);
  const int host_file = session.host_file.get();
  worker_->send(wire::message_bytes(open), {&host_file, 1});
}

void Server::welcome(Session& session) {
  const wire::OpenSession granted = make_open_session(session);
  wire::Welcome welcome;
  welcome.session = session.id;
  welcome.window_base = wire::window_base(session.window);
  welcome.server_pid = static_cast<uint32_t>(getpid());
  welcome.spin_us = spin_us_;
  welcome.active_thread_percentage = granted.active_thread_percentage;
  welcome.client_priority = granted.client_priority;
  std::copy(std::begin(granted.memory_limit), std::end(granted.memory_limit),
            std::begin(welcome.memory_limit));
  const int files[] = {session.host_file.get(), facts_.get()};
  session.state = SessionState::kActive;
  log_.write("Client " + name_of(session) +
             " connected: " + printable(field_text(session.admit.hello.command)));
  const uint32_t device =
      first_visible_device(devices_, field_text(session.admit.hello.visible_devices));
  if (device < devices_.size()) {
    log_.write("Device " + devices_[device].name + " (uuid " + devices_[device].uuid +
               ") is associated");
  }
  log_.write("Status of client " + name_of(session) + " is ACTIVE");
  session.client->send(wire::message_bytes(welcome), files);
}

void Server::refuse(PacketPeer& client, CUresult result, const std::string& reason) {
  wire::Welcome no;
  no.result = result;
  fill_field(no.reason, reason);
  log_.write(format_text("Client refused with CUDA error %d: %s", static_cast<int>(result),
                         reason.c_str()));
  client.send(wire::message_bytes(no));
}

void Server::refuse(UniqueFd client, CUresult result, const std::string& reason) {
  // Its buffer is empty, so nothing can be left to send when the connection closes behind this.
  PacketPeer peer(loop_, std::move(client), kMaxClientPacketBytes, {});
  refuse(peer, result, reason);
}

void Server::on_client_packet(uint32_t id, const Packet& packet) {
  Session* session = sessions_.find(id);
  if (session == nullptr) return;
  wire::PassDescriptor message;
  const Status status = wire::read_message(packet.data, &message);
  if (!status.ok() || packet.fds.size() != 1 || session->state == SessionState::kOpening) {
    on_client_gone(id, "it sent a message that none expects");
    return;
  }
  if (session->state == SessionState::kEnding || worker_ == nullptr) return;
  if (session->passing >= wire::kMaxPassing) {
    on_client_gone(id, "it sends descriptors that it does not use");
    return;
  }
  ++session->passing;
  message.session = id;
  const int descriptor = packet.fds[0].get();
  worker_->send(wire::message_bytes(message), {&descriptor, 1});
}

void Server::on_client_gone(uint32_t id, const std::string& unexpected) {
  Session* session = sessions_.find(id);
  if (session == nullptr || session->client == nullptr) return;
  if (!unexpected.empty()) {
    log_.write("Client " + name_of(*session) + " is cut off: " + unexpected);
  }
  session->client.reset();
  log_.write(format_text("Client %s exiting. Number of active client contexts is %u.",
                         name_of(*session).c_str(), sessions_.clients()));
  end_session(*session, CUDA_ERROR_MPS_RPC_FAILURE);
}

void Server::end_session(Session& session, CUresult result) {
  if (context_lost_) {
    // The worker is about to be replaced as a whole: nothing in it is worth an orderly end.
    session.end_with(result);
    forget_session(session.id);
    return;
  }
  if (session.state == SessionState::kEnding) return;
  session.state = SessionState::kEnding;
  wire::CloseSession close;
  close.session = session.id;
  close.result = result;
  worker_->send(wire::message_bytes(close));
}

void Server::forget_session(uint32_t id) {
  const Session* session = sessions_.find(id);
  if (session == nullptr) return;
  const uint32_t pid = session->admit.pid;
  sessions_.erase(id);
  log_.write(format_text("Client process %u disconnected", pid));
  after_session();
}

void Server::after_session() {
  if (finishing_) return;
  if (!sessions_.empty()) return;
  if (leaving_ && waiting_.empty()) {
    log_.write("Server is shutting down");
    finish(0);
  } else if (context_lost_) {
    log_.write("All affected clients have left: the worker is replaced");
    worker_->stop();  // on_worker_gone() starts the next one
  }
}

}  // namespace openmps::server
