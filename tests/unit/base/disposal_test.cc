// SPDX-License-Identifier: Apache-2.0
// Which descriptors Disposal closes itself, and which it leaves to a child process because their
// last close() may block.
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

  // Whether our end is still open right after hang_up(): a child process closes it later.
  bool waits(Disposal::Peers peers) {
    const int number = ours_.get();
    Disposal disposal(loop_, peers);
    disposal.hang_up(std::move(ours_));
    EXPECT_EQ(send(theirs_.get(), "", 0, MSG_NOSIGNAL), -1) << "the peer can't send any more";
    return fcntl(number, F_GETFD) >= 0;
  }

  void they_send(std::string_view text, std::span<const int> fds = {}) {
    ASSERT_TRUE(send_packet(theirs_.get(), std::as_bytes(std::span(text)), fds).ok());
  }

  EventLoop loop_;
  UniqueFd ours_, theirs_;
};

TEST_F(DisposalTest, ClosesAnEmptyConnectionOfOneUserAtOnce) {
  EXPECT_FALSE(waits(Disposal::Peers::kOneUser));
}

TEST_F(DisposalTest, ClosesAConnectionAtOnceIfThePeerHasClosedIts) {
  theirs_.reset();
  const int number = ours_.get();
  Disposal disposal(loop_, Disposal::Peers::kOneUser);
  disposal.hang_up(std::move(ours_));
  EXPECT_LT(fcntl(number, F_GETFD), 0);
}

TEST_F(DisposalTest, LeavesConnectionsOfAnyUserToAProcess) {
  EXPECT_TRUE(waits(Disposal::Peers::kAnybody));
}

TEST_F(DisposalTest, LeavesAConnectionWithUnreadDataToAProcess) {
  they_send("unread");
  EXPECT_TRUE(waits(Disposal::Peers::kOneUser));
}

TEST_F(DisposalTest, LeavesDescriptorsBehindAnEmptyPacketToAProcess) {
  ASSERT_EQ(send(theirs_.get(), "", 0, 0), 0);
  const int fd = theirs_.get();
  they_send("x", std::span(&fd, 1));
  EXPECT_TRUE(waits(Disposal::Peers::kOneUser));
}

TEST_F(DisposalTest, LeavesAFileThatIsNotASocketToAProcess) {
  UniqueFd file(open("/dev/null", O_RDONLY | O_CLOEXEC));
  const int number = file.get();
  Disposal disposal(loop_, Disposal::Peers::kOneUser);
  disposal.hang_up(std::move(file));
  EXPECT_GE(fcntl(number, F_GETFD), 0);
}

}  // namespace
}  // namespace openmps
