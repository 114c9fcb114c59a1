// SPDX-License-Identifier: Apache-2.0
// What Disposal closes itself, and what it leaves to a process.
#include "base/disposal.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/unix_socket.h"

namespace openmps {
namespace {

class DisposalTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(loop_.open().ok());
    int ends[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    ours_.reset(ends[0]);
    theirs_.reset(ends[1]);
  }

  // Whether our end is still open right after it was hung up.
  bool waits(Disposal::Peers peers) {
    const int number = ours_.get();
    Disposal disposal(loop_, peers);
    disposal.hang_up(std::move(ours_));
    EXPECT_EQ(send(theirs_.get(), "", 0, MSG_NOSIGNAL), -1) << "nothing may come any more";
    return fcntl(number, F_GETFD) >= 0;
  }

  void they_send(std::string_view text, std::span<const int> fds = {}) {
    ASSERT_TRUE(send_packet(theirs_.get(), std::as_bytes(std::span(text)), fds).ok());
  }

  EventLoop loop_;
  UniqueFd ours_, theirs_;
};

TEST_F(DisposalTest, AnEmptyConnectionOfOneUsersIsClosedAtOnce) {
  EXPECT_FALSE(waits(Disposal::Peers::kOneUser));
}

TEST_F(DisposalTest, ItIsWhenThePeerHasGone) {
  theirs_.reset();
  const int number = ours_.get();
  Disposal disposal(loop_, Disposal::Peers::kOneUser);
  disposal.hang_up(std::move(ours_));
  EXPECT_LT(fcntl(number, F_GETFD), 0);
}

TEST_F(DisposalTest, AnybodysIsNot) { EXPECT_TRUE(waits(Disposal::Peers::kAnybody)); }

TEST_F(DisposalTest, WhatLiesUnreadGoesToAProcess) {
  they_send("unread");
  EXPECT_TRUE(waits(Disposal::Peers::kOneUser));
}

TEST_F(DisposalTest, SoDoDescriptorsBehindAnEmptyPacket) {
  ASSERT_EQ(send(theirs_.get(), "", 0, 0), 0);
  const int fd = theirs_.get();
  they_send("x", std::span(&fd, 1));
  EXPECT_TRUE(waits(Disposal::Peers::kOneUser));
}

TEST_F(DisposalTest, SoDoesAFileThatIsNoConnection) {
  UniqueFd file(open("/dev/null", O_RDONLY | O_CLOEXEC));
  const int number = file.get();
  Disposal disposal(loop_, Disposal::Peers::kOneUser);
  disposal.hang_up(std::move(file));
  EXPECT_GE(fcntl(number, F_GETFD), 0);
}

}  // namespace
}  // namespace openmps
