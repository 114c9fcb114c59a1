// SPDX-License-Identifier: Apache-2.0
// A program trusts the daemons of root and of its own user. It sends nothing to another user's
// daemon.
#include "wire/control_call.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "base/unix_socket.h"

namespace openmps::wire {
namespace {

constexpr uid_t kUser = 65534;
constexpr uid_t kOtherUser = 65533;

// Changes the effective user until the end of its scope.
class As {
 public:
  explicit As(uid_t uid) { EXPECT_EQ(seteuid(uid), 0); }
  ~As() { EXPECT_EQ(seteuid(0), 0); }
};

class TrustTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "only root can change its user";
    char pattern[] = "/tmp/openmps-test-XXXXXX";
    ASSERT_NE(mkdtemp(pattern), nullptr);
    directory_ = pattern;
    ASSERT_EQ(chmod(pattern, 0777), 0);
    path_ = directory_ + "/socket";
  }
  void TearDown() override {
    if (!directory_.empty()) std::filesystem::remove_all(directory_);
  }

  void listen_as(uid_t uid) {
    const As user(uid);
    Result<UniqueFd> listener = listen_at(path_, 0666);
    ASSERT_TRUE(listener.ok()) << listener.status().message();
    listener_ = std::move(listener).value();
  }
  Result<UniqueFd> connect_as(uid_t uid) {
    const As user(uid);
    return connect_to_daemon(path_);
  }

  std::string directory_;
  std::string path_;
  UniqueFd listener_;
};

TEST_F(TrustTest, RootsDaemonIsTrustedByEveryUser) {
  listen_as(0);
  for (const uid_t uid : {uid_t{0}, kUser, kOtherUser}) {
    EXPECT_TRUE(connect_as(uid).ok()) << uid;
  }
}

TEST_F(TrustTest, AUsersDaemonIsTrustedByThatUserOnly) {
  listen_as(kUser);
  EXPECT_TRUE(connect_as(kUser).ok());
  for (const uid_t uid : {uid_t{0}, kOtherUser}) {
    const Result<UniqueFd> refused = connect_as(uid);
    ASSERT_FALSE(refused.ok()) << uid;
    EXPECT_EQ(refused.status().code(), CUDA_ERROR_NOT_PERMITTED);
    EXPECT_NE(refused.status().message().find("user 65534's"), std::string::npos)
        << refused.status().message();
  }
}

TEST_F(TrustTest, AUserNamedInTheEnvironmentIsTrusted) {
  listen_as(kUser);
  ASSERT_EQ(setenv("OPENMPS_DAEMON_UID", "65534", 1), 0);
  EXPECT_TRUE(connect_as(kOtherUser).ok());
  ASSERT_EQ(setenv("OPENMPS_DAEMON_UID", "65535", 1), 0);
  EXPECT_FALSE(connect_as(kOtherUser).ok());
  ASSERT_EQ(unsetenv("OPENMPS_DAEMON_UID"), 0);
}

}  // namespace
}  // namespace openmps::wire
