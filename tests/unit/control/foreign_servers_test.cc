// SPDX-License-Identifier: Apache-2.0
// Fake servers: programs of other users that claim towards root's daemon to be their user's server.
// One reports devices that do not exist, one does not answer, one sends answers that were not asked
// for. Each affects its own user only. Of a client that is to be suspended they answer what the
// test wants.
#include <grp.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>

#include "base/text.h"
#include "mps_fixture.h"
#include "wire/control_call.h"
#include "wire/message.h"

namespace openmps {
namespace {

constexpr uid_t kStranger = 65534;  // the user "nobody"
constexpr uid_t kOther = 54321;     // an ID that no user has
constexpr uint32_t kItsClient = 4711;
constexpr const char* kRight = "GPU-008cbaa3";
constexpr const char* kWrongDevice =
    "0000:66:00.0\tGPU-66666666-dead-dead-dead-666666666666\tFake\t1\t1000000000000\t1\t1\n";

enum class Manner { kAnswers, kIsMute, kFloods };

// A fake server in a child process: it reports `devices`, and treats all other questions as
// `manner` says.
class FakeServer {
 public:
  FakeServer(const std::string& socket_path, uid_t user, Manner manner, std::string devices)
      : manner_(manner), devices_(std::move(devices)) {
    Result<std::pair<UniqueFd, UniqueFd>> ends = make_socket_pair();
    EXPECT_TRUE(ends.ok());
    pid_ = fork();
    if (pid_ == 0) {
      test_ = std::move(ends->second);
      const bool is_user = setgroups(0, nullptr) == 0 && setresgid(user, user, user) == 0 &&
                           setresuid(user, user, user) == 0;
      if (is_user) serve(socket_path);
      _exit(1);
    }
    test_ = std::move(ends->first);
  }
  ~FakeServer() {
    if (pid_ > 0) (void)end();
  }
  FakeServer(const FakeServer&) = delete;
  FakeServer& operator=(const FakeServer&) = delete;

  [[nodiscard]] pid_t pid() const { return pid_; }
  // Makes the fake server answer all questions, also those that it has not answered so far.
  void speak() const {
    EXPECT_TRUE(send_packet(test_.get(), std::as_bytes(std::span("s", 1))).ok());
  }
  // How many questions the daemon has asked since the last call.
  [[nodiscard]] int questions() const {
    int count = 0;
    while (receive_packet(test_.get(), 1, 0).ok()) ++count;
    return count;
  }
  // Kills the fake server if it still runs. The result is the signal by which it has ended.
  [[nodiscard]] int end() {
    kill(pid_, SIGTERM);
    return ended();
  }
  [[nodiscard]] int ended() {
    int status = 0;
    EXPECT_EQ(waitpid(pid_, &status, 0), pid_);
    pid_ = 0;
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  }

 private:
  void serve(const std::string& socket_path) {
    Result<UniqueFd> daemon = connect_to(socket_path);
    if (!daemon.ok()) return;
    daemon_ = std::move(daemon).value();
    wire::Rejoin rejoin;
    fill_field(rejoin.server, format_text("uid_%u", geteuid()));
    if (!send_packet(daemon_.get(), wire::message_bytes(rejoin)).ok()) return;
    for (;;) {
      pollfd ready[] = {{daemon_.get(), POLLIN, 0}, {test_.get(), POLLIN, 0}};
      if (poll(ready, 2, manner_ == Manner::kFloods && told_ ? 0 : -1) < 0) return;
      if ((ready[1].revents & POLLIN) != 0) {
        if (!receive_packet(test_.get(), 1).ok()) return;
        manner_ = Manner::kAnswers;
        for (const wire::Query& query : std::exchange(open_, {})) answer(query);
      }
      if ((ready[0].revents & POLLIN) != 0 && !on_daemon()) return;
      if (manner_ == Manner::kFloods && told_) answer({});
    }
  }
  bool on_daemon() {
    Result<Packet> packet = receive_packet(daemon_.get(), wire::kMaxMessageBytes);
    if (!packet.ok() || packet->closed) return false;
    wire::Query query;
    if (!wire::read_message(packet->data, &query).ok()) return true;
    if (query.query == wire::QueryKind::kDevices) {
      told_ = true;
      answer(query);
      return true;
    }
    if (!send_packet(test_.get(), std::as_bytes(std::span("q", 1))).ok()) return false;
    manner_ == Manner::kIsMute ? open_.push_back(query) : answer(query);
    return true;
  }
  void answer(const wire::Query& query) const {
    const bool is_devices = query.query == wire::QueryKind::kDevices;
    const std::string body = is_devices ? devices_ : "";
    wire::Answer head;
    head.query = query.query;
    head.ticket = query.ticket;
    head.state = wire::ServerState::kActive;
    if (query.query == wire::QueryKind::kSuspend || query.query == wire::QueryKind::kResume) {
      // The PID is the result.
      head.result = query.session == kItsClient ? uint32_t{CUDA_SUCCESS} : query.session;
      const bool is_held = query.change.residence == wire::Residence::kHeld;
      head.moved_bytes = (is_held ? 1536 : 512) * wire::kMiB;
      head.stayed_bytes = is_held ? 2 * wire::kMiB : 0;
    }
    head.header.bytes = static_cast<uint32_t>(sizeof(head) + body.size());
    std::vector<std::byte> packet(head.header.bytes);
    memcpy(packet.data(), &head, sizeof(head));
    memcpy(packet.data() + sizeof(head), body.data(), body.size());
    (void)send_packet(daemon_.get(), packet).ok();
  }

