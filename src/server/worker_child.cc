// SPDX-License-Identifier: Apache-2.0
// One openmps-worker as its server sees it.
#include "server/worker_child.h"

#include <csignal>

#include "base/subprocess.h"

namespace openmps::server {
namespace {

constexpr int kWorkerServerFd = 3;  // the number under which the worker finds its server

}  // namespace

WorkerChild::~WorkerChild() {
  loop_.cancel(stop_timer_);
  if (pid_ != 0) loop_.forget_child(pid_);
}

Status WorkerChild::start(const Start& what) {
  Result<std::pair<UniqueFd, UniqueFd>> sockets = make_socket_pair();
  if (!sockets.ok()) return sockets.status();
  SpawnOptions options;
  options.program = what.program;
  options.arguments = {
      "--server-fd", std::to_string(kWorkerServerFd), "--driver",  what.driver,
      "--place",     std::to_string(what.place),      "--devices", std::to_string(what.devices)};
  if (what.is_spare) options.arguments.insert(options.arguments.end(), {"--spare", "1"});
  options.fds = {{sockets->second.get(), kWorkerServerFd}, {1, 1}, {2, 2}};
  options.die_with_parent = true;
  Result<pid_t> pid = spawn(options);
  if (!pid.ok()) return pid.status();
  pid_ = pid.value();
  OPENMPS_RETURN_IF_ERROR(loop_.watch_child(pid_, [this](int status) {
    how_it_ended_ = describe_exit(status);
    finish_if_gone();
  }));
  peer_ = std::make_unique<PacketPeer>(
      loop_, std::move(sockets->first),
      PacketPeer::Options{.max_packet_bytes = wire::kMaxMessageBytes,
                          .descriptors = Descriptors::kTaken,
                          .disposal = &disposal_,
                          .max_queued_packets = kMaxQueuedForWorker},
      PacketPeer::Callbacks{callbacks_.on_packet,
                            [this](const std::string&) { on_connection_closed(); },
                            callbacks_.on_delayed});
  return peer_->start();
}

void WorkerChild::send(std::span<const std::byte> message, std::span<const int> fds) {
  if (peer_ != nullptr) peer_->send(message, fds);
}

void WorkerChild::stop() {
  if (stop_timer_ != 0) return;
  peer_.reset();
  if (how_it_ended_.empty()) {
    stop_timer_ = loop_.call_after(kWorkerStopMs, [this] { kill_now(); });
  } else {
    // Called later: on_gone may destroy this object, which the caller still uses.
    stop_timer_ = loop_.call_after(0, [this] { finish_if_gone(); });
  }
}

void WorkerChild::kill_now() {
  // The PID is not reused before the process is reaped.
  if (how_it_ended_.empty()) kill(pid_, SIGKILL);
}

void WorkerChild::on_connection_closed() {
  peer_.reset();
  // The worker has closed its connection and ends, and its driver may take a moment to release the
  // contexts. A worker that does not end is of no use without its server.
  if (how_it_ended_.empty() && stop_timer_ == 0) {
    stop_timer_ = loop_.call_after(kWorkerStopMs, [this] { kill_now(); });
  }
  finish_if_gone();
}

void WorkerChild::finish_if_gone() {
  // All that the worker has sent is read before the connection ends.
  if (peer_ != nullptr || how_it_ended_.empty()) return;
  const auto on_gone = callbacks_.on_gone;
  on_gone(how_it_ended_);
}

}  // namespace openmps::server
