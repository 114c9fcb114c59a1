// SPDX-License-Identifier: Apache-2.0
// One SOCK_SEQPACKET connection in an EventLoop: packets in as calls, packets out without ever
// blocking the loop (what the socket or the system does not take now waits, up to a bound). Used by
// daemon and server for every connection they hold, on the loop's thread.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/disposal.h"
#include "base/event_loop.h"
#include "base/unix_socket.h"

namespace openmps {

// Packets that may wait for a peer that does not read. A server that is asked to admit its full
// house at once is well below; a peer that is so far behind reads no more.
inline constexpr size_t kMaxQueuedPackets = 2048;

class PacketPeer {
 public:
  struct Callbacks {
    std::function<void(Packet)> on_packet;
    // Once: the peer has gone, sent too much, or does not read. `reason` is for the log. The owner
    // may destroy the PacketPeer in it.
    std::function<void(std::string reason)> on_closed;
    // The kernel has had no buffer for a packet for some time (kNoBufferNow), so it and those
    // behind it wait. For the log; may be empty.
    std::function<void(std::string reason)> on_delayed = {};
  };

  // What comes from a peer that is not trusted: `disposal` closes the connection and the
  // descriptors that waited to be sent; null: they are closed here.
  struct Options {
    size_t max_packet_bytes = 0;
    Descriptors descriptors = Descriptors::kRefused;
    Disposal* disposal = nullptr;
    size_t max_queued_packets = kMaxQueuedPackets;
  };

  PacketPeer(EventLoop& loop, UniqueFd fd, Options options, Callbacks callbacks);
  ~PacketPeer();
  PacketPeer(const PacketPeer&) = delete;
  PacketPeer& operator=(const PacketPeer&) = delete;

  // Start to receive. Errors: CUDA_ERROR_OPERATING_SYSTEM.
  Status start();
  // Send now or later; failure shows as on_closed, in a later round. The descriptors are duplicated
  // if they have to wait, and missing if they can't be.
  void send(std::span<const std::byte> data, std::span<const int> fds = {});
  // Everything sent has left.
  [[nodiscard]] bool drained() const { return queue_.empty(); }
  [[nodiscard]] size_t queued() const { return queue_.size(); }
  // Stop or resume reading: a UI's next command waits while one is answered.
  void pause_reading(bool paused);
  // Give the connection away; this object is dead then.
  UniqueFd release();
  [[nodiscard]] int fd() const { return fd_.get(); }

 private:
  struct Queued {
    std::vector<std::byte> data;
    std::vector<UniqueFd> fds;
  };
  void drop_first_queued();
  void on_events(uint32_t events);
  void receive_one();
  void flush();
  void pause_for_room(const Status& why);
  void fail(std::string reason);
  void update_events();

  EventLoop& loop_;
  UniqueFd fd_;
  Options options_;
  Callbacks callbacks_;
  std::deque<Queued> queue_;
  bool reading_paused_ = false;
  bool failed_ = false;
  EventLoop::TimerId failure_ = 0;
  EventLoop::TimerId retry_ = 0;  // not 0: the kernel has no buffer, so nothing is sent until then
  bool receives_later_ = false;   // nor received
  uint64_t pause_ms_ = 0;         // the last one, since something was sent
};

}  // namespace openmps