  pid_t pid_ = 0;
  UniqueFd test_;  // connects the test and the child process
  UniqueFd daemon_;
  Manner manner_;
  std::string devices_;
  bool told_ = false;
  std::vector<wire::Query> open_;
};

class ForeignServersTest : public MpsTest {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "only root's daemon serves several users";
    MpsTest::SetUp();
  }
  void TearDown() override {
    if (geteuid() == 0) MpsTest::TearDown();
  }
  std::string socket_path() const { return wire::control_socket_path(pipe_); }
  void wait_for(const FakeServer& server) {
    const std::string line = format_text("NEW SERVER %d: Ready", static_cast<int>(server.pid()));
    ASSERT_TRUE(
        eventually([&] { return log_text("control.log").find(line) != std::string::npos; }));
  }
  void expect_right_devices() {
    const std::string devices = shell("device_query\n").out;
    EXPECT_NE(devices.find(kRight), std::string::npos) << devices;
    EXPECT_EQ(devices.find("GPU-6666"), std::string::npos) << devices;
  }
};

TEST_F(ForeignServersTest, ReportedDevicesCountForTheServersOwnUserOnly) {
  start_daemon();
  shell(format_text("set_default_device_pinned_mem_limit %s 2G\n", kRight));
  const FakeServer first(socket_path(), kStranger, Manner::kAnswers, kWrongDevice);
  wait_for(first);
  expect_right_devices();
  const Client before = join();
  EXPECT_EQ(before.welcome.limits.memory_limit[0], 2 * wire::kGiB);
  // A server that reports no devices, and connects after the one with the right devices.
  const FakeServer none(socket_path(), kOther, Manner::kAnswers, "");
  wait_for(none);
  expect_right_devices();
  const Client after = join();
  EXPECT_EQ(after.welcome.limits.memory_limit[0], 2 * wire::kGiB);
  const Outcome changed =
      shell(format_text("set_client_sm_count %d %s 1\n", static_cast<int>(getpid()), kRight));
  EXPECT_EQ(changed.out, "");
}

TEST_F(ForeignServersTest, PartitionsUseTheDevicesThatRootsServerReports) {
  start_daemon("-S");
  const FakeServer liar(socket_path(), kStranger, Manner::kAnswers, kWrongDevice);
  EXPECT_NE(shell(format_text("sm_partition add %s 1\n", kRight)).out.find(" created"),
            std::string::npos);
  EXPECT_EQ(shell("lspart\n").out.find("GPU-6666"), std::string::npos);
}

TEST_F(ForeignServersTest, TheDaemonDoesNotWaitForAServerThatDoesNotAnswer) {
  start_daemon();
  const Client client = join("./program");
  const FakeServer mute(socket_path(), kStranger, Manner::kIsMute, kWrongDevice);
  wait_for(mute);
  const std::string silence = format_text("Server %d of user %u does not answer\n",
                                          static_cast<int>(mute.pid()), kStranger);
  for (int i = 0; i < 3; ++i) {
    const std::string table = shell("ps\n").out;
    EXPECT_NE(table.find("./program"), std::string::npos) << table;
    EXPECT_TRUE(table.ends_with(silence)) << table;
  }
  EXPECT_EQ(mute.questions(), 1);
  const std::string pid = std::to_string(mute.pid());
  const Outcome list = shell("get_client_list " + pid + "\n");
  EXPECT_EQ(list.out, silence);
  EXPECT_EQ(list.status, 1);
  EXPECT_EQ(shell("get_server_status " + pid + "\n").out, "UNRESPONSIVE\n");
  EXPECT_NE(shell("get_server_list --json\n").out.find("UNRESPONSIVE"), std::string::npos);
  EXPECT_EQ(shell("terminate_client " + pid + " 1\n").out, silence + "1\n");
  EXPECT_EQ(mute.questions(), 0);
  mute.speak();
  EXPECT_TRUE(
      eventually([&] { return shell("ps\n").out.find("does not answer") == std::string::npos; }));
  EXPECT_GE(mute.questions(), 1);
  EXPECT_EQ(shell("get_client_list " + pid + "\n").out, "");
}

TEST_F(ForeignServersTest, SuspendSaysWhatItsServerAnswers) {
  start_daemon();
  FakeServer server(socket_path(), kStranger, Manner::kAnswers, kWrongDevice);
  wait_for(server);
  const std::pair<std::string, Outcome> cases[] = {
      {"suspend 4711",
       {"Client 4711: 1536 MiB are on the host; 2 MiB stay, which other programs have, too\n", 0}},
      {"suspend 4711 --until-used", {"Client 4711: 512 MiB are on the host\n", 0}},
      {"resume 4711", {"", 0}},
      {"suspend 1", {"Client 1 not found\n", 1}},
      {"resume 1", {"Client 1 not found\n", 1}},
      {"suspend 600",
       {"Client 600 stays on the device: its work does not end (it was given two seconds)\n", 1}},
      {"suspend 2",
       {"Client 2 stays on the device: the host has no memory for what it has there\n", 1}},
      {"resume 2", {"Client 2 does not go on: the device has no memory for it\n", 1}},
      {"suspend 801",
       {"Client 801 stays on the device: the daemon was started with OPENMPS_SUSPEND=off, or the "
        "server is of another build\n",
        1}},
      {"suspend 999", {"Client 999: the server refuses it with CUDA error 999\n", 1}},
      {"suspend x",
       {"Not understood: the client \"x\"\nUsage: suspend <PID or id:ID> [--until-used]\n", 1}},
      {"suspend 4711 --until",
       {"Not understood: --until\nUsage: suspend <PID or id:ID> [--until-used]\n", 1}},
      {"suspend id:1@77", {"Server 77 not found\n", 1}}};
  for (const auto& [line, wanted] : cases) {
    const Outcome said = shell(line + "\n");
    EXPECT_EQ(said.out, wanted.out) << line;
    EXPECT_EQ(said.status, wanted.status) << line;
  }
  EXPECT_EQ(control({"suspend", "4711", "--until-used"}).out, cases[1].second.out);
  // Its own user may suspend it. Another one's servers are not asked.
  const Client of_root = join("./program");
  const auto as_user = [&](uid_t user, const std::string& line) {
    EXPECT_EQ(seteuid(user), 0);
    Result<UniqueFd> socket = wire::connect_to_daemon(socket_path());
    EXPECT_EQ(seteuid(0), 0);
    EXPECT_TRUE(socket.ok()) << socket.status().message();
    if (!socket.ok()) return std::string();
    const Result<wire::ControlReply> reply = wire::call_control(socket->get(), line);
    return reply.ok() ? reply->text : reply.status().message();
  };
  EXPECT_EQ(as_user(kStranger, "suspend 4711 --until-used"), cases[1].second.out);
  EXPECT_EQ(as_user(kStranger, "suspend 1"), "Client 1 not found in a server of user 65534\n");
  EXPECT_EQ(as_user(kOther, "suspend 4711"), "Client 4711 not found in a server of user 54321\n");
  const std::string pid = std::to_string(server.pid());
  EXPECT_EQ(as_user(kOther, "resume id:1@" + pid),
            "Permission denied: server " + pid + " is user 65534's\n");
  EXPECT_EQ(as_user(kOther, "set_client_on_pressure 4711 wait"),
            "Permission denied: set_client_on_pressure is for root and for user 0, who runs the "
            "daemon\n");
  EXPECT_EQ(server.end(), SIGTERM);
}

TEST_F(ForeignServersTest, AServerThatFloodsTheDaemonWithAnswersIsKilled) {
  start_daemon();
  FakeServer flood(socket_path(), kStranger, Manner::kFloods, kWrongDevice);
  EXPECT_EQ(flood.ended(), SIGKILL);
  EXPECT_TRUE(eventually([&] { return shell("get_server_list\n").out.empty(); }));
}

}  // namespace
}  // namespace openmps
