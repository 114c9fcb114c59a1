// SPDX-License-Identifier: Apache-2.0
// The other ends of a worker, for tests: a server that opens and closes sessions over its socket,
// and a client that writes into a session's ring. Works against any driver.
#pragma once

#include <cstdint>
#include <cstring>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/shared_memory.h"
#include "base/unix_socket.h"
#include "empty_journal.h"
#include "wire/codec.h"
#include "wire/device_facts.h"
#include "wire/journal.h"
#include "wire/message.h"
#include "wire/ring.h"

namespace openmps::worker {

inline constexpr uint64_t kTestTimeoutNs = 20'000'000'000;

// What a client does with its channel. The mapping is anywhere: addresses in commands are the
// window's.
class TestClient {
 public:
  TestClient(uint32_t session, uint32_t window) : session_(session), window_(window) {
    file_ = std::move(create_shared_file("test-session", wire::kHostBytes)).value();
    mapping_ =
        std::move(map_shared(file_.get(), 0, wire::kChannelBytes, MapAccess::kReadWrite)).value();
    view_ = wire::ChannelView(mapping_.address());
    view_.header().magic = wire::kMagic;
    view_.header().version = wire::kProtocolVersion;
    view_.header().window_base = base();
    view_.header().session = session;
    ring_ = wire::RingProducer(view_);
    journal_ = make_empty_journal();
  }

  [[nodiscard]] uint32_t session() const { return session_; }
  [[nodiscard]] uint32_t window() const { return window_; }
  [[nodiscard]] uint64_t base() const { return wire::window_base(window_); }
  [[nodiscard]] uint64_t staging() const {
    return base() + wire::kDeviceBytes + wire::kStagingOffset;
  }
  [[nodiscard]] const wire::ChannelView& view() const { return view_; }
  [[nodiscard]] int fd() const { return file_.get(); }
  [[nodiscard]] int journal() const { return journal_.get(); }

  template <wire::Command T>
  void post(const T& body, const std::string& variable = "", uint16_t slot = wire::kNoReply) {
    const auto bytes = static_cast<uint32_t>(sizeof(T) + variable.size());
    unsigned char* payload = nullptr;
    const uint64_t end = now_ns() + kTestTimeoutNs;
    while ((payload = ring_.reserve(T::kOpcode, bytes, slot)) == nullptr && now_ns() < end) {
      cpu_relax();
    }
    if (payload == nullptr) return;
    memcpy(payload, &body, sizeof(T));
    // NOLINTNEXTLINE(bugprone-not-null-terminated-result): counted bytes, no text
    memcpy(payload + sizeof(T), variable.data(), variable.size());
    ring_.publish();
  }
  void nudge() { ring_.nudge(); }
  // Post and wait for the reply: its result, CUDA_ERROR_TIMEOUT, or the session's end.
  template <wire::Command T>
  CUresult call(const T& body, const std::string& variable = "") {
    wire::ReplySlot& slot = view_.reply(0);
    slot.state.store(wire::ReplySlot::kPending, std::memory_order_relaxed);
    post(body, variable, 0);
    if (!wait(
            [&] { return slot.state.load(std::memory_order_acquire) == wire::ReplySlot::kDone; })) {
      const uint32_t status = view_.header().status.load();
      return status != 0 ? static_cast<CUresult>(status) : CUDA_ERROR_TIMEOUT;
    }
    return static_cast<CUresult>(slot.result);
  }
  template <typename T>
  [[nodiscard]] T reply(size_t offset = 0) const {
    T value{};
    memcpy(&value, view_.reply(0).payload + offset, sizeof(T));
    return value;
  }
  // Until the condition holds; false after the timeout or once the session has ended.
  template <typename Condition>
  bool wait(Condition condition) const {
    const uint64_t end = now_ns() + kTestTimeoutNs;
    for (int looks = 0; !condition(); ++looks) {
      if (view_.header().status.load() != 0) return condition();
      if ((looks & 0xff) == 0xff && now_ns() > end) return false;
      cpu_relax();
    }
    return true;
  }
  bool wait_fence(uint32_t slot, uint64_t value) const {
    return wait([&] { return view_.fence(slot).value.load(std::memory_order_acquire) >= value; });
  }

