// SPDX-License-Identifier: Apache-2.0
// `openmps` as a program: the environment of the programs that it runs, and its output.
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "mps_fixture.h"
#include "wire/message.h"

namespace openmps {
namespace {

class OpenmpsTest : public MpsTest {
 protected:
  Outcome openmps(const std::string& arguments, const std::string& environment = "") {
    const std::string line = "CUDA_MPS_PIPE_DIRECTORY='" + pipe_ + "' CUDA_MPS_LOG_DIRECTORY='" +
                             log_ + "' OPENMPS_DRIVER='" + driver_ + "' " + environment +
                             " timeout 40 " + bin_ + "/openmps " + arguments + " 2>&1";
    Outcome outcome;
    FILE* program = popen(line.c_str(), "re");
    char buffer[4096];
    size_t got = 0;
    while ((got = fread(buffer, 1, sizeof(buffer), program)) > 0) outcome.out.append(buffer, got);
    const int status = pclose(program);
    outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    return outcome;
  }
  std::string libraries() const {
    return std::filesystem::path(bin_).parent_path().string() + "/lib/openmps";
  }
};

TEST_F(OpenmpsTest, RunPutsTheClientLibraryFirst) {
  start_daemon();
  const char* echo = "run -- sh -c 'echo $LD_LIBRARY_PATH $OPENMPS_REQUIRED; exit 5'";
  Outcome outcome = openmps(echo, "LD_LIBRARY_PATH=");
  EXPECT_EQ(outcome.out, libraries() + "\n");
  EXPECT_EQ(outcome.status, 5) << "the program's own exit status";
  EXPECT_EQ(openmps(echo, "LD_LIBRARY_PATH=/a:/b").out, libraries() + ":/a:/b\n");
  EXPECT_EQ(openmps("run --required sh -c 'echo $OPENMPS_REQUIRED'").out, "1\n");
}

TEST_F(OpenmpsTest, RunPassesOptionsBehindTheProgramOn) {
  start_daemon();
  EXPECT_EQ(openmps("run echo --json -n 5").out, "--json -n 5\n");
  EXPECT_EQ(openmps("run -- echo --required -- x").out, "--required -- x\n");
  EXPECT_EQ(openmps("run --pipe-directory /x -- sh -c 'echo $CUDA_MPS_PIPE_DIRECTORY'")
                .out.find("openmps: no daemon serves /x"),
            0u);
}

// The reason has to come from `openmps`, since CUDA's runtime reports only error 35 (insufficient
// driver) if libcuda.so.1 can't be loaded.
TEST_F(OpenmpsTest, RunAndDoctorSayWhyTheClientLibraryCantBeLoaded) {
  const std::filesystem::path broken = directory_ + "/broken";
  std::filesystem::create_directories(broken / "lib/openmps");
  std::filesystem::copy(bin_, broken / "bin", std::filesystem::copy_options::recursive);
  std::ofstream(broken / "lib/openmps/libcuda.so.1") << "no library";
  bin_ = broken / "bin";
  start_daemon();
  const std::string why =
      "programs can't load the client library: " + libraries() + "/libcuda.so.1: file too short";
  Outcome outcome = openmps("run -- echo ran");
  EXPECT_EQ(outcome.out, "openmps: " + why + "\n");
  EXPECT_EQ(outcome.status, 1);
  outcome = openmps("doctor");
  EXPECT_NE(outcome.out.find("PROBLEM  " + why + "\n"), std::string::npos) << outcome.out;
  EXPECT_EQ(outcome.status, 1);
}

TEST_F(OpenmpsTest, RunWithoutADaemonSaysHowToStartOne) {
  Outcome outcome = openmps("run -- echo ran");
  EXPECT_NE(outcome.out.find("no daemon serves " + pipe_), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("openmps-control -d"), std::string::npos);
  EXPECT_NE(outcome.out.find("ran\n"), std::string::npos);
  EXPECT_EQ(outcome.status, 0);
  outcome = openmps("run --required -- echo ran");
  EXPECT_EQ(outcome.out.find("ran\n"), std::string::npos) << outcome.out;
  EXPECT_EQ(outcome.status, 1);
}

TEST_F(OpenmpsTest, RunStartsADaemonIfAsked) {
  EXPECT_EQ(openmps("run --start -- echo ran").out, "ran\n");
  EXPECT_EQ(shell("get_server_list\n").status, 0);
  EXPECT_EQ(openmps("run --start -- echo again").out, "again\n");
}

TEST_F(OpenmpsTest, MissingProgramsAndUnknownCommandsAreErrors) {
  start_daemon();
  EXPECT_EQ(openmps("run -- /nonexistent/program").status, 127);
  EXPECT_EQ(openmps("run -- /tmp").status, 126);
  EXPECT_EQ(openmps("run").status, 1);
  EXPECT_NE(openmps("").status, 0);
  EXPECT_NE(openmps("frobnicate").status, 0);
  EXPECT_EQ(openmps("--version").out.rfind("openmps ", 0), 0u);
}

TEST_F(OpenmpsTest, CdiGenerateWritesADeviceForEachNamespace) {
  const std::string file = directory_ + "/cdi/openmps.json";
  EXPECT_EQ(openmps("cdi generate --output " + file).out,
            "Cannot find MPS control daemon process\n");
  EXPECT_FALSE(std::filesystem::exists(file));
  start_daemon();
  Outcome outcome = openmps("cdi generate --output " + file);
  EXPECT_EQ(outcome.status, 1);
  EXPECT_EQ(outcome.out.rfind("openmps: the daemon has no namespace: make one with ", 0), 0u)
      << outcome.out;
  ASSERT_EQ(control({"server", "create", "main"}).status, 0);
  ASSERT_EQ(control({"namespace", "create", "half", "--server=main",
                     "--pinned-memory-limit=0=1G,1=2G", "--active-thread-percentage=50"})
                .status,
            0);
  outcome = openmps("cdi generate --output " + file);
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(outcome.status, 0);
  const std::string text = openmps("cdi generate --output -").out;
  std::stringstream written;
  written << std::ifstream(file).rdbuf();
  EXPECT_EQ(written.str(), text);
  for (const std::string& part : {std::string("\"main:default\""), std::string("\"main:half\""),
                                  pipe_ + "/main/half\"", libraries() + "/libcuda.so.1\""}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " in " << text;
  }
  EXPECT_EQ(text.find(pipe_ + "\""), std::string::npos) << "the daemon's own directory: " << text;
  EXPECT_EQ(openmps("cdi generate --output - main/half").out.find("default"), std::string::npos);
  EXPECT_NE(openmps("cdi generate --output - --all").out.find(pipe_ + "\""), std::string::npos);
  outcome = openmps("cdi generate --output - main/third");
  EXPECT_EQ(outcome.out,
            "openmps: there is no namespace main/third; there are: main/default, main/half\n");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_EQ(openmps("cdi generate --output /proc/openmps.json").status, 1);
}

TEST_F(OpenmpsTest, PsListsClients) {
  EXPECT_EQ(openmps("ps").out, "Cannot find MPS control daemon process\n");
  EXPECT_EQ(openmps("ps").status, 1);
  start_daemon();
  EXPECT_EQ(openmps("ps").out, "No program uses OpenMPS\n");
  EXPECT_EQ(openmps("ps --json").out, "[]\n");
  const Client client = join("./nbody 4096");
  EXPECT_NE(openmps("ps").out.find("./nbody"), std::string::npos);
  const std::string twice = openmps("ps --watch 0.1 --times 2").out;
  const size_t first = twice.find("./nbody");
  EXPECT_NE(first, std::string::npos) << twice;
  EXPECT_NE(twice.find("./nbody", first + 1), std::string::npos) << twice;
  EXPECT_EQ(twice.find('\x1b'), std::string::npos)
      << "no escape sequences, since standard output is no terminal";
  EXPECT_NE(openmps("ps --watch 0.01").status, 0);
  EXPECT_NE(openmps("ps --watch fast").status, 0);
}

TEST_F(OpenmpsTest, TopStatAndAdviseWithoutCounters) {
  for (const char* command : {"top", "top --once", "stat", "stat --json", "advise 1"}) {
    EXPECT_EQ(openmps(command).out, "Cannot find MPS control daemon process\n") << command;
    EXPECT_EQ(openmps(command).status, 1) << command;
  }
  start_daemon();
  EXPECT_EQ(openmps("top --delay 0.1").out, "No program uses OpenMPS\n");
  const Client client = join("./nbody 4096");
  const std::string text = openmps("top --delay 0.1").out;
  EXPECT_NE(text.find("NVIDIA H200\n"), std::string::npos) << text;
  EXPECT_NE(text.find("./nbody 4096\n"), std::string::npos) << text;
  EXPECT_EQ(text.find('\x1b'), std::string::npos)
      << "no escape sequences, since standard output is no terminal";
  EXPECT_EQ(openmps("top --delay 0.1 --filter other").out.find("./nbody"), std::string::npos);
  const std::string json = openmps("stat --json --interval 0.1 --count 2").out;
  EXPECT_EQ(std::count(json.begin(), json.end(), '\n'), 2) << json;
  EXPECT_NE(json.find("\"rates\":null"), std::string::npos) << "the fake worker counts nothing";
  const Outcome advice = openmps("advise 1");
  EXPECT_EQ(advice.status, 1);
  EXPECT_EQ(advice.out,
            "openmps: no program with PID 1 uses OpenMPS (openmps ps shows who does)\n");
  for (const char* wrong : {"top --delay 0.01", "top --sort size", "stat --count 0",
                            "stat --interval", "advise", "advise me", "advise 1 --for 0"}) {
    EXPECT_NE(openmps(wrong).status, 0) << wrong;
  }
}

TEST_F(OpenmpsTest, DoctorNamesProblems) {
  Outcome outcome = openmps("doctor");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_NE(outcome.out.find("PROBLEM  no daemon: the directory " + pipe_), std::string::npos)
      << outcome.out;
  start_daemon();
  outcome = openmps("doctor", "LD_LIBRARY_PATH=" + libraries());
  EXPECT_EQ(outcome.status, 0) << outcome.out;
  EXPECT_NE(outcome.out.find("a daemon serves " + pipe_), std::string::npos);
  EXPECT_NE(outcome.out.find("ok       device 0: NVIDIA H200, PCI 0000:00.06.00, "
                             "GPU-008cbaa3-6cdc-9444-312b-2ca50d63b155\n"),
            std::string::npos)
      << outcome.out;
  EXPECT_NE(outcome.out.find("leads programs of this shell to the client library"),
            std::string::npos);
}

TEST_F(OpenmpsTest, DoctorNoticesADaemonOfAnotherBuild) {
  std::filesystem::create_directory(pipe_);
  Result<UniqueFd> listener = listen_at(pipe_ + "/" + wire::kControlSocketName, 0600);
  ASSERT_TRUE(listener.ok()) << listener.status().message();
  std::thread daemon([&listener] {
    pollfd waiting{listener->get(), POLLIN, 0};
    ASSERT_EQ(poll(&waiting, 1, -1), 1);
    const UniqueFd peer(accept4(listener->get(), nullptr, nullptr, SOCK_CLOEXEC));
    ASSERT_TRUE(receive_packet(peer.get(), wire::kMaxMessageBytes).ok());
    wire::UiReply reply;
    ++reply.build;
    EXPECT_TRUE(send_packet(peer.get(), wire::message_bytes(reply)).ok());
  });
  const Outcome outcome = openmps("doctor");
  daemon.join();
  EXPECT_EQ(outcome.status, 1);
  EXPECT_NE(outcome.out.find("PROBLEM  daemon and client are of different builds of OpenMPS"),
            std::string::npos)
      << outcome.out;
  std::filesystem::remove_all(pipe_);
}

TEST_F(OpenmpsTest, DoctorNamesAWorkerOfAnotherBuild) {
  driver_ = "stranger";
  start_daemon();
  const Outcome outcome = openmps("doctor");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_NE(outcome.out.find("worker and server are of different builds of OpenMPS"),
            std::string::npos)
      << outcome.out;
}

TEST_F(OpenmpsTest, DoctorPassesOnTheWorkersReason) {
  driver_ = "none";
  start_daemon();
  const Outcome outcome = openmps("doctor");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_NE(outcome.out.find("PROBLEM  The devices are not known: no CUDA device"),
            std::string::npos)
      << outcome.out;
}

}  // namespace
}  // namespace openmps
