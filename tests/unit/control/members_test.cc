// SPDX-License-Identifier: Apache-2.0
// Groups in a daemon and its servers: their members, changes of their limits by commands and by the
// configuration, and what the shell shows.
#include <sys/types.h>

#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/text.h"
#include "control/groups.h"
#include "mps_fixture.h"

namespace openmps {
namespace {

class MembersTest : public MpsTest {
 protected:
  void configure(const std::string& text) { std::ofstream(path()) << text; }
  std::string path() { return directory_ + "/openmps.toml"; }
  void start(const std::string& text) {
    configure(text);
    ASSERT_EQ(control({"-d", "--config", path()}).status, 0);
  }
  nlohmann::json groups() { return nlohmann::json::parse(shell("get_group_list --json\n").out); }
  nlohmann::json group(const std::string& name) {
    for (const auto& one : groups()) {
      if (one.at("name") == name) return one;
    }
    return nullptr;
  }
  // The group of a client as ps shows it.
  std::string group_of(const std::string& command) {
    for (const auto& one : nlohmann::json::parse(shell("ps --json\n").out)) {
      if (one.at("command") == command) {
        return one.at("group").is_null() ? "none" : one.at("group").get<std::string>();
      }
    }
    return "not there";
  }
  Outcome tell(const std::string& command) { return shell(command + "\n"); }
};

TEST_F(MembersTest, TheOperatorsRulesOverrideTheProgramsChoice) {
  start(
      "[[groups]]\nname = \"few\"\nprogram = \"program\"\nactive_thread_percentage = 25\n"
      "client_priority = 1\ndevice_pinned_mem_limit = {0 = \"2G\"}\nsm_count = {1 = 4}\n"
      "[[groups]]\nname = \"open\"\ndevice_pinned_mem_limit = {0 = \"1G\"}\n");
  const Client by_rule = join("./program", "mine"), by_word = join("./other", "open");
  const Client new_one = join("./third", "mine"), in_none = join("./fourth", "few");
  EXPECT_EQ(group_of("./program"), "few");
  EXPECT_EQ(group_of("./other"), "open");
  EXPECT_EQ(group_of("./third"), "mine");
  EXPECT_EQ(group_of("./fourth"), "none")
      << "a client can't choose a group whose rule chooses its members";
  EXPECT_NE(log_text("control.log").find("OPENMPS_GROUP names few"), std::string::npos);
  EXPECT_EQ(by_rule.welcome.in_group, 1u);
  const wire::ClientLimits& limits = by_rule.welcome.group_limits;
  EXPECT_EQ(limits.active_thread_percentage, 25);
  EXPECT_EQ(limits.memory_limit[0], 2 * wire::kGiB);
  EXPECT_EQ(limits.sm_count[1], 4u);
  EXPECT_EQ(by_rule.welcome.limits.active_thread_percentage, 100)
      << "the client's own limit is unchanged";
  EXPECT_EQ(by_rule.welcome.limits.client_priority, 1u);
  EXPECT_EQ(by_word.welcome.group_limits.memory_limit[0], wire::kGiB);
  EXPECT_EQ(new_one.welcome.group_limits, wire::ClientLimits());
  EXPECT_EQ(in_none.welcome.in_group, 0u);

  const nlohmann::json few = group("few");
  EXPECT_EQ(few.at("members"), 1);
  EXPECT_EQ(few.at("active_thread_percentage"), 25);
  EXPECT_EQ(few.at("client_priority"), 1);
  EXPECT_EQ(few.at("server"), by_rule.welcome.server_pid);
  EXPECT_EQ(few.at("devices").at(0),
            nlohmann::json::parse(R"({"device": 0, "sm_count": 0, "memory_limit_bytes": 2147483648,
                                      "guaranteed_memory_bytes": 0, "memory_bytes": 0})"));
  EXPECT_EQ(group("mine").at("client_priority"), nullptr);
  EXPECT_NE(shell("get_group_list\n").out.find(" few\n"), std::string::npos);
}

TEST_F(MembersTest, ACommandChangesAGroupAlsoForLaterMembers) {
  start("[[groups]]\nname = \"open\"\nactive_thread_percentage = 50\n");
  const Client first = join("./first", "open");
  EXPECT_EQ(tell("set_client_active_thread_percentage open 30").out, "");
  EXPECT_EQ(tell("set_client_device_pinned_mem_limit open 0 3G").out, "");
  EXPECT_EQ(tell("set_client_priority open 1").out, "");
  const Client second = join("./second", "open");
  EXPECT_EQ(second.welcome.group_limits.active_thread_percentage, 30);
  EXPECT_EQ(second.welcome.group_limits.memory_limit[0], 3 * wire::kGiB);
  EXPECT_EQ(second.welcome.limits.client_priority, 1u);
  EXPECT_EQ(tell("set_client_guaranteed_memory open 0 2G").out, "");
  EXPECT_EQ(tell("set_client_on_pressure open wait").out, "");
  const Client guaranteed = join("./guaranteed", "open");
  EXPECT_EQ(guaranteed.welcome.group_limits.guaranteed_memory[0], 2 * wire::kGiB);
  EXPECT_EQ(guaranteed.welcome.group_limits.on_pressure, wire::OnPressure::kWait);
  EXPECT_EQ(group("open").at("on_pressure"), "wait");
  EXPECT_EQ(tell("set_client_sm_count open 0 6").out, "");
  EXPECT_EQ(join("./third", "open").welcome.group_limits.sm_count[0], 6u);
  EXPECT_EQ(group("open").at("active_thread_percentage"), 30);
  // A limit may be set before a group has members.
  const Outcome early = tell("set_client_device_pinned_mem_limit later 0 1G");
  EXPECT_EQ(early.status, 0);
  EXPECT_NE(early.out.find("no members yet"), std::string::npos) << early.out;
  EXPECT_EQ(group("later").at("members"), 0);
  EXPECT_EQ(join("./fourth", "later").welcome.group_limits.memory_limit[0], wire::kGiB);
  const std::pair<const char*, const char*> wrong[] = {
      {"set_client_priority open 2", "Usage"},
      {"set_client_priority a/b 0", "Usage"},
      {"set_client_priority a:/b 0", "Group a:/b not found"},
      {"set_client_active_thread_percentage open 0", "Usage"},
      {"set_client_on_pressure open swap", "Usage"},
      {"set_client_guaranteed_memory open 0 2", "Usage"},
      {"set_client_guaranteed_memory open 9 2G", "no such device"},
      {"set_client_sm_count open 9 6", "no such device"}};
  for (const auto& [command, word] : wrong) {
    const Outcome outcome = tell(command);
    EXPECT_EQ(outcome.status, 1) << command;
    EXPECT_NE(outcome.out.find(word), std::string::npos) << outcome.out;
  }
  EXPECT_EQ(group("a:/b"), nullptr);
}

TEST_F(MembersTest, ReloadChangesRunningGroups) {
  start(
      "[[groups]]\nname = \"few\"\nprogram = \"program\"\nactive_thread_percentage = 50\n"
      "[[groups]]\nname = \"rest\"\n");
  const Client client = join("./program");
  EXPECT_EQ(tell("set_client_priority few 1").out, "");
  EXPECT_EQ(group("rest").at("members"), 0) << "a described group is listed without members, too";
  configure(
      "[[groups]]\nname = \"few\"\nprogram = \"program\"\nactive_thread_percentage = 20\n"
      "device_pinned_mem_limit = {0 = \"1G\"}\n[[groups]]\nname = \"new\"\n");
  EXPECT_EQ(shell("reload\n").out,
            "group few active_thread_percentage: 50.0 -> 20.0\n"
            "group few device_pinned_mem_limit of 0: none -> 1G\n"
            "group new is there from now on\ngroup rest is not described any more\n");
  EXPECT_EQ(group("few").at("active_thread_percentage"), 20);
  EXPECT_EQ(group("few").at("devices").at(0).at("memory_limit_bytes"), wire::kGiB);
  EXPECT_EQ(group("few").at("client_priority"), 1)
      << "a limit that the file does not mention is kept";
  EXPECT_EQ(group("rest"), nullptr);
  EXPECT_EQ(group("new").at("members"), 0);
  configure("");
  EXPECT_NE(shell("reload\n").out.find("group few is not described any more"), std::string::npos);
  EXPECT_EQ(group("few").at("active_thread_percentage"), 100);
  EXPECT_EQ(group("few").at("members"), 1) << "members remain members";
  EXPECT_EQ(join("./program").welcome.in_group, 0u);
}

TEST_F(MembersTest, EachCgroupIsAGroupOfItsOwn) {
  const auto own = control::read_cgroups(static_cast<uint32_t>(getpid()));
  ASSERT_TRUE(own.has_value() && !own->empty());
  start("[[groups]]\nname = \"c\"\ncgroup = \"" + own->front() +
        "\"\neach = \"cgroup\"\ndevice_pinned_mem_limit = {0 = \"1G\"}\n");
  {
    const Client client = join("./program", "mine");
    EXPECT_EQ(client.welcome.group_limits.memory_limit[0], wire::kGiB);
    EXPECT_EQ(group_of("./program"), "c:" + own->front());
    EXPECT_EQ(tell("set_client_priority c:" + own->front() + " 1").out, "");
    configure("[[groups]]\nname = \"c\"\ncgroup = \"" + own->front() +
              "\"\neach = \"cgroup\"\ndevice_pinned_mem_limit = {0 = \"2G\"}\n");
    shell("reload\n");
    EXPECT_EQ(group("c:" + own->front()).at("devices").at(0).at("memory_limit_bytes"),
              2 * wire::kGiB);
  }
  EXPECT_TRUE(eventually([&] { return group_of("./program") == "not there"; }));
  EXPECT_EQ(group("c"), nullptr) << "only the groups of its cgroups are listed";
}

TEST_F(MembersTest, AGroupWithoutLimitsEndsWithItsLastMember) {
  start_daemon();
  EXPECT_EQ(tell("set_client_priority soon 1").status, 1) << "no server is running";
  std::optional<Client> first = join("./first", "a"), second = join("./second", "b");
  EXPECT_EQ(tell("set_client_priority b 1").out, "");
  EXPECT_EQ(groups().size(), 2u);
  first.reset();
  EXPECT_TRUE(eventually([&] { return group("a") == nullptr; }));
  second.reset();
  EXPECT_TRUE(eventually([&] { return group("b").at("members") == 0; }));
  EXPECT_EQ(join("./third", "b").welcome.limits.client_priority, 1u);
}

// The next daemon sends the server the groups of its configuration; the server keeps the others.
TEST_F(MembersTest, GroupsOutliveTheDaemon) {
  start("[[groups]]\nname = \"few\"\nprogram = \"program\"\nactive_thread_percentage = 50\n");
  const Client client = join("./program");
  EXPECT_EQ(tell("set_client_priority few 1").out, "");
  kill_daemon();
  start("[[groups]]\nname = \"few\"\nprogram = \"program\"\nactive_thread_percentage = 40\n");
  EXPECT_TRUE(eventually([&] {
    const nlohmann::json few = group("few");
    return few != nullptr && few.at("active_thread_percentage") == 40;
  }));
  EXPECT_EQ(group("few").at("client_priority"), 1);
  EXPECT_EQ(group_of("./program"), "few");
}

}  // namespace
}  // namespace openmps