 private:
  uint32_t session_;
  uint32_t window_;
  UniqueFd file_;
  UniqueFd journal_;
  Mapping mapping_;
  wire::ChannelView view_;
  wire::RingProducer ring_;
};

// The server's end of the worker's socket.
class TestServer {
 public:
  explicit TestServer(UniqueFd socket) : socket_(std::move(socket)) {}

  void open(const TestClient& client, uint64_t memory_limit = 0) {
    wire::Grant grant;
    grant.limits.memory_limit[0] = memory_limit;
    open(client, grant);
  }
  void open(const TestClient& client, const wire::Grant& grant,
            const wire::ClientLimits& group_limits = {}) {
    wire::OpenSession message;
    message.session = client.session();
    message.window = client.window();
    message.client_pid = 4711;
    message.grant = grant;
    message.group_limits = group_limits;
    strcpy(message.command, "./test");
    const int fds[] = {client.fd(), client.journal()};
    static_cast<void>(send_packet(socket_.get(), wire::message_bytes(message), fds).ok());
  }
  void change_group(uint32_t group, const wire::ClientLimits& limits) {
    wire::ChangeGroup message;
    message.group = group;
    message.limits = limits;
    static_cast<void>(send_packet(socket_.get(), wire::message_bytes(message)).ok());
  }
  void close(uint32_t session, CUresult result = CUDA_ERROR_MPS_RPC_FAILURE) {
    wire::CloseSession message;
    message.session = session;
    message.result = result;
    static_cast<void>(send_packet(socket_.get(), wire::message_bytes(message)).ok());
  }
  // The next message. Which windows are free is noted, not told; nothing is kept.
  Result<Packet> next(int ms = 20'000) {
    for (;;) {
      Result<Packet> packet =
          receive_packet(socket_.get(), wire::kMaxMessageBytes, ms, Descriptors::kTaken);
      wire::WindowFree free;
      wire::Keep keep;
      wire::Forget forget;
      if (!packet.ok()) return packet;
      if (wire::read_message(packet->data, &free).ok()) {
        free_windows_.push_back(free.window);
      } else if (!wire::read_message(packet->data, &keep).ok() &&
                 !wire::read_message(packet->data, &forget).ok()) {
        return packet;
      }
    }
  }
  // The next message, which must be a T.
  template <typename T>
  Result<T> expect(std::vector<UniqueFd>* fds = nullptr) {
    Result<Packet> packet = next();
    if (!packet.ok()) return packet.status();
    T message;
    if (Status status = wire::read_message(packet->data, &message); !status.ok()) return status;
    if (fds != nullptr) *fds = std::move(packet->fds);
    return message;
  }
  // Nothing comes within this time.
  bool quiet(int ms) { return next(ms).status().code() == CUDA_ERROR_TIMEOUT; }
  [[nodiscard]] size_t free_windows() const { return free_windows_.size(); }
  // The next message of WindowFree, or one that came before.
  Result<uint32_t> free_window() {
    if (free_windows_.empty()) {
      Result<Packet> packet =
          receive_packet(socket_.get(), wire::kMaxMessageBytes, 20'000, Descriptors::kTaken);
      if (!packet.ok()) return packet.status();
      wire::WindowFree free;
      if (Status status = wire::read_message(packet->data, &free); !status.ok()) return status;
      free_windows_.push_back(free.window);
    }
    const uint32_t window = free_windows_.front();
    free_windows_.pop_front();
    return window;
  }
  void hang_up() { socket_.reset(); }
  int fd() const { return socket_.get(); }

 private:
  UniqueFd socket_;
  std::deque<uint32_t> free_windows_;
};

}  // namespace openmps::worker
