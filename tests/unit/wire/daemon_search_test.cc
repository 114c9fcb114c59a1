// SPDX-License-Identifier: Apache-2.0
// Which daemon a program finds that CUDA_MPS_PIPE_DIRECTORY leads to none, and where a daemon
// serves.
#include "wire/daemon_search.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "base/unix_socket.h"
#include "wire/control_call.h"

namespace openmps::wire {
namespace {

constexpr uid_t kSearcher = 65534;
constexpr uid_t kStranger = 65533;

class DaemonSearchTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(unsetenv("CUDA_MPS_PIPE_DIRECTORY"), 0);
    char pattern[] = "/tmp/openmps-test-XXXXXX";
    ASSERT_NE(mkdtemp(pattern), nullptr);
    root_ = pattern;
    ASSERT_EQ(chmod(pattern, 0777), 0);
    for (const char* name : {"first", "second", "third"}) {
      directories_.push_back(root_ + "/" + name);
      ASSERT_EQ(mkdir(directories_.back().c_str(), 0777), 0);
      ASSERT_EQ(chmod(directories_.back().c_str(), 0777), 0);
      usual_.push_back(directories_.back().c_str());
    }
  }
  void TearDown() override {
    ASSERT_EQ(unsetenv("CUDA_MPS_PIPE_DIRECTORY"), 0);
    if (!root_.empty()) std::filesystem::remove_all(root_);
  }

  void listen_in(const std::string& directory) {
    Result<UniqueFd> listener = listen_at(control_socket_path(directory), 0666);
    ASSERT_TRUE(listener.ok()) << listener.status().message();
    listeners_.push_back(std::move(listener).value());
  }
  void listen_as(uid_t uid, const std::string& directory) {
    ASSERT_EQ(seteuid(uid), 0);
    listen_in(directory);
    ASSERT_EQ(seteuid(0), 0);
  }
  std::string found() {
    const DaemonSearch search = find_daemon(usual_);
    return search.socket.ok() ? search.directory : "none";
  }

  std::string root_;
  std::vector<std::string> directories_;
  std::vector<const char*> usual_;
  std::vector<UniqueFd> listeners_;
};

TEST_F(DaemonSearchTest, TheFirstDirectoryWithADaemonCounts) {
  EXPECT_EQ(found(), "none");
  for (const size_t place : {2, 1, 0}) {
    listen_in(directories_[place]);
    EXPECT_EQ(found(), directories_[place]);
  }
  listeners_.pop_back();  // its socket is left, and nobody listens
  EXPECT_EQ(found(), directories_[1]);
}

TEST_F(DaemonSearchTest, TheVariableAlwaysCounts) {
  listen_in(directories_[0]);
  ASSERT_EQ(setenv("CUDA_MPS_PIPE_DIRECTORY", directories_[1].c_str(), 1), 0);
  const DaemonSearch search = find_daemon(usual_);
  EXPECT_EQ(search.directory, directories_[1]);
  EXPECT_FALSE(search.socket.ok());
  EXPECT_EQ(pipe_directory_to_serve(true), directories_[1]);
  ASSERT_EQ(setenv("CUDA_MPS_PIPE_DIRECTORY", "", 1), 0);
  EXPECT_EQ(found(), directories_[0]) << "an empty value is none";
}

TEST_F(DaemonSearchTest, AnotherUsersProcessIsPassedOver) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can change its user";
  listen_as(kStranger, directories_[0]);
  ASSERT_EQ(seteuid(kSearcher), 0);
  const DaemonSearch refused = find_daemon(usual_);
  ASSERT_EQ(seteuid(0), 0);
  EXPECT_EQ(refused.directory, directories_[0]) << "who reads the error learns of it";
  EXPECT_EQ(refused.socket.status().code(), CUDA_ERROR_NOT_PERMITTED);
  listen_as(kSearcher, directories_[2]);
  ASSERT_EQ(seteuid(kSearcher), 0);
  EXPECT_EQ(found(), directories_[2]);
  listeners_.pop_back();
  ASSERT_EQ(seteuid(0), 0);
  std::filesystem::remove(control_socket_path(directories_[2]));
  listen_in(directories_[1]);
  ASSERT_EQ(seteuid(kSearcher), 0);
  EXPECT_EQ(found(), directories_[1]) << "root's daemon is every user's";
  ASSERT_EQ(seteuid(0), 0);
}

TEST_F(DaemonSearchTest, ADaemonServesWhereItsUsersProgramsLook) {
  std::vector<std::string> usual(usual_pipe_directories().begin(), usual_pipe_directories().end());
  EXPECT_EQ(usual,
            (std::vector<std::string>{"/run/openmps", "/run/nvidia-mps", "/tmp/nvidia-mps"}));
  if (geteuid() != 0) GTEST_SKIP() << "only root can change its user";
  EXPECT_EQ(pipe_directory_to_serve(false), "/run/openmps");
  EXPECT_EQ(pipe_directory_to_serve(true), "/run/nvidia-mps");
  ASSERT_EQ(seteuid(kSearcher), 0);
  EXPECT_EQ(pipe_directory_to_serve(false), "/tmp/nvidia-mps");
  EXPECT_EQ(pipe_directory_to_serve(true), "/tmp/nvidia-mps");
  ASSERT_EQ(seteuid(0), 0);
}

TEST_F(DaemonSearchTest, ADaemonElsewhereIsSeen) {
  EXPECT_EQ(other_daemon_than(directories_[0], usual_), "");
  listen_in(directories_[0]);
  EXPECT_EQ(other_daemon_than(directories_[0], usual_), "");
  EXPECT_EQ(other_daemon_than(directories_[2], usual_), directories_[0]);
}

// The queue of a socket that nobody accepts from is full: connecting would wait for ever.
TEST_F(DaemonSearchTest, ADaemonThatStartsDoesNotWaitForAnother) {
  listen_in(directories_[0]);
  std::vector<UniqueFd> waiting;
  for (Result<UniqueFd> next = connect_to(control_socket_path(directories_[0]), Waits::kNo);
       next.ok(); next = connect_to(control_socket_path(directories_[0]), Waits::kNo)) {
    waiting.push_back(std::move(next).value());
  }
  ASSERT_FALSE(waiting.empty());
  EXPECT_EQ(other_daemon_than(directories_[1], usual_), "");
}

}  // namespace
}  // namespace openmps::wire
