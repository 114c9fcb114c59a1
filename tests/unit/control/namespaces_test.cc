// SPDX-License-Identifier: Apache-2.0
// A daemon in a PID namespace, with clients outside of it: the kernel reports PID 0 for each of
// them, and commands name them by ID.
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <regex>

#include "base/text.h"
#include "mps_fixture.h"

namespace openmps {
namespace {

class NamespacesTest : public MpsTest {
 protected:
  void SetUp() override {
    MpsTest::SetUp();
    keeper_ = fork();
    if (keeper_ == 0) keep_daemon();
    can_run_ = eventually([&] { return connect_raw().ok() || has_ended(); }) && keeper_ != 0;
    if (!can_run_) GTEST_SKIP() << "no PID namespace can be made here";
  }
  void TearDown() override {
    MpsTest::TearDown();
    if (keeper_ != 0) {
      EXPECT_EQ(waitpid(keeper_, nullptr, 0), keeper_);
    }
  }
  // Runs in a child process. The daemon is the first process of the namespace.
  [[noreturn]] void keep_daemon() const {
    if (unshare(CLONE_NEWPID) != 0) _exit(1);
    setenv("CUDA_MPS_PIPE_DIRECTORY", pipe_.c_str(), 1);
    setenv("CUDA_MPS_LOG_DIRECTORY", log_.c_str(), 1);
    setenv("OPENMPS_DRIVER", "fake", 1);
    const pid_t daemon = fork();
    if (daemon == 0) {
      execl((bin_ + "/openmps-control").c_str(), "openmps-control", "-f", nullptr);
      _exit(127);
    }
    (void)waitpid(daemon, nullptr, 0);
    _exit(1);
  }
  bool has_ended() {
    if (waitpid(keeper_, nullptr, WNOHANG) != keeper_) return false;
    keeper_ = 0;
    return true;
  }
  std::string server() {
    const std::string list = shell("get_server_list\n").out;
    return list.substr(0, list.find('\n'));
  }
  // The status of a client's session: 0 unless a command was meant for this client.
  static uint32_t status_of(const Client& client) { return client.header().status.load(); }

  pid_t keeper_ = 0;
  bool can_run_ = false;
};

TEST_F(NamespacesTest, ClientsAreNamedByTheirIds) {
  const Client one = join("./one");
  const Client two = join("./two");
  ASSERT_EQ(two.welcome.result, CUDA_SUCCESS) << two.welcome.reason;
  const std::string names[] = {format_text("id:%u", one.welcome.session),
                               format_text("id:%u", two.welcome.session)};
  EXPECT_EQ(shell("get_client_list " + server() + "\n").out, names[0] + "\n" + names[1] + "\n");
  const std::string table = shell("ps\n").out;
  const std::string mine = std::to_string(getpid());
  EXPECT_TRUE(std::regex_search(
      table, std::regex("\n" + names[1] + " +" + std::to_string(two.welcome.session) +
                        " .*\\./two \\(PID " + mine + " by its own word\\)")))
      << table;
  EXPECT_NE(table.find("rules by cgroup do not fit them"), std::string::npos) << table;
  const std::string json = shell("ps --json\n").out;
  EXPECT_NE(json.find("\"pid\": 0,"), std::string::npos) << json;
  EXPECT_NE(json.find("\"claimed_pid\": " + mine + ","), std::string::npos) << json;
  EXPECT_NE(shell("whoami\n").out.find("without a PID"), std::string::npos);

  EXPECT_EQ(shell("set_client_active_thread_percentage " + names[1] + " 25\n").out, "");
  const std::string changed = shell("ps --json\n").out;
  EXPECT_NE(changed.find("\"active_thread_percentage\": 25.0"), std::string::npos) << changed;
  EXPECT_NE(changed.find("\"active_thread_percentage\": 100.0"), std::string::npos) << changed;
  EXPECT_EQ(shell("reserve_sms " + names[0] + "@" + server() + " 0 4\n").out.find("4 SMs"), 0u);
  EXPECT_EQ(shell("reserve_sms " + names[1] + " 0 0\n").status, 1)
      << "the client has no reservation to end";
  EXPECT_EQ(shell("inspect " + names[1] + "\n").out.find("Session " + names[1].substr(3) + " of"),
            0u);
}

TEST_F(NamespacesTest, PidZeroNamesNoClient) {
  const Client one = join("./one");
  const Client two = join("./two");
  ASSERT_EQ(two.welcome.result, CUDA_SUCCESS) << two.welcome.reason;
  for (const std::string& command :
       {"terminate_client " + server() + " 0", std::string("inspect 0"),
        std::string("set_client_active_thread_percentage 0 25"),
        std::string("set_client_priority 0 1"), std::string("reserve_sms 0 0 4")}) {
    const std::string told = shell(command + "\n").out;
    EXPECT_EQ(told.find("0 is no client's PID: "), 0u) << command << ": " << told;
  }
  EXPECT_EQ(status_of(one), CUDA_SUCCESS);
  EXPECT_EQ(status_of(two), CUDA_SUCCESS);
  EXPECT_EQ(shell("ps --json\n").out.find("\"active_thread_percentage\": 25"), std::string::npos);

  const std::string terminate = "terminate_client " + server() + " ";
  EXPECT_EQ(shell(terminate + format_text("id:%u\n", one.welcome.session)).out, "0\n");
  EXPECT_EQ(status_of(one), CUDA_ERROR_MPS_CLIENT_TERMINATED);
  EXPECT_EQ(status_of(two), CUDA_SUCCESS);
  EXPECT_EQ(shell(terminate + "id:99\n").out, "Client id:99 not found!\n1\n");
}

}  // namespace
}  // namespace openmps
