// SPDX-License-Identifier: Apache-2.0
// Clients that have ended while their work has not: what the lists show until their worker is
// replaced, and what other clients notice. Also the replacement of tainted workers.
#include <algorithm>

#include "base/text.h"
#include "mps_fixture.h"

namespace openmps {
namespace {

// Without a spare, which would be one of the workers that are counted.
constexpr const char* kSoon = "OPENMPS_DRAIN_SECONDS=1 OPENMPS_SPARE=off";
constexpr const char* kNever = "OPENMPS_DRAIN_SECONDS=3600";  // later than the end of a test

class EndingTest : public MpsTest {
 protected:
  std::vector<pid_t> workers() { return processes("openmps-worker"); }
  bool replaced(const std::vector<pid_t>& before) {
    return eventually([&] {
      const std::vector<pid_t> now = workers();
      return std::any_of(now.begin(), now.end(), [&](pid_t pid) {
        return std::find(before.begin(), before.end(), pid) == before.end();
      });
    });
  }
};

TEST_F(EndingTest, AClientWhoseWorkDoesNotEndIsShownAsEnding) {
  environment_ = kNever;
  start_daemon();
  const Client other = join("./other");
  Client stuck = join("never-ends");
  ASSERT_EQ(stuck.welcome.result, CUDA_SUCCESS);
  stuck.socket.reset();
  EXPECT_TRUE(eventually(
      [&] { return shell("ps\n").out.find("never-ends (ending)") != std::string::npos; }));
  const std::string me = std::to_string(getpid());
  const std::string server = std::to_string(other.welcome.server_pid);
  EXPECT_EQ(shell("get_client_list " + server + "\n").out, me + "\n" + me + " (ending)\n");
  EXPECT_EQ(shell("get_device_client_list\n").out,
            "[0] 00:00.0, NVIDIA H200\n" + me + ".1\n" + me + ".2 (ending)\n");
  const std::string json = shell("ps --json\n").out;
  EXPECT_LT(json.find("\"ending\": false"), json.find("\"ending\": true")) << json;
  // The client is not counted as active any more.
  EXPECT_NE(log_text("server.log").find("Number of active client contexts is 1."),
            std::string::npos);
}

TEST_F(EndingTest, QuitDoesNotWaitForWorkThatDoesNotEnd) {
  environment_ = kNever;
  start_daemon();
  Client stuck = join("never-ends");
  ASSERT_EQ(stuck.welcome.result, CUDA_SUCCESS);
  stuck.socket.reset();
  EXPECT_EQ(shell("quit\n").status, 0) << "124: quit took more than 40 s";
  EXPECT_TRUE(workers().empty());
}

TEST_F(EndingTest, AWorkerWithOnlyEndedSessionsIsReplacedInTime) {
  environment_ = kSoon;
  start_daemon();
  Client stuck = join("never-ends");
  ASSERT_EQ(stuck.welcome.result, CUDA_SUCCESS);
  const std::vector<pid_t> first = workers();
  stuck.socket.reset();
  ASSERT_TRUE(replaced(first));
  EXPECT_TRUE(eventually([&] { return workers().size() == 1; })) << "the old worker ends";
  EXPECT_TRUE(eventually([&] { return shell("ps\n").out.empty(); }));
  EXPECT_EQ(join().welcome.result, CUDA_SUCCESS);
  EXPECT_NE(log_text("server.log").find("(never-ends) has left work that does not end"),
            std::string::npos);
}

TEST_F(EndingTest, OtherClientsKeepTheOldWorkerUntilTheyEnd) {
  environment_ = kSoon;
  start_daemon();
  Client living = join("./living");
  Client stuck = join("never-ends");
  const std::vector<pid_t> first = workers();
  stuck.socket.reset();
  ASSERT_TRUE(replaced(first));
  const Client next = join("./next");
  EXPECT_EQ(next.welcome.result, CUDA_SUCCESS) << next.welcome.reason;
  EXPECT_EQ(living.header().status.load(), CUDA_SUCCESS);
  EXPECT_EQ(workers().size(), 2u);
  EXPECT_TRUE(eventually([&] {
    return log_text("server.log").find("fake worker: told to retire") != std::string::npos;
  }));
  const std::string table = shell("ps\n").out;
  for (const char* client : {"./living", "never-ends (ending)", "./next"}) {
    EXPECT_NE(table.find(client), std::string::npos) << client << "\n" << table;
  }
  living.socket.reset();
  EXPECT_TRUE(eventually([&] { return workers().size() == 1; }));
  EXPECT_NE(workers(), first);
  EXPECT_EQ(next.header().status.load(), CUDA_SUCCESS);
  EXPECT_TRUE(
      eventually([&] { return shell("ps\n").out.find("never-ends") == std::string::npos; }));
}

TEST_F(EndingTest, OtherClientsMoveToTheNextWorkerIfTheyCan) {
  environment_ = kSoon;
  start_daemon();
  const Client living = join("moves");
  Client stuck = join("never-ends");
  const std::vector<pid_t> first = workers();
  stuck.socket.reset();
  ASSERT_TRUE(replaced(first));
  EXPECT_TRUE(eventually([&] { return workers().size() == 1; })) << "the old one has no clients";
  EXPECT_NE(workers(), first);
  EXPECT_EQ(living.header().status.load(), CUDA_SUCCESS);
  EXPECT_TRUE(eventually([&] { return living.header().generation.load() == 1; }));
  const std::string table = shell("ps\n").out;
  EXPECT_NE(table.find("moves"), std::string::npos) << table;
}

TEST_F(EndingTest, WorkersAreReplacedUnderTheirClients) {
  start_daemon();
  const std::string nobody = shell("reload --worker\n").out;
  EXPECT_EQ(nobody, "There is no server\n");
  const Client one = join("moves");
  const Client two = join("./stays");
  const std::vector<pid_t> first = workers();
  const Outcome reloaded = shell("reload --worker\n");
  EXPECT_EQ(reloaded.out,
            "Server " + std::to_string(one.welcome.server_pid) +
                ": a new worker; 1 clients have moved to it, 1 stay in the old one\n");
  EXPECT_EQ(reloaded.status, 1);
  EXPECT_EQ(workers().size(), 2u);
  EXPECT_TRUE(replaced(first));
  EXPECT_EQ(one.header().generation.load(), 1u);
  EXPECT_EQ(two.header().generation.load(), 0u);
  EXPECT_EQ(two.header().status.load(), CUDA_SUCCESS);
  EXPECT_NE(log_text("server.log").find("stays in worker"), std::string::npos);
  EXPECT_EQ(join("./next").welcome.result, CUDA_SUCCESS);
}

TEST_F(EndingTest, AWorkerThatHangsWithALeavingClientIsKilled) {
  environment_ = kSoon;
  start_daemon();
  const Client client = join("hangs");
  const Outcome reloaded = shell("reload --worker\n");
  EXPECT_NE(reloaded.out.find("1 clients have moved to it"), std::string::npos) << reloaded.out;
  EXPECT_EQ(client.header().status.load(), CUDA_SUCCESS);
  EXPECT_EQ(client.header().generation.load(), 1u);
  EXPECT_EQ(workers().size(), 1u);
  EXPECT_NE(log_text("server.log").find("which hangs and is killed"), std::string::npos);
}

TEST_F(EndingTest, AWorkerThatDoesNotStartReplacesNone) {
  driver_ = "exclusive:" + directory_ + "/device";
  start_daemon();
  const Client client = join("moves");
  const std::vector<pid_t> first = workers();
  const Outcome reloaded = shell("reload --worker\n");
  EXPECT_NE(reloaded.out.find("nothing is changed"), std::string::npos) << reloaded.out;
  EXPECT_EQ(reloaded.status, 1);
  EXPECT_TRUE(eventually([&] { return workers() == first; }));
  EXPECT_EQ(join("./next").welcome.result, CUDA_SUCCESS) << "the worker serves on";
  EXPECT_EQ(client.header().generation.load(), 0u);
}

TEST_F(EndingTest, NoClientIsEndedByReplacingWorkers) {
  environment_ = "OPENMPS_TAKEOVER=off";
  start_daemon();
  std::vector<Client> clients;
  for (int i = 0; i < 3; ++i) {
    clients.push_back(join("moves"));
    const Outcome reloaded = shell("reload --worker\n");
    EXPECT_NE(reloaded.out.find("0 clients have moved to it, 1 stay"), std::string::npos)
        << reloaded.out;
  }
  clients.push_back(join("./last"));
  const std::vector<pid_t> all = workers();
  const Outcome refused = shell("reload --worker\n");
  EXPECT_NE(refused.out.find("still have clients"), std::string::npos) << refused.out;
  EXPECT_EQ(refused.status, 1);
  EXPECT_EQ(workers(), all);
  for (const Client& client : clients) EXPECT_EQ(client.header().status.load(), CUDA_SUCCESS);
}

// Pinned memory of ended clients can't be released while other work does not end.
TEST_F(EndingTest, AWorkerThatKeepsTooManyWindowsIsReplaced) {
  environment_ = kNever;
  start_daemon();
  const Client living = join("./living");
  const std::vector<pid_t> first = workers();
  constexpr size_t kMost = 32;  // server::kMaxKeptWindows
  for (size_t i = 0; i < kMost; ++i) join("keep-window").socket.reset();
  const auto ended = [&] { return shell("ps\n").out.find("keep-window") == std::string::npos; };
  EXPECT_TRUE(eventually(ended));
  EXPECT_EQ(workers(), first);
  join("keep-window").socket.reset();
  ASSERT_TRUE(replaced(first));
  EXPECT_EQ(living.header().status.load(), CUDA_SUCCESS);
  EXPECT_EQ(join("./next").welcome.result, CUDA_SUCCESS);
  EXPECT_NE(log_text("server.log").find("giving back what 32 clients have left"),
            std::string::npos);
}

TEST_F(EndingTest, TheOldestOfTooManyWorkersEndsWithItsClients) {
  environment_ = kSoon;
  start_daemon();
  constexpr size_t kKept = 3 + 1;  // kMaxRetiringWorkers, and the current one
  std::vector<Client> living;
  for (size_t i = 0; i < kKept; ++i) {
    living.push_back(join("./living"));
    ASSERT_EQ(living.back().welcome.result, CUDA_SUCCESS) << living.back().welcome.reason;
    Client stuck = join("never-ends");
    const std::vector<pid_t> before = workers();
    stuck.socket.reset();
    ASSERT_TRUE(replaced(before)) << i;
  }
  EXPECT_TRUE(living.front().wait_closed());
  EXPECT_EQ(living.front().header().status.load(), CUDA_ERROR_MPS_RPC_FAILURE);
  EXPECT_TRUE(eventually([&] { return workers().size() == kKept; }));
  for (size_t i = 1; i < living.size(); ++i) {
    EXPECT_EQ(living[i].header().status.load(), CUDA_SUCCESS) << i;
  }
  EXPECT_EQ(join().welcome.result, CUDA_SUCCESS);
}

TEST_F(EndingTest, ATaintedWorkerIsReplacedOnceItHasNoClients) {
  start_daemon();
  Client other = join("./other");
  const std::vector<pid_t> first = workers();
  Client tainter = join("taint-late");
  tainter.socket.reset();
  EXPECT_TRUE(eventually([&] { return shell("ps\n").out.find("taint") == std::string::npos; }));
  EXPECT_EQ(join("./third").welcome.result, CUDA_SUCCESS);
  EXPECT_EQ(workers(), first) << "the worker still has clients";
  other.socket.reset();
  ASSERT_TRUE(replaced(first));
  EXPECT_TRUE(eventually([&] { return workers().size() == 1; }));
  EXPECT_EQ(join().welcome.result, CUDA_SUCCESS);
}

// A client that connects after another has ended never gets the contexts that the other has
// tainted, even if the server has not noticed that end yet and the other's work still runs.
TEST_F(EndingTest, TheNextClientNeverGetsATaintedWorkerWithoutClients) {
  environment_ = kNever;
  start_daemon();
  for (const char* tainter : {"taint", "taint-and-never-end"}) {
    Client first = join(tainter);
    ASSERT_EQ(first.welcome.result, CUDA_SUCCESS) << first.welcome.reason;
    const std::vector<pid_t> before = workers();
    first.socket.reset();
    Client next = join("./next");
    EXPECT_EQ(next.welcome.result, CUDA_SUCCESS) << next.welcome.reason;
    EXPECT_TRUE(eventually([&] { return workers().size() == 1; }));
    EXPECT_NE(workers(), before) << tainter;
    EXPECT_EQ(next.header().status.load(), CUDA_SUCCESS);
    next.socket.reset();
    EXPECT_TRUE(eventually([&] { return shell("ps\n").out.empty(); }));
  }
}

TEST_F(EndingTest, AWorkerThatIsNotTaintedIsKept) {
  start_daemon();
  { const Client client = join(); }
  EXPECT_TRUE(eventually([&] { return shell("ps\n").out.empty(); }));
  const std::vector<pid_t> first = workers();
  EXPECT_EQ(join().welcome.result, CUDA_SUCCESS);
  EXPECT_EQ(workers(), first);
  const std::string log = log_text("server.log");
  EXPECT_EQ(log.find("is renewed"), std::string::npos);
}

}  // namespace
}  // namespace openmps
