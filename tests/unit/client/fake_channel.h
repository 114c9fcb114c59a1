// SPDX-License-Identifier: Apache-2.0
// A session's host file in ordinary memory, with the worker's end in the hands of the test. Used by
// the unit tests of the client layer, on the test's threads.
#pragma once

#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>

#include "client/link/channel.h"
#include "wire/ring.h"

namespace openmps::client {

class FakeChannel {
 public:
  // `clock`: null: the real time.
  explicit FakeChannel(uint64_t spin_ns = 10'000, std::unique_ptr<wire::Trace> trace = nullptr,
                       const Clock* clock = nullptr) {
    memory_ = mmap(nullptr, wire::kChannelBytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets_);
    view_ = wire::ChannelView(memory_);
    channel_ = std::make_unique<Channel>(view_, sockets_[0], spin_ns,
                                         clock != nullptr ? *clock : real_time_, std::move(trace));
    consumer_ = std::make_unique<wire::RingConsumer>(view_);
  }
  ~FakeChannel() {
    stop_worker();
    close(sockets_[0]);
    close_worker_socket();
    munmap(memory_, wire::kChannelBytes);
  }

  Channel& channel() { return *channel_; }
  const wire::ChannelView& view() const { return view_; }

  // The next command, or false: the ring is empty.
  bool take(wire::Record* record) {
    Result<bool> taken = consumer_->take(record);
    if (!taken.ok() || !*taken) return false;
    consumer_->conclude();
    return true;
  }

  // A worker thread that handles commands until the test ends. `handle` may answer.
  void start_worker(std::function<void(FakeChannel&, const wire::Record&)> handle) {
    worker_ = std::thread([this, handle = std::move(handle)] {
      wire::Record record;
      while (!stop_.load()) {
        if (take(&record)) {
          handle(*this, record);
        } else {
          std::this_thread::yield();
        }
      }
    });
  }

  void reply(uint16_t slot, CUresult result, const void* payload = nullptr, uint32_t bytes = 0) {
    wire::ReplySlot& answer = view_.reply(slot);
    answer.result = result;
    answer.bytes = bytes;
    if (bytes != 0) memcpy(answer.payload, payload, bytes);
    answer.state.store(wire::ReplySlot::kDone, std::memory_order_release);
    wake();
  }
  void wake() {
    view_.header().wake_epoch.fetch_add(1);
    channel_->wake_all();
  }
  void close_worker_socket() {
    if (sockets_[1] >= 0) close(sockets_[1]);
    sockets_[1] = -1;
  }

 private:
  void stop_worker() {
    stop_.store(true);
    if (worker_.joinable()) worker_.join();
  }

  const MonotonicClock real_time_;
  void* memory_ = nullptr;
  int sockets_[2] = {-1, -1};
  wire::ChannelView view_;
  std::unique_ptr<Channel> channel_;
  std::unique_ptr<wire::RingConsumer> consumer_;
  std::atomic<bool> stop_{false};
  std::thread worker_;
};

template <typename Command>
Command body_of(const wire::Record& record) {
  Command command;
  memcpy(&command, record.payload, sizeof(command));
  return command;
}

}  // namespace openmps::client
