// SPDX-License-Identifier: Apache-2.0
// Which daemon is trusted in a user namespace: one that proves that it may become the program's
// user.
#include "wire/trust.h"

#include <fcntl.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/unix_socket.h"
#include "wire/control_call.h"

namespace openmps::wire {
namespace {

constexpr uid_t kOverflow = 65534;
constexpr uid_t kAnne = 54321;
constexpr uid_t kBert = 54322;

TEST(TrustIn, WhereAllUsersAreSeenTheNumberDecides) {
  for (const uid_t me : {uid_t{0}, kAnne, kOverflow}) {
    const Viewer viewer{me, kOverflow, true};
    EXPECT_EQ(trust_in(0, viewer, std::nullopt), Trust::kGiven) << me;
    EXPECT_EQ(trust_in(me, viewer, std::nullopt), Trust::kGiven) << me;
    EXPECT_EQ(trust_in(kBert, viewer, std::nullopt), Trust::kRefused) << me;
    EXPECT_EQ(trust_in(kBert, viewer, kBert), Trust::kGiven) << me;
  }
  EXPECT_EQ(trust_in(kOverflow, {kAnne, kOverflow, true}, std::nullopt), Trust::kRefused);
}

TEST(TrustIn, InAUserNamespaceWhoIsOutsideHasToProveHimself) {
  const Viewer viewer{kAnne, kOverflow, false};
  EXPECT_EQ(trust_in(kOverflow, viewer, std::nullopt), Trust::kNeedsProof);
  EXPECT_EQ(trust_in(0, viewer, std::nullopt), Trust::kGiven) << "the namespace's own root";
  EXPECT_EQ(trust_in(kAnne, viewer, std::nullopt), Trust::kGiven);
  EXPECT_EQ(trust_in(kBert, viewer, std::nullopt), Trust::kRefused);
  EXPECT_EQ(trust_in(kOverflow, viewer, kOverflow), Trust::kGiven);
}

TEST(TrustIn, WhoHasNoNumberCantTellOthersFromItself) {
  const Viewer viewer{kOverflow, kOverflow, false};
  EXPECT_EQ(trust_in(kOverflow, viewer, std::nullopt), Trust::kRefused);
  EXPECT_EQ(trust_in(kOverflow, viewer, kOverflow), Trust::kGiven);
  EXPECT_EQ(trust_in(0, viewer, std::nullopt), Trust::kGiven);
}

TEST(TrustIn, ThisProcessKnowsItself) {
  const Viewer viewer = this_viewer();
  EXPECT_EQ(viewer.user, geteuid());
  EXPECT_NE(viewer.overflow, 0u);
}

// Processes of several users and user namespaces. A child's status is its answer.
class NamespaceTest : public ::testing::Test {
 protected:
  enum Answer { kTrusted = 10, kRefused = 11, kOtherError = 12, kNoNamespace = 13 };

  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "only root can be several users";
    char pattern[] = "/tmp/openmps-test-XXXXXX";
    ASSERT_NE(mkdtemp(pattern), nullptr);
    directory_ = pattern;
    ASSERT_EQ(chmod(pattern, 0777), 0);
    path_ = directory_ + "/socket";
  }
  void TearDown() override {
    if (!directory_.empty()) std::filesystem::remove_all(directory_);
  }

