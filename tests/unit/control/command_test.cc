// SPDX-License-Identifier: Apache-2.0
// The command language, and the fuzz target's corpus as a test.
#include "control/command.h"
#include "control/client_name.h"
#include "control/command_runner.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, size_t size);

namespace openmps::control {
namespace {

TEST(ClientName, IsAPidOrAnId) {
  const auto pid = parse_client_name("4711");
  ASSERT_TRUE(pid);
  EXPECT_EQ(pid->pid, 4711u);
  EXPECT_EQ(pid->id, 0u);
  const auto id = parse_client_name("id:3");
  ASSERT_TRUE(id);
  EXPECT_EQ(id->pid, 0u);
  EXPECT_EQ(id->id, 3u);
  EXPECT_EQ(id->server, "");
  const auto of_server = parse_client_name("id:3@4711");
  ASSERT_TRUE(of_server);
  EXPECT_EQ(of_server->id, 3u);
  EXPECT_EQ(of_server->server, "4711");
  for (const char* text : {"", "0", "00", "id:", "id:0", "id:x", "id:3@", "4711@3", "4294967296",
                           "-1", "ID:3", "id:/a/b", "id: 3", "nbody"}) {
    EXPECT_FALSE(parse_client_name(text)) << text;
  }
  EXPECT_EQ(client_name(4711, 3), "4711");
  EXPECT_EQ(client_name(0, 3), "id:3");
  EXPECT_TRUE(is_nobodys_pid("0"));
  EXPECT_TRUE(is_nobodys_pid("00"));
  EXPECT_FALSE(is_nobodys_pid("id:0"));
}

TEST(Command, KnowsEveryVerbAndItsWords) {
  struct Case {
    const char* line;
    Verb verb;
    const char *server, *device, *value;
  };
  const Case cases[] = {
      {"quit", Verb::kQuit, "", "", ""},
      {"get_server_list", Verb::kGetServerList, "", "", ""},
      {"  get_server_status \t 12 ", Verb::kGetServerStatus, "12", "", ""},
      {"get_client_list 12\r", Verb::kGetClientList, "12", "", ""},
      {"get_device_client_list", Verb::kGetDeviceClientList, "", "", ""},
      {"get_device_client_list 7", Verb::kGetDeviceClientList, "7", "", ""},
      {"ps", Verb::kPs, "", "", ""},
      {"ps -p 5", Verb::kPs, "5", "", ""},
      {"device_query 8 --csv", Verb::kDeviceQuery, "8", "", ""},
      {"set_default_active_thread_percentage 25", Verb::kSetDefaultPercentage, "", "", "25"},
      {"get_default_active_thread_percentage", Verb::kGetDefaultPercentage, "", "", ""},
      {"set_active_thread_percentage 4 25", Verb::kSetPercentage, "4", "", "25"},
      {"get_active_thread_percentage 4", Verb::kGetPercentage, "4", "", ""},
      {"set_default_device_pinned_mem_limit 0 3G", Verb::kSetDefaultMemoryLimit, "", "0", "3G"},
      {"get_default_device_pinned_mem_limit GPU-1", Verb::kGetDefaultMemoryLimit, "", "GPU-1", ""},
      {"set_device_pinned_mem_limit 4 0 3G", Verb::kSetMemoryLimit, "4", "0", "3G"},
      {"get_device_pinned_mem_limit 4 0", Verb::kGetMemoryLimit, "4", "0", ""},
      {"set_default_client_priority 1", Verb::kSetDefaultPriority, "", "", "1"},
      {"get_default_client_priority", Verb::kGetDefaultPriority, "", "", ""},
      {"inspect 3 --json", Verb::kInspect, "", "", ""},
      {"whoami", Verb::kWhoAmI, "", "", ""},
      {"terminate_client 3 4", Verb::kTerminateClient, "3", "", ""},
      {"reload", Verb::kReload, "", "", ""},
      {"sm_partition add GPU-1 7", Verb::kSmPartition, "", "GPU-1", "7"},
      {"sm_partition rm GPU-1 GPU-1/2", Verb::kSmPartition, "", "GPU-1", "GPU-1/2"},
      {"lspart --json", Verb::kListPartitions, "", "", ""},
      {"shutdown_server 3", Verb::kShutdownServer, "3", "", ""},
      {"PS", Verb::kUnknown, "", "", ""},
      {"psx", Verb::kUnknown, "", "", ""},
      {"", Verb::kUnknown, "", "", ""},
      {" \t ", Verb::kUnknown, "", "", ""},
  };
  for (const Case& c : cases) {
    const Command command = parse_command(c.line);
    EXPECT_EQ(command.verb, c.verb) << c.line;
    EXPECT_EQ(command.server, c.server) << c.line;
    EXPECT_EQ(command.device, c.device) << c.line;
    EXPECT_EQ(command.value, c.value) << c.line;
    EXPECT_EQ(command.unexpected, "") << c.line;
  }
}

TEST(Command, ReadsOptions) {
  EXPECT_EQ(parse_command("start_server -uid 1000").uid, 1000u);
  EXPECT_EQ(parse_command("start_server").uid, std::nullopt);
  EXPECT_EQ(parse_command("start_server -uid").uid, std::nullopt);
  EXPECT_EQ(parse_command("start_server -uid -1").uid, std::nullopt);
  EXPECT_EQ(parse_command("start_server -uid 4294967296").uid, std::nullopt);
  EXPECT_EQ(parse_command("quit -t 2").timeout_s, 2u);
  EXPECT_EQ(parse_command("quit -t soon").timeout_s, std::nullopt);
  EXPECT_TRUE(parse_command("shutdown_server 7 -f").force);
  EXPECT_TRUE(parse_command("shutdown_server -f 7").force);
  EXPECT_FALSE(parse_command("shutdown_server 7").force);
  EXPECT_TRUE(parse_command("device_query --csv").csv);
  EXPECT_TRUE(parse_command("ps --json").json);
  EXPECT_TRUE(parse_command("get_server_list --json").json);
  EXPECT_EQ(parse_command("quit --json").unexpected, "--json");
  EXPECT_EQ(parse_command("get_server_list 1 2").unexpected, "1");
}

TEST(Command, TheCorpusOfTheFuzzTargetRuns) {
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(OPENMPS_COMMAND_CORPUS)) {
    std::ifstream in(entry.path(), std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    LLVMFuzzerTestOneInput(reinterpret_cast<const unsigned char*>(text.data()), text.size());
    ++files;
  }
  EXPECT_GE(files, 5u);
}

// Of several users' sessions; tests with several users need root (clients_test.cc).
TEST(Command, WhoMayLookIntoWhoseSessions) {
  constexpr User kRoot{0, 0};
  constexpr User kA{1000, 1000};
  constexpr User kB{1001, 1000};  // of A's group
  for (const uid_t daemon : {kRoot.uid, kA.uid}) {
    EXPECT_TRUE(is_over(kA, kA, daemon));
    EXPECT_TRUE(is_over(kRoot, kA, daemon));
    EXPECT_TRUE(is_over(kB, kB, daemon));
    EXPECT_FALSE(is_over(kB, kA, daemon));
    EXPECT_FALSE(is_over(kA, kRoot, kRoot.uid));
  }
  EXPECT_FALSE(is_over(kA, kB, kRoot.uid));
  EXPECT_TRUE(is_over(kA, kB, kA.uid)) << "who runs the daemon";
}

}  // namespace
}  // namespace openmps::control
