// SPDX-License-Identifier: Apache-2.0
// The parts of a session on the fake driver, without thread and sockets: a test sends commands
// straight to dispatch(), as the executor does.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/shared_memory.h"
#include "fake_driver.h"
#include "manual_clock.h"
#include "wire/codec.h"
#include "wire/ring.h"
#include "worker/device/driver_check.h"
#include "worker/session/dispatch.h"
#include "worker/session/session_parts.h"

namespace openmps::worker {

// Of device memory and of its limits: sizes in tests are multiples of it.
inline constexpr uint64_t kUnit = wire::kMemoryGranularity;

class SessionFixture : public ::testing::Test {
 protected:
  static constexpr uint32_t kWindow = 3;
  static constexpr uint64_t kBase = wire::window_base(kWindow);
  static constexpr uint64_t kHost = kBase + wire::kDeviceBytes;
  static constexpr uint64_t kStaging = kHost + wire::kStagingOffset;
  static constexpr uint64_t kPinned = kHost + wire::kPinnedOffset;
  static constexpr uint64_t kLimit = 64 * wire::kMiB;  // of device memory

  // Without windows: their marks are calls that most tests do not speak of.
  SessionFixture() { worker_parts_.performance.budgets = false; }
  // Of device memory; 0: none.
  [[nodiscard]] virtual uint64_t limit() const { return kLimit; }
  // Among the sessions.
  [[nodiscard]] virtual Rank rank() const { return Rank::kNormal; }
  // That it may use of the device; 0: all.
  [[nodiscard]] virtual uint32_t sms() const { return 0; }
  // What else the session is.
  virtual void describe(SessionInfo&) const {}
  // Between the devices and the session.
  virtual void prepare() {}

  void SetUp() override {
    Result<Devices> devices = Devices::open(driver_.table());
    ASSERT_TRUE(devices.ok());
    devices_ = std::make_unique<Devices>(std::move(devices).value());
    prepare();
    Result<UniqueFd> file = create_shared_file("test", wire::kHostBytes);
    ASSERT_TRUE(file.ok());
    Result<Mapping> reserved = reserve_addresses(kHost, wire::kHostBytes);
    ASSERT_TRUE(reserved.ok()) << reserved.status().message();
    Result<Mapping> mapped = map_shared_at(kHost, file->get(), 0, wire::kHostBytes);
    ASSERT_TRUE(mapped.ok());
    reserved->leak();
    channel_ = std::move(mapped).value();
    worker_parts_.partitions = std::make_shared<SmPartitions>(driver_.table(), *devices_, gate_,
                                                              worker_parts_.descriptors);
    open_session();
  }
  // With what worker_parts_ has by now; a session that is there ends first.
  void open_session() {
    if (session_ != nullptr) {
      session_->drain();
      session_->release();
      session_.reset();
    }
    SessionInfo info;
    info.id = 1;
    info.window = kWindow;
    info.limits.client.memory_limit[0] = limit();
    info.limits.rank = rank();
    info.limits.sms[0] = sms();
    describe(info);
    session_ =
        std::make_unique<SessionParts>(driver_.table(), *devices_, gate_, worker_parts_, info);
    session_->core.view = wire::ChannelView(channel_.address());
    ASSERT_TRUE(session_->memory.open_channel().ok());
    driver_.take_calls();
  }
  void TearDown() override {
    if (session_ == nullptr) return;
    session_->drain();
    session_->release();
    worker_parts_.partitions.reset();                         // keeps unused green contexts
    while (gate_.is_collecting()) std::this_thread::yield();  // deferred calls are made
    EXPECT_EQ(driver_.live(), "") << "what the session left behind";
    EXPECT_EQ(driver_.waited, 0u) << "a call waited for work of its context";
  }

