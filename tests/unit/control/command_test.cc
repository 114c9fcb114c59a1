// SPDX-License-Identifier: Apache-2.0
// The language of the shell's commands, and the fuzz target's corpus as a test.
#include "control/command.h"
#include "control/client_name.h"
#include "control/command_runner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

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
  EXPECT_TRUE(is_hidden_pid("0"));
  EXPECT_TRUE(is_hidden_pid("00"));
  EXPECT_FALSE(is_hidden_pid("id:0"));
}

TEST(Command, ParsesEachCommandAndItsArguments) {
  struct Case {
    const char* line;
    const char* word;  // "": there is no such command
    const char *server, *device, *value;
  };
  const Case cases[] = {
      {"quit", "quit", "", "", ""},
      {"get_server_list", "get_server_list", "", "", ""},
      {"  get_server_status \t 12 ", "get_server_status", "12", "", ""},
      {"get_client_list 12\r", "get_client_list", "12", "", ""},
      {"get_device_client_list", "get_device_client_list", "", "", ""},
      {"get_device_client_list 7", "get_device_client_list", "7", "", ""},
      {"ps", "ps", "", "", ""},
      {"ps -p 5", "ps", "5", "", ""},
      {"device_query 8 --csv", "device_query", "8", "", ""},
      {"set_default_active_thread_percentage 25", "set_default_active_thread_percentage", "", "",
       "25"},
      {"get_default_active_thread_percentage", "get_default_active_thread_percentage", "", "", ""},
      {"set_active_thread_percentage 4 25", "set_active_thread_percentage", "4", "", "25"},
      {"get_active_thread_percentage 4", "get_active_thread_percentage", "4", "", ""},
      {"set_default_device_pinned_mem_limit 0 3G", "set_default_device_pinned_mem_limit", "", "0",
       "3G"},
      {"get_default_device_pinned_mem_limit GPU-1", "get_default_device_pinned_mem_limit", "",
       "GPU-1", ""},
      {"set_device_pinned_mem_limit 4 0 3G", "set_device_pinned_mem_limit", "4", "0", "3G"},
      {"get_device_pinned_mem_limit 4 0", "get_device_pinned_mem_limit", "4", "0", ""},
      {"set_default_client_priority 1", "set_default_client_priority", "", "", "1"},
      {"get_default_client_priority", "get_default_client_priority", "", "", ""},
      {"inspect 3 --json", "inspect", "", "", ""},
      {"whoami", "whoami", "", "", ""},
      {"terminate_client 3 4", "terminate_client", "3", "", ""},
      {"suspend 4711 --until-used", "suspend", "", "", ""},
      {"resume id:3", "resume", "", "", ""},
      {"reload", "reload", "", "", ""},
      {"sm_partition add GPU-1 7", "sm_partition", "", "GPU-1", "7"},
      {"sm_partition rm GPU-1 GPU-1/2", "sm_partition", "", "GPU-1", "GPU-1/2"},
      {"lspart --json", "lspart", "", "", ""},
      {"shutdown_server 3", "shutdown_server", "3", "", ""},
      {"PS", "", "", "", ""},
      {"psx", "", "", "", ""},
      {"", "", "", "", ""},
      {" \t ", "", "", "", ""},
  };
  for (const Case& c : cases) {
    const Command command = parse_command(c.line);
    EXPECT_EQ(command.info == nullptr ? "" : command.info->word, c.word) << c.line;
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
  EXPECT_TRUE(parse_command("suspend 4711 --until-used").until_used);
  EXPECT_FALSE(parse_command("suspend 4711").until_used);
  EXPECT_EQ(parse_command("suspend 4711 --until-use").unexpected, "--until-use");
  EXPECT_EQ(parse_command("quit --json").unexpected, "--json");
  EXPECT_EQ(parse_command("get_server_list 1 2").unexpected, "1");
}

TEST(Command, EachRowDescribesItsOptions) {
  std::set<std::string_view> words;
  for (const CommandInfo* row : all_commands()) {
    EXPECT_TRUE(words.insert(row->word).second) << row->word;
    EXPECT_NE(row->run, nullptr) << row->word;
    for (const CommandOption* option : row->options) {
      EXPECT_NE(row->arguments.find(option->word), std::string_view::npos) << row->word;
    }
    for (const std::string_view text : {row->arguments, row->manual}) {
      EXPECT_EQ(std::ranges::count(text, '<'), std::ranges::count(text, '>')) << text;
      EXPECT_EQ(std::ranges::count(text, '`') % 2, 0) << text;
    }
  }
  EXPECT_FALSE(all_commands().back()->manual.empty())
      << "a row without a text shares the next row's, and the last row has no next one";
}

TEST(Command, TheManualMarksOptionsAndPlaceholdersByFonts) {
  const std::string manual = manual_of_commands();
  for (const char* text : {".TP\n\\fBquit [\\-t \\fI<seconds>\\fB] [\\-\\-leave\\-servers]\\fR\n",
                           "with \\fB\\-t\\fR no longer",
                           ".TP\n\\fBget_default_client_priority\\fR\n"
                           ".TQ\n\\fBset_default_client_priority 0|1\\fR\n"}) {
    EXPECT_NE(manual.find(text), std::string::npos) << text << "\n" << manual;
  }
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

// The rule as a function; clients_test.cc tests it with processes of several users, which needs
// root.
TEST(Command, UsersControlTheirOwnSessionsAndTheDaemonsUserAll) {
  constexpr User kRoot{0, 0};
  constexpr User kA{1000, 1000};
  constexpr User kB{1001, 1000};  // has A's group ID, which does not matter
  for (const uid_t daemon : {kRoot.uid, kA.uid}) {
    EXPECT_TRUE(may_control(kA.uid, kA.uid, daemon));
    EXPECT_TRUE(may_control(kRoot.uid, kA.uid, daemon));
    EXPECT_TRUE(may_control(kB.uid, kB.uid, daemon));
    EXPECT_FALSE(may_control(kB.uid, kA.uid, daemon));
    EXPECT_FALSE(may_control(kA.uid, kRoot.uid, kRoot.uid));
  }
  EXPECT_FALSE(may_control(kA.uid, kB.uid, kRoot.uid));
  EXPECT_TRUE(may_control(kA.uid, kB.uid, kA.uid)) << "the daemon's user controls all sessions";
}

}  // namespace
}  // namespace openmps::control
