// SPDX-License-Identifier: Apache-2.0
// openmps-server's dealings with its worker: start, messages, faults, end. A lost worker ends its
// sessions and is replaced. Rebuilding sessions in another worker instead has its place in
// on_context_lost() and on_worker_gone(), and nowhere else.
#include <fcntl.h>

#include "base/clock.h"
#include "base/text.h"
#include "server/answers.h"
#include "server/server.h"
#include "wire/message.h"

namespace openmps::server {

void Server::start_worker() {
  ++worker_attempts_;
  worker_error_.clear();
  worker_ = std::make_unique<WorkerProcess>(
      loop_, WorkerProcess::Callbacks{[this](const Packet& packet) { on_worker_packet(packet); },
                                      [this](const std::string& how) { on_worker_gone(how); }});
  const Status started = worker_->start(options_.worker_program, options_.driver);
  if (started.ok()) {
    worker_ready_timer_ = loop_.call_after(options_.worker_ready_ms, [this] { on_worker_late(); });
    return;
  }
  // No second attempt: the program is not there or can't run.
  worker_.reset();
  log_.write("MPS server failed to start: " + started.message());
  while (!waiting_.empty()) {
    refuse(std::move(waiting_.front().client), CUDA_ERROR_MPS_CONNECTION_FAILED, started.message());
    waiting_.pop_front();
  }
  report_ready(CUDA_ERROR_MPS_CONNECTION_FAILED, started.message());
  finish(1);
}

void Server::on_worker_late() {
  if (finishing_) return;
  worker_error_ = format_text("the worker did not become ready within %llu s: its driver hangs",
                              static_cast<unsigned long long>(options_.worker_ready_ms / 1000));
  worker_->kill_now();  // on_worker_gone() is next
}

void Server::on_worker_packet(const Packet& packet) {
  if (finishing_) return;
  const Status handled = handle_worker_packet(packet);
  if (handled.ok()) return;
  log_.write("The worker breaks the protocol and is replaced: " + handled.message());
  worker_->kill_now();
}

Status Server::handle_worker_packet(const Packet& packet) {
  Result<wire::MessageHeader> header = wire::read_header(packet.data);
  if (!header.ok()) return header.status();
  switch (header->kind) {
    case wire::MessageKind::kWorkerReady: return on_worker_ready(packet);
    case wire::MessageKind::kSessionReady: {
      wire::SessionReady ready;
      OPENMPS_RETURN_IF_ERROR(wire::read_message(packet.data, &ready));
      return on_session_ready(ready);
    }
    case wire::MessageKind::kSessionClosed: {
      wire::SessionClosed closed;
      OPENMPS_RETURN_IF_ERROR(wire::read_message(packet.data, &closed));
      forget_session(closed.session);
      return Status();
    }
    case wire::MessageKind::kSessionFault: {
      wire::SessionFault fault;
      OPENMPS_RETURN_IF_ERROR(wire::read_message(packet.data, &fault));
      if (fault.session == 0) {
        on_context_lost(fault);
      } else {
        on_session_fault(fault);
      }
      return Status();
    }
    case wire::MessageKind::kPassDescriptor: return on_worker_descriptor(packet);
    case wire::MessageKind::kDescriptorTaken: {
      wire::DescriptorTaken taken;
      OPENMPS_RETURN_IF_ERROR(wire::read_message(packet.data, &taken));
      Session* session = sessions_.find(taken.session);
      if (session != nullptr && session->passing != 0) --session->passing;
      return Status();
    }
    default: return Status(CUDA_ERROR_INVALID_VALUE, "a kind of message that no worker sends");
  }
}

Status Server::on_worker_ready(const Packet& packet) {
  wire::WorkerReady ready;
  OPENMPS_RETURN_IF_ERROR(wire::read_message(packet.data, &ready));
  if (worker_ready_) return Status(CUDA_ERROR_INVALID_VALUE, "it is ready twice");
  loop_.cancel(worker_ready_timer_);
  if (ready.result != CUDA_SUCCESS) {
    worker_error_ = printable(field_text(ready.reason));
    log_.write(format_text("The worker can't start (CUDA error %u): %s", ready.result,
                           worker_error_.c_str()));
    worker_->stop();  // on_worker_gone() is next
    return Status();
  }
  if (packet.fds.empty()) return Status(CUDA_ERROR_INVALID_VALUE, "it sent no device facts");
  Result<std::vector<Device>> devices = read_devices(packet.fds[0].get());
  if (!devices.ok()) return devices.status();
  devices_ = std::move(devices).value();
  // A descriptor of our own: the packet's closes with it.
  facts_.reset(fcntl(packet.fds[0].get(), F_DUPFD_CLOEXEC, 0));
  spin_us_ = ready.spin_us;
  for (size_t i = 0; i < devices_.size(); ++i) {
    log_.write(
        format_text("Creating server context on device %zu (%s)", i, devices_[i].name.c_str()));
  }
  worker_attempts_ = 0;
  restart_backoff_.worker_ready(now_ns());
  worker_ready_ = true;
  state_ = wire::ServerState::kActive;
  log_.write(format_text("Server has started (worker %d)", static_cast<int>(worker_->pid())));
  report_ready(CUDA_SUCCESS, "");
  std::deque<Waiting> waiting;
  waiting.swap(waiting_);
  for (Waiting& next : waiting) open_session(next.admit, std::move(next.client));
  return Status();
}

Status Server::on_session_ready(const wire::SessionReady& ready) {
  Session* session = sessions_.find(ready.session);
  if (session == nullptr) {
    return Status(CUDA_ERROR_INVALID_VALUE, format_text("no session %u is to open", ready.session));
  }
  if (ready.result != CUDA_SUCCESS) {
    if (session->client != nullptr) {
      refuse(*session->client, static_cast<CUresult>(ready.result),
             printable(field_text(ready.reason)));
    }
    sessions_.erase(ready.session);
    after_session();
    return Status();
  }
  restart_backoff_.worker_served();
  // A client that left while its session opened: CloseSession is on its way.
  if (session->state == SessionState::kOpening) welcome(*session);
  return Status();
}

// A client that has left does not need it any more.
Status Server::on_worker_descriptor(const Packet& packet) {
  wire::PassDescriptor message;
  OPENMPS_RETURN_IF_ERROR(wire::read_message(packet.data, &message));
  if (packet.fds.size() != 1) {
    return Status(CUDA_ERROR_INVALID_VALUE, "a descriptor that is not there");
  }
  Session* session = sessions_.find(message.session);
  if (session == nullptr || session->client == nullptr) return Status();
  const int descriptor = packet.fds[0].get();
  session->client->send(wire::message_bytes(message), {&descriptor, 1});
  return Status();
}

void Server::on_session_fault(const wire::SessionFault& fault) {
  Session* session = sessions_.find(fault.session);
  if (session == nullptr) return;  // it ended while the message was on its way
  log_.write(format_text("Client %s (%s) is ended with CUDA error %u: %s",
                         name_of(*session).c_str(),
                         printable(field_text(session->admit.hello.command)).c_str(), fault.result,
                         printable(field_text(fault.reason)).c_str()));
  // The client keeps its connection and learns the status from its channel; what it held is freed
  // now, not when it gets round to leaving.
  session->end_with(static_cast<CUresult>(fault.result));
  end_session(*session, static_cast<CUresult>(fault.result));
}

void Server::on_context_lost(const wire::SessionFault& fault) {
  if (context_lost_) return;
  log_.write(format_text("Server is handling a fatal GPU error: CUDA error %u: %s", fault.result,
                         printable(field_text(fault.reason)).c_str()));
  context_lost_ = true;
  worker_ready_ = false;
  state_ = wire::ServerState::kFault;
  log_.write("The following clients have a sticky error set:");
  std::vector<uint32_t> without_client;
  for (const auto& [id, session] : sessions_.all()) {
    session->end_with(static_cast<CUresult>(fault.result));
    if (session->state == SessionState::kOpening && session->client != nullptr) {
      refuse(*session->client, CUDA_ERROR_MPS_SERVER_NOT_READY,
             "a fatal GPU error came while the session opened");
      session->client.reset();
    } else {
      log_.write(format_text("%u %s", session->admit.pid,
                             printable(field_text(session->admit.hello.command)).c_str()));
    }
    if (session->client == nullptr) without_client.push_back(id);
  }
  for (const uint32_t id : without_client) forget_session(id);
  // Otherwise the last of them has said so.
  if (without_client.empty()) after_session();
}

void Server::on_worker_gone(const std::string& how) {
  const pid_t pid = worker_->pid();
  worker_.reset();
  loop_.cancel(worker_ready_timer_);
  facts_.reset();
  if (finishing_) {
    loop_.stop();
    return;
  }
  log_.write(format_text("Worker %d %s", static_cast<int>(pid), how.c_str()));
  if (worker_ready_) state_ = wire::ServerState::kFault;
  worker_ready_ = false;
  context_lost_ = false;
  while (!sessions_.empty()) {
    Session& session = *sessions_.all().begin()->second;
    const uint32_t id = session.id;
    session.end_with(CUDA_ERROR_MPS_RPC_FAILURE);
    if (session.client != nullptr && session.state == SessionState::kOpening) {
      refuse(*session.client, CUDA_ERROR_MPS_RPC_FAILURE, "the worker " + how);
    } else if (session.client != nullptr) {
      log_.write("Client " + name_of(session) + " has lost its session: the worker " + how);
    }
    forget_session(id);
    if (finishing_) break;
  }
  if (leaving_ && waiting_.empty()) {
    finish(0);
    return;
  }
  const uint64_t pause_ms = restart_backoff_.worker_ended(now_ns());
  if (worker_error_.empty() && worker_attempts_ < kWorkerStartAttempts) {
    if (pause_ms == 0) {
      start_worker();
      return;
    }
    log_.write(format_text("The next worker starts in %llu ms",
                           static_cast<unsigned long long>(pause_ms)));
    loop_.call_after(pause_ms, [this] {
      if (!finishing_) start_worker();
    });
    return;
  }
  const std::string reason = worker_error_.empty() ? "the worker " + how : worker_error_;
  log_.write("MPS server failed to start: " + reason);
  while (!waiting_.empty()) {
    refuse(std::move(waiting_.front().client), CUDA_ERROR_MPS_CONNECTION_FAILED, reason);
    waiting_.pop_front();
  }
  report_ready(CUDA_ERROR_MPS_CONNECTION_FAILED, reason);
  finish(1);
}

}  // namespace openmps::server