  // Send a command and what follows its struct.
  template <wire::Command C>
  Status send(const C& body, const std::string& variable = "") {
    return send_to(*session_, body, variable);
  }
  template <wire::Command C>
  Status send_to(SessionParts& session, const C& body, const std::string& variable = "") {
    const uint32_t bytes = wire::record_bytes(sizeof(C) + variable.size());
    payload_.assign(bytes, 0);
    memcpy(payload_.data(), &body, sizeof(C));
    memcpy(payload_.data() + sizeof(C), variable.data(), variable.size());
    return send_bytes_to(session, C::kOpcode, bytes - sizeof(wire::RecordHeader));
  }
  // The first `bytes` of what was sent last, as another record.
  Status send_bytes(wire::Opcode opcode, size_t bytes) {
    return send_bytes_to(*session_, opcode, bytes);
  }
  Status send_bytes_to(SessionParts& session, wire::Opcode opcode, size_t bytes) {
    wire::Record record;
    record.opcode = opcode;
    record.payload = payload_.data();
    record.payload_bytes = static_cast<uint32_t>(bytes);
    std::optional<wire::RingConsumer> consumer;
    if (ring_) {
      unsigned char* const room = ring_->reserve(opcode, record.payload_bytes, wire::kNoReply);
      memcpy(room, payload_.data(), bytes);
      ring_->publish();
      consumer.emplace(session.core.view);
      EXPECT_TRUE(consumer->take(&record).value());
    }
    reply_.clear();
    const Status status = dispatch(session, record, reply_);
    if (consumer && !is_sticky(status.code())) consumer->conclude();
    const std::unique_ptr<Pending> pending = reply_.take_pending();
    if (pending == nullptr) return status;
    while (!pending->ready()) std::this_thread::yield();
    Status finished = pending->finish(reply_);
    note_late(session, record, finished, reply_);
    return finished;
  }
  template <typename T>
  [[nodiscard]] T reply(size_t offset = 0) const {
    T value{};
    EXPECT_LE(offset + sizeof(T), reply_.size());
    memcpy(&value, reply_.data() + offset, sizeof(T));
    return value;
  }

  void create_stream(wire::Id id, wire::StreamKind kind, wire::Id context = 1) {
    EXPECT_TRUE(send(wire::StreamCreate{.stream = id,
                                        .context = context,
                                        .device = 0,
                                        .kind = kind,
                                        .slot = id % wire::kFenceSlots})
                    .ok());
  }
  void map(uint64_t address, uint64_t bytes) {
    const Status status = send(wire::MemoryMap{address, bytes, 0});
    EXPECT_TRUE(status.ok()) << status.message();
  }
  // A module with one function, as id 1 and 1.
  void load_module() {
    EXPECT_TRUE(send(wire::BlobBegin{4, 1}).ok());
    memcpy(session_->core.view.staging(), "code", 4);
    EXPECT_TRUE(send(wire::BlobData{1, 4, 0, kStaging}).ok());
    EXPECT_TRUE(send(wire::ModuleLoad{1, 1, 0, wire::ModuleKind::kModule, 0, 0}).ok());
    EXPECT_TRUE(send(wire::GetFunction{1, 1, wire::ModuleKind::kModule, 4}, "kern").ok());
    driver_.take_calls();
  }
  static wire::Launch launch_of(wire::Id stream) {
    return wire::Launch{stream, 1, {1, 1, 1}, {32, 1, 1}, 0, 0, 16, 0};
  }
  void launch(wire::Id stream) {
    const Status status = send(launch_of(stream), std::string(16, '\0'));
    EXPECT_TRUE(status.ok()) << status.message();
  }
  // Executable graph 1 is to have so many such kernels.
  void describe_kernels(uint32_t count, const wire::Launch& launch = launch_of(0)) {
    const std::string body =
        std::string(reinterpret_cast<const char*>(&launch), sizeof launch) + std::string(16, '\0');
    EXPECT_TRUE(send(wire::GraphBegin{1, 0}).ok());
    for (uint32_t i = 0; i < count; ++i) {
      EXPECT_TRUE(send(wire::GraphNode{1, wire::GraphNodeKind::kKernel, 0,
                                       static_cast<uint32_t>(body.size()), 0},
                       body)
                      .ok());
    }
  }
  // But for those that register what is named of the channel: channel_pages_test.cc.
  std::vector<std::string> calls() {
    std::vector<std::string> taken = driver_.take_calls();
    std::erase(taken, "register");
    return taken;
  }

  FakeDriver driver_;
  ContextGate gate_{driver_.table()};
  ManualClock clock_;
  WorkerParts worker_parts_{clock_};
  std::unique_ptr<Devices> devices_;
  Mapping channel_;
  std::unique_ptr<SessionParts> session_;
  std::vector<unsigned char> payload_;
  ReplyWriter reply_;
  // If there is one, commands go through it.
  std::optional<wire::RingProducer> ring_;
};

using Calls = std::vector<std::string>;

}  // namespace openmps::worker
