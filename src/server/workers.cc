// SPDX-License-Identifier: Apache-2.0
// The workers of one server: start, messages about themselves, end, replacement.
#include "server/workers.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/subprocess.h"
#include "base/text.h"
#include "wire/message.h"

namespace openmps::server {
// ---- Life ---------------------------------------------------------------------------------------

Domain* Workers::domain(const std::string& name) {
  const auto found = domains_.find(name);
  if (found != domains_.end()) return found->second.get();
  const auto count = std::ranges::count_if(
      domains_, [](const auto& entry) { return !entry.second->device.has_value(); });
  if (static_cast<size_t>(count) >= kMostDomains) return nullptr;
  return domains_.emplace(name, std::make_unique<Domain>(name)).first->second.get();
}

// No client can state such a name (wire::is_domain_name()).
Domain& Workers::domain_of_device(uint32_t device) {
  std::unique_ptr<Domain>& domain = domains_["gpu:" + std::to_string(device)];
  if (domain == nullptr) {
    domain = std::make_unique<Domain>("gpu:" + std::to_string(device), device);
  }
  return *domain;
}

void Workers::forget_if_unused(const Domain& domain) {
  const bool is_pending = domain.start_pending || domain.awaits_device || domain.spare_timer != 0 ||
                          domain.unused_timer != 0;
  const bool has_worker = std::ranges::any_of(
      workers_, [&domain](const auto& held) { return held->domain == &domain; });
  if (domain.is_common() || is_pending || has_worker) return;
  domains_.erase(domain.name);
}

void Workers::start(Domain& domain) {
  if (stopping_ || domain.start_pending || domain.awaits_device || domain.current != nullptr ||
      use_spare(domain)) {
    return;
  }
  ++domain.attempts;
  const bool beside = has_ending_worker();
  domain.current = workers_.emplace_back(std::make_unique<Worker>()).get();
  Worker& worker = *domain.current;
  worker.domain = &domain;
  worker.was_started_beside_ending = beside;
  if (const Status started = start_process(worker); !started.ok()) {
    // No second attempt: the program is not there or can't run.
    domain.current = nullptr;
    workers_.pop_back();
    give_up(domain, started.message());
  }
}

// Where all are taken, one of another worker: a session may then find its addresses taken there.
uint32_t Workers::choose_place() const {
  uint32_t taken = sessions_.places();
  for (const std::unique_ptr<Worker>& worker : workers_) {
    if (worker->process != nullptr) taken |= 1u << worker->place;
  }
  for (uint32_t i = 0; i < wire::kAddressPlaces; ++i) {
    const uint32_t place = (started_ + i) % wire::kAddressPlaces;
    if ((taken >> place & 1) == 0) return place;
  }
  return started_ % wire::kAddressPlaces;
}

Status Workers::start_process(Worker& worker) {
  worker.place = choose_place();
  ++started_;
  worker.process = std::make_unique<WorkerChild>(
      loop_, disposal_,
      WorkerChild::Callbacks{[this, &worker](Packet packet) { on_packet(worker, packet); },
                             [this, &worker](const std::string& how) { on_gone(worker, how); },
                             [this, &worker](const std::string& why) {
                               log_.write(format_text("Messages to worker %d wait: %s",
                                                      static_cast<int>(worker.process->pid()),
                                                      why.c_str()));
                             }});
  worker.heartbeat = make_heartbeat(worker);
  OPENMPS_RETURN_IF_ERROR(worker.process->start({.program = options_.program,
                                                 .driver = options_.driver,
                                                 .place = worker.place,
                                                 .devices = worker.domain->devices(),
                                                 .is_spare = &worker == worker.domain->spare}));
  worker.ready_ms = options_.ready_ms << (std::max(worker.domain->attempts, 1) - 1);
  worker.ready_timer = loop_.call_after(worker.ready_ms, [this, &worker] { on_late(worker); });
  return Status();
}

bool Workers::start_spare(Domain& domain, Again again) {
  if (domain.spare != nullptr) return true;
  if (again == Again::kYes) domain.can_spare = true;
  if (stopping_ || !domain.can_spare || serving(domain) == nullptr) return false;
  domain.spare = workers_.emplace_back(std::make_unique<Worker>()).get();
  domain.spare->domain = &domain;
  if (!start_process(*domain.spare).ok()) {
    domain.spare = nullptr;
    domain.can_spare = false;
    workers_.pop_back();
    return false;
  }
  return true;
}

void Workers::end_spare(Domain& domain) {
  if (domain.spare == nullptr) return;
  Worker& worker = *std::exchange(domain.spare, nullptr);
  end(worker);
}

bool Workers::use_spare(Domain& domain) {
  if (domain.spare == nullptr) return false;
  domain.current = std::exchange(domain.spare, nullptr);
  if (domain.current->state == WorkerState::kSpare) serve(*domain.current);
  return true;  // else it serves once it is ready
}

void Workers::serve(Worker& worker) {
  Domain& domain = *worker.domain;
  domain.attempts = 0;
  domain.restart_backoff.worker_ready(now_ns());
  worker.state = WorkerState::kServing;
  domain.state = wire::ServerState::kActive;
  owner_.on_worker_ready(worker);
}

void Workers::on_lost(Worker& worker) {
  Domain& domain = *worker.domain;
  const bool was_current = &worker == domain.current;
  worker.state = WorkerState::kLost;
  worker.has_lost_contexts = true;
  if (!was_current) return;
  domain.current = nullptr;
  domain.state = wire::ServerState::kFault;
  replace(domain);
}

void Workers::on_late(Worker& worker) {
  if (stopping_) return;
  worker.error = format_text("the worker did not become ready within %llu s: it is %s",
                             static_cast<unsigned long long>(worker.ready_ms / 1000),
                             describe_state(worker.process->pid()).c_str());
  worker.may_start_again = true;
  log_.write(format_text("Worker %d: ", static_cast<int>(worker.process->pid())) + worker.error);
  worker.process->kill_now();  // on_gone() is next
}

std::unique_ptr<Heartbeat> Workers::make_heartbeat(Worker& worker) {
  return std::make_unique<Heartbeat>(
      loop_, options_.ping_ms, options_.silent_ms,
      Heartbeat::Callbacks{[&worker] {
                             // A ping behind messages that wait to be sent would not reach it.
                             if (!worker.process->drained()) return false;
                             worker.process->send(wire::message_bytes(wire::Probe{}));
                             return true;
                           },
                           [this, &worker] {
                             return worker.state != WorkerState::kEnding &&
                                    !sessions_.ids_of(worker).empty();
                           },
                           [this, &worker](uint64_t ms) { on_silent(worker, ms); },
                           [this, &worker](uint64_t ms) {
                             log_.write(format_text("Worker %d answers again, after %llu ms",
                                                    static_cast<int>(worker.process->pid()),
                                                    static_cast<unsigned long long>(ms)));
                           }});
}

void Workers::on_silent(Worker& worker, uint64_t ms) {
  if (stopping_) return;
  const bool serves = &worker == serving(*worker.domain);
  log_.write(format_text(
      "Worker %d has not answered for %llu ms: it is %s. Its clients wait for it%s",
      static_cast<int>(worker.process->pid()), static_cast<unsigned long long>(ms),
      describe_state(worker.process->pid()).c_str(), serves ? "; new ones get another" : ""));
  if (!serves) return;
  retire_serving(*worker.domain, Retires::kStuck);
  owner_.on_worker_silent(worker);
}

void Workers::on_gone(Worker& worker, const std::string& how) {
  const std::string error = worker.error;
  const bool may_start_again = error.empty() || worker.may_start_again;
  const bool was_too_early = worker.was_too_early;
  Domain& domain = *worker.domain;
  const bool was_current = &worker == domain.current;
  const bool was_ready = worker.state != WorkerState::kStarting;
  if (was_current) domain.current = nullptr;
  const bool was_spare = &worker == domain.spare;
  if (was_spare) {
    // One that could not work would not work next time either, as in exclusive process mode.
    domain.can_spare = was_ready;
    domain.spare = nullptr;
  }
  loop_.cancel(worker.ready_timer);
  loop_.cancel(worker.clogged_timer);
  if (!stopping_) {
    log_.write(format_text("Worker %d %s", static_cast<int>(worker.process->pid()), how.c_str()));
    owner_.on_sessions_lost(worker, how);
  }
  sessions_.return_windows(worker);
  std::erase_if(workers_, [&worker](const auto& held) { return held.get() == &worker; });
  if (stopping_) {
    if (workers_.empty()) loop_.stop();
    return;
  }
  if (was_current) {
    if (was_ready) domain.state = wire::ServerState::kFault;
    if (was_too_early) {
      domain.awaits_device = has_ending_worker();
      start(domain);
    } else if (may_start_again && domain.attempts < kWorkerStartAttempts) {
      replace(domain);
    } else {
      give_up(domain, error.empty() ? "the worker " + how : error);
    }
  }
  for (const auto& [name, waits] : domains_) {
    if (was_current && waits.get() == &domain) continue;
    if (std::exchange(waits->awaits_device, false)) start(*waits);
  }
  if (was_spare) owner_.on_no_spare(domain);
  owner_.on_worker_gone();
}

bool Workers::has_ending_worker() const {
  return std::ranges::any_of(workers_, [](const auto& held) {
    return held->state == WorkerState::kEnding || held->state == WorkerState::kLost;
  });
}

bool Workers::has_lost() const {
  return std::ranges::any_of(workers_, [](const auto& held) { return held->has_lost_contexts; });
}

// In exclusive process mode no other worker can have the device before they have gone.
void Workers::end_lost() {
  for (const std::unique_ptr<Worker>& held : workers_) {
    if (held->state == WorkerState::kLost) held->process->kill_now();
  }
}

void Workers::replace(Domain& domain) {
  if (stopping_ || domain.start_pending || !owner_.wants_worker(domain)) return;
  if (domain.current == nullptr && use_spare(domain)) return;
  const uint64_t pause_ms = domain.restart_backoff.worker_ended(now_ns());
  if (pause_ms == 0) {
    start(domain);
    return;
  }
  log_.write(
      format_text("The next worker starts in %llu ms", static_cast<unsigned long long>(pause_ms)));
  domain.start_pending = true;
  loop_.call_after(pause_ms, [this, &domain] {
    domain.start_pending = false;
    start(domain);
  });
}

void Workers::give_up(Domain& domain, const std::string& reason) {
  domain.attempts = 0;  // the next client makes the server try again
  owner_.on_no_worker(domain, reason);
}

void Workers::tell_all(std::span<const std::byte> message) const {
  for (const std::unique_ptr<Worker>& worker : workers_) {
    worker->process->send(std::vector<std::byte>(message.begin(), message.end()));
  }
}

void Workers::tell_others(const Worker& one, std::span<const std::byte> message,
                          std::span<const int> fds) const {
  for (const std::unique_ptr<Worker>& worker : workers_) {
    if (worker.get() == &one || worker->state == WorkerState::kStarting ||
        worker->state == WorkerState::kEnding) {
      continue;
    }
    worker->process->send(message, fds);
  }
}

namespace {

auto is_retiring_of(const Domain& domain) {
  return [&domain](const std::unique_ptr<Worker>& held) {
    return held->state == WorkerState::kRetiring && held->domain == &domain;
  };
}

}  // namespace

size_t Workers::count_retiring(const Domain& domain) const {
  return static_cast<size_t>(std::ranges::count_if(workers_, is_retiring_of(domain)));
}

bool Workers::may_retire_another(const Domain& domain) const {
  return count_retiring(domain) < kMaxRetiringWorkers;
}

void Workers::retire_serving(Domain& domain, Retires how) {
  Worker& worker = *domain.current;
  worker.state = WorkerState::kRetiring;
  domain.current = nullptr;
  domain.state = wire::ServerState::kInitializing;
  replace(domain);
  if (count_retiring(domain) > kMaxRetiringWorkers) {
    Worker& oldest = **std::ranges::find_if(workers_, is_retiring_of(domain));
    log_.write(format_text("Too many workers are being replaced: worker %d ends with its clients",
                           static_cast<int>(oldest.process->pid())));
    end(oldest);
  }
  end_unused();
  if (worker.state == WorkerState::kRetiring && how == Retires::kStuck) {
    worker.process->send(wire::message_bytes(wire::CloseSession{}));
  }
}

void Workers::look_at_windows(Worker& worker) {
  if (&worker != worker.domain->current || worker.clogged_timer != 0) return;
  if (sessions_.kept_windows(worker) <= kMaxKeptWindows) return;
  worker.clogged_timer =
      loop_.call_after(kKeptWindowsMs, [this, &worker] { retire_if_clogged(worker); });
}

void Workers::retire_if_clogged(Worker& worker) {
  worker.clogged_timer = 0;
  if (&worker != worker.domain->current) return;
  if (sessions_.kept_windows(worker) <= kMaxKeptWindows) return;
  log_.write(
      format_text("Work that does not end has kept worker %d from giving back what %u clients "
                  "have left: it is replaced",
                  static_cast<int>(worker.process->pid()), kMaxKeptWindows));
  retire_serving(*worker.domain, Retires::kStuck);
}

void Workers::renew_if_tainted() {
  for (const auto& [name, domain] : domains_) {
    const Worker* const worker = serving(*domain);
    if (worker == nullptr || sessions_.has_clients(*worker)) continue;
    if (!worker->is_tainted && !sessions_.has_tainting_session(*worker)) continue;
    log_.write(
        format_text("Worker %d is renewed: its clients have left the device's heap or limits "
                    "changed",
                    static_cast<int>(worker->process->pid())));
    retire_serving(*domain, Retires::kWell);
  }
}

void Workers::end_unused() {
  if (stopping_) return;
  for (size_t i = 0; i < workers_.size(); ++i) {
    Worker& worker = *workers_[i];
    if (worker.state == WorkerState::kRetiring && !sessions_.has_clients(worker)) end(worker);
  }
}

void Workers::discard(Worker& worker) {
  Domain& domain = *worker.domain;
  const bool was_current = &worker == domain.current;
  if (was_current) {
    domain.current = nullptr;
    domain.state = wire::ServerState::kFault;
  }
  end(worker);
  if (was_current) replace(domain);
}

void Workers::end(Worker& worker) {
  if (worker.state == WorkerState::kEnding) return;
  const bool was_lost = worker.state == WorkerState::kLost;
  worker.state = WorkerState::kEnding;
  owner_.on_sessions_lost(worker, "");
  // It would not read the request, or would release first what it holds.
  if (was_lost || worker.is_silent()) worker.process->kill_now();
  worker.process->stop();  // on_gone() follows
}

void Workers::stop() {
  stopping_ = true;
  if (workers_.empty()) loop_.stop();
  for (const auto& worker : workers_) {
    if (worker->is_silent()) worker->process->kill_now();
    worker->process->stop();
  }
}

// ---- Messages -----------------------------------------------------------------------------------

void Workers::on_packet(Worker& worker, Packet& packet) {
  if (stopping_ || worker.state == WorkerState::kEnding) return;
  worker.heartbeat->heard();
  const Status handled = handle_packet(worker, packet);
  if (handled.ok()) return;
  log_.write("The worker breaks the protocol and is replaced: " + handled.message());
  worker.process->kill_now();
}

Status Workers::handle_packet(Worker& worker, Packet& packet) {
  Result<wire::MessageHeader> header = wire::read_header(packet.data);
  if (!header.ok()) return header.status();
  switch (header->kind) {
    case wire::MessageKind::kWorkerReady: return on_ready(worker, packet);
    case wire::MessageKind::kAlive: {
      wire::Alive alive;
      return wire::read_message(packet.data, &alive);
    }
    case wire::MessageKind::kWindowFree: {
      wire::WindowFree free;
      OPENMPS_RETURN_IF_ERROR(wire::read_message(packet.data, &free));
      if (sessions_.return_window(free.window, worker)) return Status();
      return Status(CUDA_ERROR_INVALID_VALUE,
                    format_text("it does not have window %u", free.window));
    }
    default: return owner_.on_worker_message(worker, header->kind, packet);
  }
}

Status Workers::on_ready(Worker& worker, Packet& packet) {
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
    // In exclusive process mode one process has the device. An ending worker releases it soon; a
    // retiring worker may keep it for ever, and then new clients are told so.
    if (same.ok() && ready.result == CUDA_ERROR_DEVICE_UNAVAILABLE &&
        (worker.was_started_beside_ending || has_ending_worker())) {
      end_lost();
      log_.write("The next worker starts when the one that ends has left the device");
      worker.was_too_early = true;
    }
    worker.process->stop();  // on_gone() is next
    return Status();
  }
  if (packet.fds.empty()) {
    // The system had no descriptor left to receive the files with, for the moment.
    worker.error = "the server has no descriptor left for the worker's device facts (ulimit -n)";
    worker.may_start_again = true;
    log_.write(format_text("Worker %d: ", static_cast<int>(worker.process->pid())) + worker.error);
    worker.process->stop();  // on_gone() is next
    return Status();
  }
  Result<std::vector<Device>> devices = read_devices(packet.fds[0].get());
  if (!devices.ok()) return devices.status();
  devices_ = std::move(devices).value();
  worker.facts = std::move(packet.fds[0]);
  worker.spin_us = ready.spin_us;
  if (Status status = read_usage(worker, packet); !status.ok()) {
    log_.write(format_text("Worker %d: what its clients use is not shown: %s",
                           static_cast<int>(worker.process->pid()), status.message().c_str()));
  }
  for (size_t i = 0; i < devices_.size(); ++i) {
    if ((worker.domain->devices() >> i & 1) == 0) continue;
    log_.write(
        format_text("Creating server context on device %zu (%s)", i, devices_[i].name.c_str()));
  }
  Domain& domain = *worker.domain;
  if (&worker == domain.spare) {
    worker.state = WorkerState::kSpare;
    log_.write(
        format_text("Worker %d is ready as the spare", static_cast<int>(worker.process->pid())));
    owner_.on_spare_ready(worker);
    // The current worker may have gone meanwhile.
    if (domain.current == nullptr && !domain.start_pending) use_spare(domain);
    return Status();
  }
  serve(worker);
  return Status();
}

Status Workers::read_usage(Worker& worker, const Packet& packet) {
  if (packet.fds.size() < 2) return Status(CUDA_ERROR_NOT_FOUND, "it has sent no table of usage");
  Result<wire::UsageTable> table = wire::UsageTable::open(packet.fds[1].get());
  if (!table.ok()) return table.status();
  worker.usage = std::move(table).value();
  return Status();
}

}  // namespace openmps::server
