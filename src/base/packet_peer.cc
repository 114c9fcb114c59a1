// SPDX-License-Identifier: Apache-2.0
// One SOCK_SEQPACKET connection in an EventLoop.
#include "base/packet_peer.h"

#include <fcntl.h>
#include <sys/epoll.h>

#include <algorithm>

namespace openmps {

PacketPeer::PacketPeer(EventLoop& loop, UniqueFd fd, Options options, Callbacks callbacks)
    : loop_(loop), fd_(std::move(fd)), options_(options), callbacks_(std::move(callbacks)) {}

PacketPeer::~PacketPeer() {
  loop_.cancel(failure_);
  loop_.cancel(retry_);
  if (fd_.valid()) loop_.forget(fd_.get());
  if (options_.disposal == nullptr) return;
  while (!queue_.empty()) drop_first_queued();
  if (fd_.valid()) options_.disposal->hang_up(std::move(fd_));
}

void PacketPeer::drop_first_queued() {
  if (options_.disposal != nullptr) {
    for (UniqueFd& fd : queue_.front().fds) options_.disposal->close(std::move(fd));
  }
  queue_.pop_front();
}

Status PacketPeer::start() {
  // Our end only: the peer has an open file description of its own.
  const int flags = fcntl(fd_.get(), F_GETFL);
  if (flags < 0 || fcntl(fd_.get(), F_SETFL, flags | O_NONBLOCK) != 0) {
    return Status(CUDA_ERROR_OPERATING_SYSTEM, "a connection can't be made non-blocking");
  }
  return loop_.watch(fd_.get(), EPOLLIN, [this](uint32_t events) { on_events(events); });
}

void PacketPeer::on_events(uint32_t events) {
  if ((events & EPOLLOUT) != 0) flush();
  if (failed_) return;
  // A hang-up shows as the end of what can be read, after the last packet; while reading is paused
  // there is nothing left to wait for.
  if ((events & EPOLLIN) != 0 || ((events & (EPOLLHUP | EPOLLERR)) != 0 && !reading_paused_)) {
    receive_one();  // the last statement: the owner may destroy this object in it
  } else if ((events & (EPOLLHUP | EPOLLERR)) != 0) {
    fail("the peer has closed its connection");
  }
}

void PacketPeer::receive_one() {
  Result<Packet> packet =
      receive_packet(fd_.get(), options_.max_packet_bytes, 0, options_.descriptors);
  if (!packet.ok()) {
    if (packet.status().code() == CUDA_ERROR_TIMEOUT) return;
    if (packet.status().code() == kNoBufferNow) {
      receives_later_ = true;
      pause_for_room(packet.status());
      return;
    }
    fail(packet.status().message());
    return;
  }
  if (packet->closed) {
    fail("the peer has closed its connection");
    return;
  }
  // A copy: the callback may destroy this object.
  const auto on_packet = callbacks_.on_packet;
  on_packet(std::move(packet).value());
}

void PacketPeer::send(std::span<const std::byte> data, std::span<const int> fds) {
  if (failed_) return;
  if (queue_.empty()) {
    const Status sent = send_packet(fd_.get(), data, fds);
    if (sent.ok()) return;
    if (sent.code() == kNoBufferNow) {
      pause_for_room(sent);
    } else if (sent.code() != CUDA_ERROR_NOT_READY) {
      fail(sent.message());
      return;
    }
  }
  if (queue_.size() >= options_.max_queued_packets) {
    fail("the peer does not read its messages");
    return;
  }
  Queued queued{{data.begin(), data.end()}, {}};
  for (const int fd : fds) {
    // None is left: the peer gets the message without, and refuses what it asks for.
    UniqueFd copy(fcntl(fd, F_DUPFD_CLOEXEC, 0));
    if (copy.valid()) queued.fds.push_back(std::move(copy));
  }
  queue_.push_back(std::move(queued));
  update_events();
}

void PacketPeer::flush() {
  while (!queue_.empty()) {
    const Queued& next = queue_.front();
    std::vector<int> fds;
    for (const UniqueFd& fd : next.fds) fds.push_back(fd.get());
    const Status sent = send_packet(fd_.get(), next.data, fds);
    if (sent.code() == CUDA_ERROR_NOT_READY) break;
    if (sent.code() == kNoBufferNow) {
      pause_for_room(sent);
      return;
    }
    if (!sent.ok()) {
      fail(sent.message());
      return;
    }
    drop_first_queued();
  }
  pause_ms_ = 0;
  update_events();
}

// The socket is as ready as before: without a pause the loop would spin.
void PacketPeer::pause_for_room(const Status& why) {
  if (retry_ != 0) return;
  const uint64_t before = pause_ms_;
  pause_ms_ = before == 0 ? kFirstRetryMs : std::min(2 * before, kLongestRetryMs);
  retry_ = loop_.call_after(pause_ms_, [this] {
    retry_ = 0;
    receives_later_ = false;
    flush();
  });
  update_events();
  // Once: the pauses have just become as long as they will be.
  if (pause_ms_ == kLongestRetryMs && before != kLongestRetryMs && callbacks_.on_delayed) {
    callbacks_.on_delayed(why.message());
  }
}

void PacketPeer::pause_reading(bool paused) {
  reading_paused_ = paused;
  update_events();
}

void PacketPeer::update_events() {
  if (failed_) return;
  const uint32_t in = reading_paused_ || receives_later_ ? 0u : static_cast<uint32_t>(EPOLLIN);
  const uint32_t out = queue_.empty() || retry_ != 0 ? 0u : static_cast<uint32_t>(EPOLLOUT);
  loop_.change_events(fd_.get(), in | out);
}

UniqueFd PacketPeer::release() {
  loop_.cancel(retry_);
  loop_.forget(fd_.get());
  failed_ = true;
  return std::move(fd_);
}

void PacketPeer::fail(std::string reason) {
  if (failed_) return;
  failed_ = true;
  loop_.cancel(retry_);
  loop_.forget(fd_.get());
  // In a later round, so that no caller of send() loses its object under its feet.
  failure_ = loop_.call_after(0, [this, reason = std::move(reason)] {
    failure_ = 0;
    const auto on_closed = callbacks_.on_closed;
    on_closed(reason);
  });
}

}  // namespace openmps