  // A child of `user`, without any right of root.
  static pid_t start(uid_t user, const std::function<int()>& run) {
    const pid_t child = fork();
    if (child != 0) return child;
    // The files of /proc/self are the user's own again.
    const bool became =
        user == 0 || (setgroups(0, nullptr) == 0 && setresgid(user, user, user) == 0 &&
                      setresuid(user, user, user) == 0 && prctl(PR_SET_DUMPABLE, 1) == 0);
    _exit(became ? run() : kOtherError);
  }
  static int end(pid_t child) {
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  // A program of `user` in a user namespace in which it is `inside`, and nobody else has a number;
  // with -1 nobody has.
  int program(uid_t user, int inside) {
    return end(start(user, [&] {
      if (unshare(CLONE_NEWUSER) != 0) return int{kNoNamespace};
      if (inside >= 0 && !map_user(inside, user)) return int{kNoNamespace};
      const Result<UniqueFd> daemon = connect_to_daemon(path_);
      if (daemon.ok()) return int{kTrusted};
      return int{daemon.status().code() == CUDA_ERROR_NOT_PERMITTED ? kRefused : kOtherError};
    }));
  }
  static bool map_user(int inside, uid_t user) {
    const std::string line = std::to_string(inside) + " " + std::to_string(user) + " 1";
    return put("/proc/self/uid_map", line) && put("/proc/self/setgroups", "deny") &&
           put("/proc/self/gid_map", line);
  }
  static bool put(const char* path, std::string_view text) {
    const UniqueFd file(open(path, O_WRONLY | O_CLOEXEC));
    return file.valid() &&
           write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
  }
  // A daemon of `user` that answers a program's first packet, if it sends one, as `reply` says.
  pid_t daemon(uid_t user, const std::function<void(int socket, uid_t peer)>& reply) {
    int ready[2];
    EXPECT_EQ(pipe2(ready, O_CLOEXEC), 0);
    const pid_t child = start(user, [&] {
      const Result<UniqueFd> listener = listen_at(path_, 0666);
      if (!listener.ok() || write(ready[1], "r", 1) != 1) return 1;
      const UniqueFd socket(accept4(listener->get(), nullptr, nullptr, SOCK_CLOEXEC));
      const Result<PeerCredentials> peer = peer_credentials(socket.get());
      const Result<Packet> packet = receive_packet(socket.get(), 4096);
      if (!peer.ok() || !packet.ok()) return 2;
      if (packet->closed) return 0;
      if (!is_demand_for_proof(packet->data)) return 3;
      reply(socket.get(), peer->uid);
      return 0;
    });
    char byte = 0;
    close(ready[1]);
    EXPECT_EQ(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    return child;
  }
  // What the program answers to this daemon.
  int outcome(uid_t daemons_user, const std::function<void(int, uid_t)>& reply, int inside,
              uid_t programs_user = kAnne) {
    const pid_t serving = daemon(daemons_user, reply);
    const int answer = program(programs_user, inside);
    EXPECT_EQ(end(serving), 0);
    std::filesystem::remove(path_);
    return answer;
  }
  bool can_run() {
    const int answer = end(start(kAnne, [] {
      return unshare(CLONE_NEWUSER) == 0 && map_user(0, kAnne) ? 0 : int{kNoNamespace};
    }));
    return answer == 0;
  }

  std::string directory_;
  std::string path_;
};

void prove(int socket, uid_t peer) {
  if (!give_proof(socket, peer).ok()) _exit(4);
}

// The answer's bytes, without who sends them.
std::vector<std::byte> words_of_proof() {
  Result<std::pair<UniqueFd, UniqueFd>> pair = make_socket_pair();
  if (!pair.ok() || !give_proof(pair->first.get(), getuid()).ok()) _exit(20);
  Result<Packet> packet = receive_packet(pair->second.get(), 4096);
  if (!packet.ok() || packet->data.empty()) _exit(21);
  return std::move(packet->data);
}

// Its words with another program's data are no proof, whoever says them.
TEST_F(NamespaceTest, AnotherPacketOfRootIsNoProof) {
  if (!can_run()) GTEST_SKIP() << "no user namespace can be made here";
  const auto say_more = [](int socket, uid_t peer) {
    std::vector<std::byte> words = words_of_proof();
    words.push_back(std::byte{0});
    if (!send_packet_as(peer, socket, words).ok()) _exit(4);
  };
  EXPECT_EQ(outcome(0, say_more, 0), kRefused);
  const auto say_less = [](int socket, uid_t peer) {
    std::vector<std::byte> words = words_of_proof();
    words.pop_back();
    if (!send_packet_as(peer, socket, words).ok()) _exit(4);
  };
  EXPECT_EQ(outcome(0, say_less, 0), kRefused);
}

TEST_F(NamespaceTest, RootOutsideProvesItself) {
  if (!can_run()) GTEST_SKIP() << "no user namespace can be made here";
  EXPECT_EQ(outcome(0, prove, 0), kTrusted) << "as the namespace's root";
  EXPECT_EQ(outcome(0, prove, 1000), kTrusted) << "as another of its users";
  EXPECT_EQ(outcome(
                0, [](int, uid_t) {}, 0),
            kRefused)
      << "without an answer";
}

// All of these appear to the program with the number that root outside has.
TEST_F(NamespaceTest, NobodyElseOutsideDoes) {
  if (!can_run()) GTEST_SKIP() << "no user namespace can be made here";
  const auto lie = [](int socket, uid_t peer) {
    if (give_proof(socket, peer).code() != CUDA_ERROR_NOT_PERMITTED) _exit(4);
    if (!give_proof(socket, geteuid()).ok()) _exit(5);
  };
  EXPECT_EQ(outcome(kBert, lie, 0), kRefused) << "as the user that it is";
  const auto state_nobody = [](int socket, uid_t) {
    if (!send_packet(socket, words_of_proof()).ok()) _exit(6);
  };
  EXPECT_EQ(outcome(kBert, state_nobody, 0), kRefused);
  const auto pass_descriptor = [](int socket, uid_t) {
    const int passed[] = {STDIN_FILENO};
    if (!send_packet(socket, words_of_proof(), passed).ok()) _exit(7);
  };
  EXPECT_EQ(outcome(kBert, pass_descriptor, 0), kRefused);
  // As root of a user namespace of its own it may state users of that namespace, no others.
  const auto lie_as_root = [&](int socket, uid_t peer) {
    if (unshare(CLONE_NEWUSER) != 0 || !map_user(0, kBert)) _exit(8);
    if (give_proof(socket, peer).ok()) _exit(9);
    if (!give_proof(socket, 0).ok()) _exit(10);
  };
  EXPECT_EQ(outcome(kBert, lie_as_root, 0), kRefused);
}

TEST_F(NamespaceTest, AProgramWithoutANumberTrustsNobodyOutside) {
  if (!can_run()) GTEST_SKIP() << "no user namespace can be made here";
  EXPECT_EQ(outcome(0, prove, -1), kRefused);
  EXPECT_EQ(outcome(kBert, prove, -1), kRefused);
}

}  // namespace
}  // namespace openmps::wire
