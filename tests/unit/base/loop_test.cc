// SPDX-License-Identifier: Apache-2.0
// Event loop, packet peers and child processes.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <ctime>
#include <functional>
#include <memory>
#include <thread>

#include "base/heartbeat.h"
#include "base/packet_peer.h"
#include "base/subprocess.h"

namespace openmps {
namespace {

std::span<const std::byte> bytes(std::string_view text) { return std::as_bytes(std::span(text)); }

TEST(EventLoop, TimersComeInOrderAndCanBeCancelled) {
  EventLoop loop;
  ASSERT_TRUE(loop.open().ok());
  std::string order;
  loop.call_after(20, [&] {
    order += 'c';
    loop.stop();
  });
  loop.call_after(0, [&] { order += 'a'; });
  const EventLoop::TimerId never = loop.call_after(5, [&] { order += 'x'; });
  loop.call_after(2, [&] {
    order += 'b';
    loop.cancel(never);
  });
  ASSERT_TRUE(loop.run().ok());
  EXPECT_EQ(order, "abc");
}

TEST(EventLoop, AnEventOfAForgottenDescriptorIsDropped) {
  EventLoop loop;
  ASSERT_TRUE(loop.open().ok());
  int first[2], second[2];
  ASSERT_EQ(pipe2(first, O_CLOEXEC), 0);
  ASSERT_EQ(pipe2(second, O_CLOEXEC), 0);
  int calls = 0;
  const auto handler = [&](uint32_t) {
    ++calls;
    loop.forget(first[0]);  // the first handler that runs forgets both descriptors
    loop.forget(second[0]);
    loop.call_after(0, [&] { loop.stop(); });
  };
  ASSERT_TRUE(loop.watch(first[0], EPOLLIN, handler).ok());
  ASSERT_TRUE(loop.watch(second[0], EPOLLIN, handler).ok());
  ASSERT_EQ(write(first[1], "x", 1), 1);
  ASSERT_EQ(write(second[1], "x", 1), 1);
  ASSERT_TRUE(loop.run().ok());
  EXPECT_EQ(calls, 1);
  for (const int fd : {first[0], first[1], second[0], second[1]}) close(fd);
}

TEST(EventLoop, ChildrenAreReapedWithTheirStatus) {
  EventLoop loop;
  ASSERT_TRUE(loop.open().ok());
  SpawnOptions options;
  options.program = "/bin/sh";
  options.arguments = {"-c", "exit 7"};
  Result<pid_t> pid = spawn(options);
  ASSERT_TRUE(pid.ok()) << pid.status().message();
  std::string how;
  ASSERT_TRUE(loop.watch_child(*pid,
                               [&](int status) {
                                 how = describe_exit(status);
                                 loop.stop();
                               })
                  .ok());
  ASSERT_TRUE(loop.run().ok());
  EXPECT_EQ(how, "exited with status 7");
  EXPECT_NE(kill(*pid, 0), 0) << "the child has been reaped";
}

TEST(Spawn, SaysWhyAProgramCantRun) {
  SpawnOptions options;
  options.program = "/nonexistent/program";
  Result<pid_t> pid = spawn(options);
  ASSERT_FALSE(pid.ok());
  EXPECT_EQ(pid.status().message(),
            "starting /nonexistent/program: exec: No such file or directory");
}

TEST(Spawn, TheChildHasTheNamedDescriptorsOnly) {
  close_inherited_descriptors();  // the parent of the test may have left some open
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  SpawnOptions options;
  options.program = "/bin/sh";
  // `ls` opens one more descriptor for its listing; the expected text has it as 3.
  options.arguments = {"-c", "ls /proc/self/fd | tr '\\n' ' ' >&7"};
  options.fds = {{ends[1], 7}};
  ASSERT_TRUE(spawn(options).ok());
  close(ends[1]);
  std::string text;
  char buffer[256];
  ssize_t got = 0;
  while ((got = read(ends[0], buffer, sizeof(buffer))) > 0) {
    text.append(buffer, static_cast<size_t>(got));
  }
  close(ends[0]);
  EXPECT_EQ(text, "0 1 2 3 7 ");
}

TEST(PacketPeer, PacketsBeyondTheSocketBufferAreSentLaterInOrderWithTheirDescriptors) {
  constexpr int kPackets = 1000;  // more than a socket buffer holds
  EventLoop loop;
  ASSERT_TRUE(loop.open().ok());
  Result<std::pair<UniqueFd, UniqueFd>> sockets = make_socket_pair();
  ASSERT_TRUE(sockets.ok());
  UniqueFd reader = std::move(sockets->second);
  std::string closed;
  PacketPeer peer(loop, std::move(sockets->first), {.max_packet_bytes = 4096},
                  {[](Packet) {},
                   [&](std::string reason) {
                     closed = reason;
                     loop.stop();
                   }});
  ASSERT_TRUE(peer.start().ok());
  const UniqueFd file(open("/dev/null", O_RDONLY | O_CLOEXEC));
  for (int i = 0; i < kPackets; ++i) {
    const std::string text = std::to_string(i) + std::string(1000, 'x');
    const int fd = file.get();
    peer.send(bytes(text), {&fd, 1});
  }
  EXPECT_FALSE(peer.drained()) << "the test needs a full buffer";
  int right = 0;
  std::thread consumer([&] {
    for (int i = 0; i < kPackets; ++i) {
      Result<Packet> packet = receive_packet(reader.get(), 4096, 20'000, Descriptors::kTaken);
      if (!packet.ok() || packet->closed || packet->fds.size() != 1) break;
      const std::string text(reinterpret_cast<const char*>(packet->data.data()),
                             packet->data.size());
      if (text.starts_with(std::to_string(i) + "x")) ++right;
    }
    reader.reset();  // ends the loop
  });
  ASSERT_TRUE(loop.run().ok());
  consumer.join();
  EXPECT_EQ(right, kPackets);
  EXPECT_NE(closed, "");
}

constexpr uint64_t kAskMs = 50;
constexpr uint64_t kLateMs = 300;

TEST(Heartbeat, APeerThatDoesNotAnswerIsReportedOnceUntilItAnswers) {
  EventLoop loop;
  ASSERT_TRUE(loop.open().ok());
  int asked = 0;
  int silent = 0;
  int back = 0;
  Heartbeat heartbeat(loop, kAskMs, kLateMs,
                      {[&] { return ++asked != 0; }, [] { return true; },
                       [&](uint64_t) {
                         ++silent;
                         loop.call_after(4 * kAskMs, [&] { loop.stop(); });
                       },
                       [&](uint64_t) { ++back; }});
  heartbeat.beat();
  ASSERT_TRUE(loop.run().ok());
  EXPECT_EQ(asked, 1) << "no second question while one is unanswered";
  EXPECT_EQ(silent, 1) << "silence is reported once";
  EXPECT_TRUE(heartbeat.is_silent());
  heartbeat.heard();
  heartbeat.heard();
  EXPECT_EQ(back, 1);
  EXPECT_FALSE(heartbeat.is_silent());
}

// This happens when both processes are stopped together, or the machine stalls.
TEST(Heartbeat, TimeInWhichTheAskingProcessWasStoppedDoesNotCount) {
  EventLoop loop;
  ASSERT_TRUE(loop.open().ok());
  int silent = 0;
  Heartbeat heartbeat(
      loop, kAskMs, kLateMs,
      {[] { return true; }, [] { return true; }, [&](uint64_t) { ++silent; }, [](uint64_t) {}});
  heartbeat.beat();
  loop.call_after(1, [&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(3 * kLateMs));
    // The answer arrives after the heartbeat's timer has checked for it.
    loop.call_after(1, [&] {
      heartbeat.heard();
      loop.stop();
    });
  });
  ASSERT_TRUE(loop.run().ok());
  EXPECT_EQ(silent, 0);
}

// Descriptors that have been sent and not received. The kernel counts them per user, and compares
// the count with RLIMIT_NOFILE of the process that sends the next one.
class InFlight {
 public:
  // Sends descriptors until the kernel refuses more.
  bool fill() {
    Result<std::pair<UniqueFd, UniqueFd>> sockets = make_socket_pair();
    if (!sockets.ok()) return false;
    held_ = std::move(*sockets);
    const int fds[] = {STDIN_FILENO, STDIN_FILENO, STDIN_FILENO, STDIN_FILENO};
    for (;;) {
      const Status sent = send_packet(held_.first.get(), bytes("x"), fds);
      if (!sent.ok()) return sent.code() == kNoBufferNow;
    }
  }
  void release() {
    held_.first.reset();
    held_.second.reset();
  }

