// SPDX-License-Identifier: Apache-2.0
// openmps-server's dealings with its workers: start, messages, faults, end, replacement
// (docs/decisions/0010). A lost worker ends its sessions. Rebuilding them in another worker instead
// has its place in end_worker() and on_worker_gone(), and nowhere else.
#include <algorithm>

#include "base/clock.h"
#include "base/text.h"
#include "server/answers.h"
#include "server/server.h"
#include "wire/message.h"

namespace openmps::server {

// ---- Life ---------------------------------------------------------------------------------------

void Server::start_worker() {
  ++worker_attempts_;
  current_ = workers_.emplace_back(std::make_unique<Worker>()).get();
  Worker& worker = *current_;
  worker.process = std::make_unique<WorkerChild>(
      loop_, disposal_,
      WorkerChild::Callbacks{
          [this, &worker](Packet packet) { on_worker_packet(worker, packet); },
          [this, &worker](const std::string& how) { on_worker_gone(worker, how); }});
  const Status started = worker.process->start(options_.worker_program, options_.driver);
  if (started.ok()) {
    worker.ready_timer =
        loop_.call_after(options_.worker_ready_ms, [this, &worker] { on_worker_late(worker); });
    return;
  }
  // No second attempt: the program is not there or can't run.
  current_ = nullptr;
  workers_.pop_back();
  give_up(started.message());
}

void Server::on_worker_late(Worker& worker) {
  if (finishing_) return;
  worker.error = format_text("the worker did not become ready within %llu s: its driver hangs",
                             static_cast<unsigned long long>(options_.worker_ready_ms / 1000));
  worker.process->kill_now();  // on_worker_gone() is next
}

void Server::on_worker_gone(Worker& worker, const std::string& how) {
  const pid_t pid = worker.process->pid();
  const std::string error = worker.error;
  const bool was_current = &worker == current_;
  if (was_current) current_ = nullptr;
  loop_.cancel(worker.ready_timer);
  if (!finishing_) {
    log_.write(format_text("Worker %d %s", static_cast<int>(pid), how.c_str()));
    for (const uint32_t id : sessions_.ids_of(worker)) {
      Session& session = *sessions_.find(id);
      session.end_with(CUDA_ERROR_MPS_RPC_FAILURE);
      if (session.client != nullptr && session.state == SessionState::kOpening) {
        refuse(*session.client, CUDA_ERROR_MPS_RPC_FAILURE, "the worker " + how);
      } else if (session.client != nullptr) {
        log_.write("Client " + name_of(session) + " has lost its session: the worker " + how);
      }
      forget_session(id);
    }
  }
  const bool was_ready = worker.state != WorkerState::kStarting;
  sessions_.return_windows(worker);
  std::erase_if(workers_, [&worker](const auto& held) { return held.get() == &worker; });
  if (finishing_) {
    if (workers_.empty()) loop_.stop();
    return;
  }
  if (was_current) {
    if (was_ready) state_ = wire::ServerState::kFault;
    if (error.empty() && worker_attempts_ < kWorkerStartAttempts) {
      replace_worker();
    } else {
      give_up(error.empty() ? "the worker " + how : error);
    }
  }
  after_session();
}

void Server::replace_worker() {
  if (finishing_ || start_pending_ || (leaving_ && waiting_.empty())) return;
  const uint64_t pause_ms = restart_backoff_.worker_ended(now_ns());
  if (pause_ms == 0) {
    start_worker();
    return;
  }
  log_.write(
      format_text("The next worker starts in %llu ms", static_cast<unsigned long long>(pause_ms)));
  start_pending_ = true;
  loop_.call_after(pause_ms, [this] {
    start_pending_ = false;
    if (!finishing_ && current_ == nullptr) start_worker();
  });
}

void Server::give_up(const std::string& reason) {
  log_.write("MPS server failed to start: " + reason);
  while (!waiting_.empty()) {
    refuse(std::move(waiting_.front().client), CUDA_ERROR_MPS_CONNECTION_FAILED, reason);
    waiting_.pop_front();
  }
  if (sessions_.clients() != 0) {
    // Those of older workers go on; the next newcomer has it tried again.
    worker_attempts_ = 0;
    return;
  }
  report_ready(CUDA_ERROR_MPS_CONNECTION_FAILED, reason);
  finish(1);
}

void Server::retire(Worker& worker) {
  if (finishing_ || worker.state >= WorkerState::kRetiring) return;
  worker.state = WorkerState::kRetiring;
  if (&worker == current_) {
    current_ = nullptr;
    state_ = wire::ServerState::kInitializing;
    replace_worker();
  }
  const auto retires = [](const auto& held) { return held->state == WorkerState::kRetiring; };
  if (static_cast<size_t>(std::count_if(workers_.begin(), workers_.end(), retires)) >
      kMaxRetiringWorkers) {
    Worker& oldest = **std::find_if(workers_.begin(), workers_.end(), retires);
    log_.write(format_text("Too many workers are being replaced: worker %d ends with its clients",
                           static_cast<int>(oldest.process->pid())));
    end_worker(oldest);
  }
  after_session();
  if (worker.state == WorkerState::kRetiring) {
    worker.process->send(wire::message_bytes(wire::CloseSession{}));
  }
}

void Server::end_worker(Worker& worker) {
  if (worker.state == WorkerState::kEnding) return;
  worker.state = WorkerState::kEnding;
  for (const uint32_t id : sessions_.ids_of(worker)) {
    sessions_.find(id)->end_with(CUDA_ERROR_MPS_RPC_FAILURE);
    forget_session(id);
  }
  worker.process->stop();  // on_worker_gone() is the end of it
}

void Server::renew_if_worn() {
  if (finishing_ || leaving_ || !is_open() || sessions_.clients_of(*current_) != 0) return;
  if (!current_->worn && !sessions_.wears(*current_)) return;
  log_.write(
      format_text("Worker %d is renewed: its clients have left the device's heap or limits "
                  "changed",
                  static_cast<int>(current_->process->pid())));
  retire(*current_);
}

// ---- Messages -----------------------------------------------------------------------------------

void Server::on_worker_packet(Worker& worker, Packet& packet) {
  if (finishing_ || worker.state == WorkerState::kEnding) return;
  const Status handled = handle_worker_packet(worker, packet);
  if (handled.ok()) return;
  log_.write("The worker breaks the protocol and is replaced: " + handled.message());
  worker.process->kill_now();
}

Status Server::handle_worker_packet(Worker& worker, Packet& packet) {
  Result<wire::MessageHeader> header = wire::read_header(packet.data);
  if (!header.ok()) return header.status();
  switch (header->kind) {
    case wire::MessageKind::kWorkerReady: return on_worker_ready(worker, packet);
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
    case wire::MessageKind::kWindowFree: {
      wire::WindowFree free;
      OPENMPS_RETURN_IF_ERROR(wire::read_message(packet.data, &free));
      if (sessions_.return_window(free.window, worker)) return Status();
      return Status(CUDA_ERROR_INVALID_VALUE,
                    format_text("it does not have window %u", free.window));
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
    case wire::MessageKind::kPassDescriptor: return on_worker_descriptor(worker, packet);
    case wire::MessageKind::kDescriptorTaken: {
      wire::DescriptorTaken taken;
      OPENMPS_RETURN_IF_ERROR(wire::read_message(packet.data, &taken));
      Session* session = session_of(worker, taken.session);
      if (session != nullptr && session->passing != 0) --session->passing;
      return Status();
    }
    default: return Status(CUDA_ERROR_INVALID_VALUE, "a kind of message that no worker sends");
  }
}

Session* Server::session_of(const Worker& worker, uint32_t id) const {
  Session* session = sessions_.find(id);
  return session != nullptr && session->worker == &worker ? session : nullptr;
}

Status Server::on_worker_ready(Worker& worker, Packet& packet) {
  wire::WorkerReady ready;
  OPENMPS_RETURN_IF_ERROR(wire::read_message(packet.data, &ready));
  if (worker.state != WorkerState::kStarting) {
    return Status(CUDA_ERROR_INVALID_VALUE, "it is ready twice");
  }
  loop_.cancel(worker.ready_timer);
  const Status same = wire::check_build(ready.build, "worker", "server");
  if (ready.result != CUDA_SUCCESS || !same.ok()) {
    worker.error = same.ok() ? printable(field_text(ready.reason)) : same.message();
    log_.write(format_text("The worker can't start (CUDA error %u): %s",
                           same.ok() ? ready.result : static_cast<uint32_t>(same.code()),
                           worker.error.c_str()));
    worker.process->stop();  // on_worker_gone() is next
    return Status();
  }
  if (packet.fds.empty()) return Status(CUDA_ERROR_INVALID_VALUE, "it sent no device facts");
  Result<std::vector<Device>> devices = read_devices(packet.fds[0].get());
  if (!devices.ok()) return devices.status();
  devices_ = std::move(devices).value();
  worker.facts = std::move(packet.fds[0]);
  worker.spin_us = ready.spin_us;
  for (size_t i = 0; i < devices_.size(); ++i) {
    log_.write(
        format_text("Creating server context on device %zu (%s)", i, devices_[i].name.c_str()));
  }
  options_.on_worker_ready();
  worker_attempts_ = 0;
  restart_backoff_.worker_ready(now_ns());
  worker.state = WorkerState::kServing;
  state_ = wire::ServerState::kActive;
  log_.write(
      format_text("Server has started (worker %d)", static_cast<int>(worker.process->pid())));
  report_ready(CUDA_SUCCESS, "");
  std::deque<Waiting> waiting;
  waiting.swap(waiting_);
  for (Waiting& next : waiting) open_session(next.admit, std::move(next.client));
  return Status();
}

Status Server::on_session_ready(Worker& worker, const wire::SessionReady& ready) {
  Session* session = session_of(worker, ready.session);
  if (session == nullptr) {
    return Status(CUDA_ERROR_INVALID_VALUE, format_text("no session %u is to open", ready.session));
  }
  if (ready.result == CUDA_ERROR_MPS_SERVER_NOT_READY) {
    // Its contexts are lost: the message that says so is on its way.
    open_again(*session);
    return Status();
  }
  if (ready.result != CUDA_SUCCESS) {
    if (session->client != nullptr) {
      refuse(*session->client, static_cast<CUresult>(ready.result),
             printable(field_text(ready.reason)));
    }
    erase_session(*session);
    after_session();
    return Status();
  }
  restart_backoff_.worker_served();
  // A client that left while its session opened: CloseSession is on its way.
  if (session->state == SessionState::kOpening) welcome(*session);
  return Status();
}

void Server::on_session_closed(Worker& worker, const wire::SessionClosed& closed) {
  if (closed.worn != 0) worker.worn = true;
  if (session_of(worker, closed.session) == nullptr) return;
  forget_session(closed.session);
  if (&worker == current_ && sessions_.kept_windows(worker) > kMaxKeptWindows) {
    log_.write(
        format_text("Work that does not end has kept worker %d from giving back what %u "
                    "clients have left: it is replaced",
                    static_cast<int>(worker.process->pid()), kMaxKeptWindows));
    retire(worker);
  }
  after_session();
}

// A client that has left does not need it any more.
Status Server::on_worker_descriptor(Worker& worker, const Packet& packet) {
  wire::PassDescriptor message;
  OPENMPS_RETURN_IF_ERROR(wire::read_message(packet.data, &message));
  Session* session = session_of(worker, message.session);
  if (session == nullptr || session->client == nullptr) return Status();
  if (packet.fds.size() != 1) {
    // The system had none left to receive it with.
    on_client_gone(message.session, "a descriptor for it was lost");
    return Status();
  }
  const int descriptor = packet.fds[0].get();
  session->client->send(wire::message_bytes(message), {&descriptor, 1});
  return Status();
}

void Server::on_session_fault(Worker& worker, const wire::SessionFault& fault) {
  Session* session = session_of(worker, fault.session);
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

// Nothing of the worker is of use to anybody any more, and its memory is to newcomers: it ends now,
// whether its clients go on with their error or not.
void Server::on_context_lost(Worker& worker, const wire::SessionFault& fault) {
  log_.write(format_text("Server is handling a fatal GPU error: CUDA error %u: %s", fault.result,
                         printable(field_text(fault.reason)).c_str()));
  const bool was_current = &worker == current_;
  if (was_current) {
    current_ = nullptr;
    state_ = wire::ServerState::kFault;
  }
  log_.write("The following clients have a sticky error set:");
  for (const uint32_t id : sessions_.ids_of(worker)) {
    Session& session = *sessions_.find(id);
    if (session.state == SessionState::kOpening) {
      open_again(session);
      continue;
    }
    session.end_with(static_cast<CUresult>(fault.result));
    log_.write(format_text("%u %s", session.admit.pid,
                           printable(field_text(session.admit.hello.command)).c_str()));
  }
  end_worker(worker);
  if (was_current) replace_worker();
  after_session();
}

}  // namespace openmps::server
