// SPDX-License-Identifier: Apache-2.0
// One openmps-worker as its server sees it: start, messages, end. Used by Server on the loop's
// thread. Every failure of a worker ends in on_gone, exactly once.
#pragma once

#include <memory>
#include <string>

#include "base/packet_peer.h"
#include "wire/handshake.h"
#include "wire/kept.h"

namespace openmps::server {

// How many messages may wait to be sent to a worker: for each session its opening, its end,
// changes, and the descriptors of its client; and all that the server keeps (kept.h), of which
// there is one for each open file at most. A stopped worker does not read, and the system may take
// no more descriptors.
inline constexpr size_t kMaxQueuedForWorker =
    2 * (wire::kMaxPassing + 4) * wire::kMaxWindows + wire::kMostOpenFiles;

// How long a worker that has been asked to stop may take to release its contexts.
inline constexpr uint64_t kWorkerStopMs = 5000;

class WorkerChild {
 public:
  struct Callbacks {
    std::function<void(Packet)> on_packet;
    // The process has ended and everything it sent has been delivered. `how` is for the log. The
    // owner may destroy the WorkerChild in it.
    std::function<void(std::string how)> on_gone;
    // Messages to the worker wait, because the system takes no more. For the log.
    std::function<void(std::string why)> on_delayed;
  };

  WorkerChild(EventLoop& loop, Disposal& disposal, Callbacks callbacks)
      : loop_(loop), disposal_(disposal), callbacks_(std::move(callbacks)) {}
  ~WorkerChild();
  WorkerChild(const WorkerChild&) = delete;
  WorkerChild& operator=(const WorkerChild&) = delete;

  struct Start {
    const std::string& program;
    const std::string& driver;             // OPENMPS_DRIVER's value
    uint32_t place = 0;                    // of its addresses (wire::kAddressPlaces)
    uint32_t devices = wire::kAllDevices;  // that it uses, a bit each
    bool is_spare = false;                 // nobody waits for it
  };
  // Standard output and error are ours. Errors: CUDA_ERROR_OPERATING_SYSTEM with the reason.
  Status start(const Start& what);
  void send(std::span<const std::byte> message, std::span<const int> fds = {});
  // No message waits to be sent.
  [[nodiscard]] bool drained() const { return peer_ == nullptr || peer_->drained(); }
  // Ask it to end by closing its connection; SIGKILL if it takes longer than kWorkerStopMs.
  void stop();
  void kill_now();
  [[nodiscard]] pid_t pid() const { return pid_; }

 private:
  void on_connection_closed();
  void finish_if_gone();

  EventLoop& loop_;
  Disposal& disposal_;
  Callbacks callbacks_;
  pid_t pid_ = 0;
  std::unique_ptr<PacketPeer> peer_;
  std::string how_it_ended_;  // empty: it runs
  EventLoop::TimerId stop_timer_ = 0;
};

}  // namespace openmps::server