 private:
  std::pair<UniqueFd, UniqueFd> held_;
};

// Makes this process one of a user without privileges and with few descriptors.
bool become_limited() {
  const rlimit few{32, 32};
  if (setrlimit(RLIMIT_NOFILE, &few) != 0) return false;
  return geteuid() != 0 || (setgid(54321) == 0 && setuid(54321) == 0);
}

// 0, or the number of the step that has failed.
int sends_once_descriptors_are_received() {
  if (!become_limited()) return 1;
  EventLoop loop;
  Result<std::pair<UniqueFd, UniqueFd>> sockets = make_socket_pair();
  if (!loop.open().ok() || !sockets.ok()) return 2;
  std::string closed;
  int delays = 0;
  PacketPeer peer(loop, std::move(sockets->first), {.max_packet_bytes = 64},
                  {[](Packet) {}, [&](std::string reason) { closed = reason; },
                   [&](std::string) { ++delays; }});
  InFlight others;
  if (!peer.start().ok() || !others.fill()) return 3;
  const int fd = STDIN_FILENO;
  for (const char* text : {"1", "2"}) peer.send(bytes(text), {&fd, 1});
  peer.send(bytes("3"));
  if (peer.queued() != 3) return 4;
  std::string got;
  if (!loop.watch(sockets->second.get(), EPOLLIN,
                  [&](uint32_t) {
                    Result<Packet> packet =
                        receive_packet(sockets->second.get(), 64, 0, Descriptors::kTaken);
                    if (!packet.ok() || packet->closed) return loop.stop();
                    got += static_cast<char>(packet->data[0]);
                    got += std::to_string(packet->fds.size());
                    if (got.size() == 6) loop.stop();
                  })
           .ok()) {
    return 5;
  }
  // Late enough for the pauses between retries to have reached their maximum, and for the delay to
  // have been reported.
  loop.call_after(4 * kLongestRetryMs, [&] { others.release(); });
  if (!loop.run().ok()) return 6;
  if (got != "112130" || !closed.empty()) return 7;
  if (delays != 1) return 8;
  // A loop that spins instead of sleeping uses much CPU time.
  timespec used{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return used.tv_sec == 0 && used.tv_nsec < 500'000'000 ? 0 : 9;
}

// A peer that has not read for so long that its socket's buffer is full.
class LatePeerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(loop_.open().ok());
    Result<std::pair<UniqueFd, UniqueFd>> sockets = make_socket_pair();
    ASSERT_TRUE(sockets.ok());
    reader_ = std::move(sockets->second);
    peer_ = std::make_unique<PacketPeer>(loop_, std::move(sockets->first),
                                         PacketPeer::Options{.max_packet_bytes = 4096},
                                         PacketPeer::Callbacks{[](Packet) {},
                                                               [this](std::string reason) {
                                                                 closed_ = reason;
                                                                 loop_.stop();
                                                               }});
    ASSERT_TRUE(peer_->start().ok());
    while (send_packet(peer_->fd(), bytes("x")).ok()) ++in_socket_;
  }
  void send(size_t packets) {
    for (size_t i = 0; i < packets; ++i) peer_->send(bytes("x"));
  }

  EventLoop loop_;
  size_t in_socket_ = 0;
  UniqueFd reader_;
  std::unique_ptr<PacketPeer> peer_;
  std::string closed_;
};

TEST_F(LatePeerTest, GetsAllPacketsOfAFullQueue) {
  send(kMaxQueuedPackets);
  std::thread consumer([&] {
    for (size_t i = 0; i < in_socket_ + kMaxQueuedPackets; ++i) {
      const Result<Packet> packet = receive_packet(reader_.get(), 4096);
      ASSERT_TRUE(packet.ok() && !packet->closed) << i;
    }
    reader_.reset();  // ends the loop
  });
  ASSERT_TRUE(loop_.run().ok());
  consumer.join();
  EXPECT_NE(closed_, "the peer does not read its messages");
}

TEST_F(LatePeerTest, IsDisconnectedWhenTheQueueOverflows) {
  send(kMaxQueuedPackets + 1);
  ASSERT_TRUE(loop_.run().ok());
  EXPECT_EQ(closed_, "the peer does not read its messages");
}

// Unrelated processes of the user have so many descriptors in flight that the kernel refuses more:
// packets with descriptors wait until it accepts them, and the loop sleeps meanwhile. In a child
// process of another user, since root has no such limit.
TEST(PacketPeer, PacketsWaitWhileTooManyDescriptorsAreInFlight) {
  const pid_t child = fork();
  if (child == 0) _exit(sends_once_descriptors_are_received());
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

// As above, for a sender without an event loop, which may sleep.
TEST(UnixSocket, ASendWithATimeLimitWaitsWhileTooManyDescriptorsAreInFlight) {
  const pid_t child = fork();
  if (child == 0) {
    if (!become_limited()) _exit(1);
    InFlight others;
    Result<std::pair<UniqueFd, UniqueFd>> sockets = make_socket_pair();
    const int fd = STDIN_FILENO;
    const auto send = [&](uint64_t limit_ms) {
      return send_packet_within(limit_ms, sockets->first.get(), bytes("x"), {&fd, 1}).code();
    };
    if (!others.fill() || send(0) != kNoBufferNow || send(20) != kNoBufferNow) _exit(2);
    std::thread frees([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      others.release();
    });
    const CUresult sent = send(60'000);
    frees.join();
    _exit(sent == CUDA_SUCCESS ? 0 : 3);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(PacketPeer, APacketBeyondTheLimitClosesTheConnection) {
  EventLoop loop;
  ASSERT_TRUE(loop.open().ok());
  Result<std::pair<UniqueFd, UniqueFd>> sockets = make_socket_pair();
  ASSERT_TRUE(sockets.ok());
  for (const size_t length : {4096, 4097}) {
    ASSERT_TRUE(send_packet(sockets->second.get(), bytes(std::string(length, 'x'))).ok());
  }
  size_t got = 0;
  std::string closed;
  PacketPeer peer(loop, std::move(sockets->first), {.max_packet_bytes = 4096},
                  {[&](const Packet& packet) { got += packet.data.size(); },
                   [&](const std::string& reason) {
                     closed = reason;
                     loop.stop();
                   }});
  ASSERT_TRUE(peer.start().ok());
  ASSERT_TRUE(loop.run().ok());
  EXPECT_EQ(got, 4096u);
  EXPECT_NE(closed.find("4096"), std::string::npos) << closed;
}

TEST(PacketPeer, PacketsSentBeforeThePeerClosedArrive) {
  EventLoop loop;
  ASSERT_TRUE(loop.open().ok());
  Result<std::pair<UniqueFd, UniqueFd>> sockets = make_socket_pair();
  ASSERT_TRUE(sockets.ok());
  ASSERT_TRUE(send_packet(sockets->first.get(), bytes("never read")).ok());
  ASSERT_TRUE(send_packet(sockets->second.get(), bytes("last words")).ok());
  sockets->second.reset();
  std::string got;
  PacketPeer peer(loop, std::move(sockets->first), {.max_packet_bytes = 4096},
                  {[&](Packet packet) { got.append(packet.data.size(), '.'); },
                   [&](std::string) { loop.stop(); }});
  ASSERT_TRUE(peer.start().ok());
  ASSERT_TRUE(loop.run().ok());
  EXPECT_EQ(got.size(), 10u);
}

}  // namespace
}  // namespace openmps
