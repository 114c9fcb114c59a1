// SPDX-License-Identifier: Apache-2.0
// The configuration file: its keys, the messages about mistakes, and a daemon with a file, at its
// start and at reload.
#include "control/config.h"

#include <gtest/gtest.h>

#include <csignal>
#include <fstream>

#include "base/text.h"
#include "control/config_state.h"
#include "mps_fixture.h"

namespace openmps::control {
namespace {

using wire::Limit;

std::optional<uid_t> find_user(const std::string& name) {
  return name == "alice" ? std::optional<uid_t>(1000) : std::nullopt;
}

Result<Config> parse(std::string_view text) { return parse_config(text, "f.toml", find_user); }

TEST(Config, AnEmptyFileSetsNothing) {
  const Result<Config> config = parse("");
  ASSERT_TRUE(config.ok());
  EXPECT_TRUE(config->defaults.empty() && config->users.empty());
}

TEST(Config, SetsDefaultLimitsAndLimitsOfUsers) {
  const Result<Config> config = parse(R"(
[defaults]
active_thread_percentage = 12.5
client_priority = 1
device_pinned_mem_limit = {0 = "2G", GPU-aa = "512M"}
[users.alice]
active_thread_percentage = 100
[users.1001.device_pinned_mem_limit]
15 = "0G"
)");
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->defaults, (Limits{{{Limit::kPercentage}, 12.5},
                                      {{Limit::kPriority}, 1},
                                      {{Limit::kMemory, "0"}, 2 * wire::kGiB},
                                      {{Limit::kMemory, "GPU-aa"}, 512 * wire::kMiB}}));
  EXPECT_EQ(config->users.at(1000), (Limits{{{Limit::kPercentage}, 100}}));
  EXPECT_EQ(config->users.at(1001), (Limits{{{Limit::kMemory, "15"}, 0}}));
  EXPECT_EQ(config->users.size(), 2u);
}

TEST(Config, DescribesGroupsInTheirOrder) {
  const Result<Config> config = parse(R"(
[[groups]]
name = "pods"
cgroup = "/kubepods.slice/*/*"
each = "cgroup"
active_thread_percentage = 25
sm_count = {1 = 16}
device_pinned_mem_limit = {0 = "8G"}
client_priority = 1
[[groups]]
name = "trainers"
program = "train.py"
user = "alice"
[[groups]]
name = "a"
user = "1001"
)");
  ASSERT_TRUE(config.ok()) << config.status().message();
  ASSERT_EQ(config->groups.size(), 3u);
  const GroupRule& pods = config->groups[0];
  EXPECT_EQ(pods.name, "pods");
  EXPECT_EQ(pods.cgroup, "/kubepods.slice/*/*");
  EXPECT_TRUE(pods.each_cgroup);
  EXPECT_EQ(pods.limits, (Limits{{{Limit::kPercentage}, 25},
                                 {{Limit::kPriority}, 1},
                                 {{Limit::kMemory, "0"}, 8 * wire::kGiB},
                                 {{Limit::kSmCount, "1"}, 16}}));
  EXPECT_EQ(config->groups[1].program, "train.py");
  EXPECT_EQ(config->groups[1].user, 1000u);
  EXPECT_FALSE(config->groups[1].each_cgroup);
  EXPECT_EQ(config->groups[2].user, 1001u);
}

TEST(Config, GuaranteedMemoryAndPressureAreLimits) {
  const Result<Config> config = parse(R"(
[defaults]
guaranteed_memory = {0 = "1G", "*" = "512M"}
on_pressure = "oom"
device_pinned_mem_limit = {0 = "1G"}
[users.alice]
on_pressure = "none"
[[groups]]
name = "a"
guaranteed_memory = {GPU-aa = "2G"}
device_pinned_mem_limit = {0 = "1G"}
on_pressure = "terminate"
[servers.s]
guaranteed_memory = "0=4G,1=512M"
on_pressure = "wait"
[servers.s.namespaces.one]
guaranteed_memory = "2G"
pinned_memory_limit = "2G"
[servers.s.namespaces.other]
guaranteed_memory = {1 = "3G"}
pinned_memory_limit = "0=2G"
)");
  ASSERT_TRUE(config.ok()) << config.status().message();
  const LimitKey pressure{Limit::kOnPressure};
  EXPECT_EQ(config->defaults, (Limits{{{Limit::kMemory, "0"}, wire::kGiB},
                                      {{Limit::kGuaranteedMemory, "0"}, wire::kGiB},
                                      {{Limit::kGuaranteedMemory, "*"}, 512 * wire::kMiB},
                                      {pressure, 1}}));
  EXPECT_EQ(config->users.at(1000), (Limits{{pressure, 0}}));
  EXPECT_EQ(config->groups[0].limits,
            (Limits{{{Limit::kMemory, "0"}, wire::kGiB},
                    {{Limit::kGuaranteedMemory, "GPU-aa"}, 2 * wire::kGiB},
                    {pressure, 3}}));
  const auto& spaces = config->servers.at("s").namespaces;
  EXPECT_EQ(spaces.at("default").limits,
            (Limits{{{Limit::kGuaranteedMemory, "0"}, 4 * wire::kGiB},
                    {{Limit::kGuaranteedMemory, "1"}, 512 * wire::kMiB},
                    {pressure, 2}}));
  EXPECT_EQ(spaces.at("one").limits, (Limits{{{Limit::kMemory, "*"}, 2 * wire::kGiB},
                                             {{Limit::kGuaranteedMemory, "*"}, 2 * wire::kGiB}}));
  const wire::ClientLimits resolved =
      group_limits(spaces.at("default"), {{"", "GPU-0", ""}, {"", "GPU-1", ""}});
  EXPECT_EQ(resolved.guaranteed_memory[1], 512 * wire::kMiB);
  EXPECT_EQ(resolved.on_pressure, wire::OnPressure::kWait);
}

TEST(Config, NoMoreMemoryIsGuaranteedThanMayBeUsed) {
  const std::pair<const char*, const char*> mistakes[] = {
      {"[defaults]\nguaranteed_memory = {0 = \"2G\"}\ndevice_pinned_mem_limit = {0 = \"1G\"}",
       "2:21: the guaranteed memory of device 0 is 2G, more than the limit of its memory, 1G"},
      {"[users.alice]\ndevice_pinned_mem_limit = {\"*\" = \"1G\"}\n"
       "guaranteed_memory = {GPU-a = \"1025M\"}",
       "3:21: the guaranteed memory of device GPU-a is 1025M, more than the limit of its memory"},
      {"[[groups]]\nname = \"a\"\ndevice_pinned_mem_limit = {1 = \"1G\"}\n"
       "guaranteed_memory = {\"*\" = \"2G\"}",
       "4:21: the guaranteed memory of device 1 is 2G"},
      {"[servers.s]\nguaranteed_memory = \"2G\"\npinned_memory_limit = \"1G\"",
       "2:21: the guaranteed memory of each device is 2G, more than the limit of its memory, 1G"},
      {"[servers.s]\nguaranteed_memory = \"2G\"\n"
       "[servers.s.namespaces.default]\npinned_memory_limit = \"1G\"",
       "the guaranteed memory of each device is 2G"},
      {"[servers.s.namespaces.n]\npinned_memory_limit = \"1G\"\nguaranteed_memory = \"2G\"",
       "3:21: the guaranteed memory of each device is 2G"},
      {"[servers.s]\nguaranteed_memory = \"2\"", "2:21: expected a size like \"4G\", or sizes by"},
      {"[servers.s]\nguaranteed_memory = 2", "2:21: expected a table, like {0 = \"3G\"}"},
      {"[defaults]\nguaranteed_memory = \"2G\"", "2:21: expected a table, like {0 = \"3G\"}"},
      {"[defaults]\non_pressure = \"swap\"",
       "2:15: expected \"oom\", \"wait\" or \"terminate\"; \"none\": not stated"},
      {"[defaults]\non_pressure = 1", "2:15: expected \"oom\""}};
  for (const auto& [text, wanted] : mistakes) {
    const Result<Config> config = parse(text);
    ASSERT_FALSE(config.ok()) << text;
    EXPECT_NE(config.status().message().find(wanted), std::string::npos)
        << text << "\ngives " << config.status().message() << "\nexpected " << wanted;
  }
  EXPECT_TRUE(parse("[defaults]\nguaranteed_memory = {0 = \"2G\"}\n"
                    "device_pinned_mem_limit = {0 = \"0G\", 1 = \"1G\"}")
                  .ok())
      << "0G is no limit, and device 1 is another one";
}

TEST(Config, DescribesPartitionsInTheirOrder) {
  const Result<Config> config = parse(R"(
[[partitions]]
name = "inference"
device = 0
chunks = 4
[[partitions]]
name = "batch"
device = "GPU-008cbaa3"
chunks = 128
)");
  ASSERT_TRUE(config.ok()) << config.status().message();
  ASSERT_EQ(config->partitions.size(), 2u);
  EXPECT_EQ(config->partitions[0].name, "inference");
  EXPECT_EQ(config->partitions[0].device, "0");
  EXPECT_EQ(config->partitions[0].chunks, 4u);
  EXPECT_EQ(config->partitions[1].device, "GPU-008cbaa3");
  EXPECT_TRUE(check_mode(*config, true).ok());
  EXPECT_EQ(check_mode(*config, false).code(), CUDA_ERROR_INVALID_VALUE);
  EXPECT_TRUE(check_mode(Config(), false).ok());
}

std::string many(const std::string& text, size_t times = 200'000) {
  std::string all;
  for (size_t i = 0; i < times; ++i) all += text;
  return all;
}

// The parser is recursive, and the stack suffices for about ten thousand levels.
TEST(Config, DeepNestingIsAMistakeWithItsPlace) {
  const std::pair<std::string, const char*> cases[] = {
      {"\n" + many("a.") + "a = 1", "2:32: a key of more than 16 parts"},
      {"[" + many("a.") + "a]", "1:33: a key of more than 16 parts"},
      {"[[" + many("a.") + "a]]", "1:34: a key of more than 16 parts"},
      {many("a . ") + "a = 1", "1:63: a key of more than 16 parts"},
      {many("\"a\".") + "a = 1", "1:64: a key of more than 16 parts"},
      {many("'='.") + "a = 1", "1:64: a key of more than 16 parts"},
      {"x = {a = 1, " + many("a.") + "a = 1}", "1:44: a key of more than 16 parts"},
      // Strings that end earlier than they seem to, and a # that begins no comment.
      {"x = {a = \"\"\"\n\"\"\"\"\", " + many("a.") + "a = 1}",
       "2:39: a key of more than 16 parts"},
      {"x = {a = '''\n\\''', " + many("a.") + "a = 1}", "2:38: a key of more than 16 parts"},
      {"x = {a = \"\\\\\", " + many("a.") + "a = 1}", "1:47: a key of more than 16 parts"},
      {"x = \"#\"\n" + many("a.") + "a = 1", "2:32: a key of more than 16 parts"},
      {"x = " + many("["), "1:21: "},
      {"x = " + many("{a="), "1:53: "},
  };
  for (const auto& [text, place] : cases) {
    const Result<Config> config = parse(text);
    ASSERT_FALSE(config.ok()) << text.substr(0, 40);
    EXPECT_TRUE(config.status().message().starts_with(std::string("f.toml:") + place))
        << text.substr(0, 40) << ": " << config.status().message();
  }
  const std::string dots = many(".", 1000);
  for (const std::string& text :
       {"# " + dots, "[defaults] # '" + dots,
        "[[groups]]\nname = \"a\"\nprogram = \"" + dots + "\"",
        "[[groups]]\nname = \"a\"\nprogram = '''" + dots + "\\'''",
        std::string("[users.1]\ndevice_pinned_mem_limit = {GPU-1 = \"1G\", 0 = \"1G\"}")}) {
    EXPECT_TRUE(parse(text).ok()) << parse(text).status().message();
  }
}

TEST(Config, EveryMistakeIsReportedWithItsPlace) {
  const std::pair<std::string, const char*> cases[] = {
      {"defaults", "1:9: "},
      {"x = 1",
       "1:1: unknown key \"x\": expected one of schema_version, servers, features, "
       "compute_policy, defaults, users, groups, partitions"},
      {"[default]", "1:2: unknown key \"default\""},
      {"defaults = 1", "1:12: expected a table"},
      {"[defaults]\n  percentage = 1",
       "2:3: unknown key \"percentage\": expected one of "
       "active_thread_percentage, client_priority, "
       "device_pinned_mem_limit"},
      {"[defaults]\nactive_thread_percentage = 0", "2:28: expected a number above 0, up to 100"},
      {"[defaults]\nactive_thread_percentage = 101", "2:28: "},
      {"[defaults]\nactive_thread_percentage = nan", "2:28: "},
      {"[defaults]\nactive_thread_percentage = 1e-60", "2:28: "},
      {"[defaults]\nactive_thread_percentage = \"fifty\"", "2:28: "},
      {"[defaults]\nactive_thread_percentage = true", "2:28: "},
      {"[defaults]\nclient_priority = 2", "2:19: expected 0 (normal) or 1"},
      {"[defaults]\nclient_priority = 1.0", "2:19: "},
      {"[defaults]\ndevice_pinned_mem_limit = \"1G\"", "2:27: expected a table, like"},
      {"[defaults]\ndevice_pinned_mem_limit = {0 = 3}", "2:32: expected a size in M or G"},
      {"[defaults]\ndevice_pinned_mem_limit = {0 = \"3\"}", "2:32: "},
      {"[defaults]\ndevice_pinned_mem_limit = {16 = \"3G\"}", "2:28: \"16\" is no device"},
      {"users = [1]", "1:9: expected tables, [users.NAME]"},
      {"[users]\nalice = 1", "2:9: expected a table, [users.NAME]"},
      {"[users.bob]", "1:8: there is no user \"bob\""},
      {"[users.4294967295]", "1:8: there is no user"},
      {"[users.alice]\n[users.1000]", ":8: user 1000 is there twice"},
      {"[users.alice]\nname = 1", "2:1: unknown key \"name\""},
      {"[groups]", "1:1: expected tables, [[groups]]"},
      {"groups = [1]", "1:11: expected a table, [[groups]]"},
      {"[[groups]]", "1:1: expected a group with a name"},
      {"[[groups]]\nname = 7", "2:8: expected letters, digits"},
      {"[[groups]]\nname = \"4711\"", "2:8: "},
      {"[[groups]]\nname = \"a:b\"", "2:8: "},
      {"[[groups]]\nname = \"a\"\nprogram = \"/bin/x\"", "3:11: expected the name of a program"},
      {"[[groups]]\nname = \"a\"\ncgroup = \"docker\"", "3:10: expected a pattern of paths"},
      {"[[groups]]\nname = \"a\"\nuser = \"bob\"", "3:8: there is no user \"bob\""},
      {"[[groups]]\nname = \"a\"\nuser = true", "3:8: "},
      {"[[groups]]\nname = \"a\"\neach = \"user\"\ncgroup = \"/*\"", "3:8: expected \"cgroup\""},
      {"[[groups]]\nname = \"a\"\neach = \"cgroup\"", "3:8: expected a pattern"},
      {"[[groups]]\nname = \"a\"\nsm_count = 8", "3:12: expected a table, like {0 = 32}"},
      {"[[groups]]\nname = \"a\"\nsm_count = {0 = 0}", "3:17: expected a number of SMs"},
      {"[[groups]]\nname = \"a\"\nsm_count = {0 = 1025}",
       "3:17: expected a number of SMs, 1 to 1024"},
      {"[defaults]\nsm_count = {0 = 8}", "2:1: unknown key \"sm_count\""},
      {"[[groups]]\nname = \"a\"\nactive_thread_percentage = 0", "3:28: expected a number above"},
      {"[[groups]]\nname = \"a\"\npart = 1", "3:1: unknown key \"part\": expected one of name,"},
      {"[[groups]]\nname = \"a\"\n[[groups]]\nname = \"a\"", "4:8: group a is there twice"},
      {"[partitions]", "1:1: expected tables, [[partitions]]"},
      {"partitions = [1]", "1:15: expected a table, [[partitions]]"},
      {"[[partitions]]\nname = \"a\"\ndevice = 0", "1:1: expected a partition with name, device"},
      {"[[partitions]]\nname = \"1\"", "2:8: expected letters, digits"},
      {"[[partitions]]\ndevice = 16", "2:10: expected a device: a number below 16"},
      {"[[partitions]]\ndevice = -1", "2:10: "},
      {"[[partitions]]\ndevice = \"H200\"", "2:10: "},
      {"[[partitions]]\nchunks = 0", "2:10: expected a number of chunks, 1 to 128"},
      {"[[partitions]]\nchunks = 129", "2:10: "},
      {"[[partitions]]\nsms = 8", "2:1: unknown key \"sms\": expected one of name, device, chunks"},
      {"[[partitions]]\nname = \"a\"\ndevice = 0\nchunks = 1\n"
       "[[partitions]]\nname = \"a\"\ndevice = 1\nchunks = 1",
       "6:8: partition a is there twice"},
      {"[defaults]\n[defaults]", "2:"},
      {"# \xe4\xb8\xad\n\xc3\xa9 = 1", "2:1: only comments may have characters beyond ASCII"},
  };
  for (const auto& [text, wanted] : cases) {
    const Result<Config> config = parse(text);
    EXPECT_EQ(config.status().code(), CUDA_ERROR_INVALID_VALUE) << text;
    EXPECT_NE(config.status().message().find(wanted), std::string::npos)
        << text << "\ngives " << config.status().message() << "\nexpected " << wanted;
    EXPECT_TRUE(config.status().message().starts_with("f.toml:")) << config.status().message();
    EXPECT_EQ(config.status().message(), printable(config.status().message()));
  }
}

// Files of NVIDIA's interface v3, with the keys of release 620.
TEST(Config, ServersAndNamespaces) {
  const Result<Config> config = parse(R"(
schema_version = "1.0"
[compute_policy]
timeslice = "long"
timeslice_yield_level = 2
[features.memacct]
enabled = true
audit_log = true
force_polling = false
[features.context-share]
enabled = true
default_socket = "off"
[servers.training]
uid = 1000
allowed_devices = "GPU-aa,1"
pinned_memory_limit = "16G"
active_thread_percentage = "50"
client_priority = "1"
locality_domains = false
timeslice_pct = "50"
[[servers.training.devices]]
uuid = "GPU-aa"
[[servers.training.devices.sm_partitions]]
name = "large"
chunks = 4
include_remainder = true
shareable = true
max_chunks = 6
[servers.training.namespaces.default]
active_thread_percentage = "40"
[servers.training.namespaces.pod]
pinned_memory_limit = "0=4G,1=512M"
sm_count = {0 = 16}
cgroup = "/sys/fs/cgroup/training"
cgroup_depth = 1
user = "alice"
[[servers.training.namespaces.pod.devices]]
uuid = "GPU-aa"
sm_partition = "large"
[servers.other]
)");
  ASSERT_TRUE(config.ok()) << config.status().message();
  const NamedServer& training = config->servers.at("training");
  EXPECT_EQ(training.user.uid, 1000u);
  EXPECT_EQ(training.devices, (std::vector<std::string>{"GPU-aa", "1"}));
  const GroupRule& own = training.namespaces.at("default");
  const GroupRule& pod = training.namespaces.at("pod");
  EXPECT_EQ(own.limits, (Limits{{{Limit::kPercentage}, 40},
                                {{Limit::kPriority}, 1},
                                {{Limit::kMemory, kEveryDevice}, 16. * (1ull << 30)}}));
  EXPECT_EQ(pod.limits, (Limits{{{Limit::kMemory, "0"}, 4. * (1ull << 30)},
                                {{Limit::kMemory, "1"}, 512. * (1ull << 20)},
                                {{Limit::kSmCount, "0"}, 16}}));
  EXPECT_EQ(pod.cgroup, "/training");
  EXPECT_EQ(pod.cgroup_depth, 1u);
  EXPECT_EQ(pod.user, 1000u);
  EXPECT_EQ(pod.partitions, (std::map<std::string, std::string>{{"GPU-aa", "large"}}));
  ASSERT_EQ(config->partitions.size(), 1u);
  EXPECT_EQ(config->partitions[0].id(), "training.large");
  EXPECT_TRUE(config->partitions[0].includes_remainder && config->partitions[0].is_shareable);
  EXPECT_EQ(config->partitions[0].most_chunks, 6u);
  EXPECT_TRUE(check_mode(*config, false).ok()) << "partitions of a server need no -S";
  EXPECT_EQ(config->servers.at("other").namespaces.size(), 1u);
  EXPECT_TRUE(config->features.audit_log && !config->features.shares_default_socket);
  EXPECT_EQ(config->notes.size(), 5u) << "keys without effect are named";
}

TEST(Config, MistakesInServersAreReportedWithTheirPlace) {
  const std::pair<const char*, const char*> mistakes[] = {
      {"schema_version = \"2.0\"", "1:18: expected \"1.0\""},
      {"[servers.\"a.b\"]", "1:10: \"a.b\" is no name"},
      {"[servers.a]\ncolour = 1", "2:1: unknown key \"colour\""},
      {"[servers.a]\nuid = -1", "2:7: expected the number of a user"},
      {"[servers.a]\nallowed_devices = \"x\"", "2:19: expected devices"},
      {"[servers.a]\npinned_memory_limit = \"4\"", "2:23: expected a size"},
      {"[servers.a]\nactive_thread_percentage = \"many\"", "2:28: expected a number"},
      {"[servers.uid_7]\nuid = 8", "1:1: server 'uid_7' can be user 7's only"},
      {"[servers.a.namespaces.b]\ncgroup = \"/a\"", "2:10: expected a directory below"},
      {"[servers.a.namespaces.b]\ncgroup_depth = 99", "2:16: expected a number of levels"},
      {"[servers.a.namespaces.b]\nuser = \"nobody-of-that-name\"", "2:8: expected the name"},
      {"[[servers.a.devices]]\nuuid = \"x\"", "2:8: expected a device"},
      {"[[servers.a.devices]]\n[[servers.a.devices.sm_partitions]]\nname = \"p\"",
       "1:1: expected a device with its uuid"},
      {"[[servers.a.devices]]\nuuid = \"GPU-a\"\n[[servers.a.devices.sm_partitions]]\nname = "
       "\"p\"\n"
       "chunks = 2\nmax_chunks = 4",
       "1:1: partition p: max_chunks is for a shareable partition only"},
      {"[[servers.a.devices]]\nuuid = \"GPU-a\"\n[[servers.a.devices.sm_partitions]]\nname = "
       "\"p\"\n"
       "chunks = 2\nshareable = true\nmax_chunks = 1",
       "1:1: partition p: max_chunks 1 is less than the 2 chunks"},
      {"[[partitions]]\nname = \"p\"\ndevice = 0\nchunks = 2\nshareable = true\nmax_chunks = -1",
       "6:14: expected a number of chunks, 0 to 128"},
      {"[features.memacct]\naudit_log = 1", "2:13: expected true or false"},
      {"[compute_policy]\ntimeslice = \"huge\"", "2:13: expected \"default\""}};
  for (const auto& [text, wanted] : mistakes) {
    const Result<Config> config = parse(text);
    ASSERT_FALSE(config.ok()) << text;
    EXPECT_NE(config.status().message().find(wanted), std::string::npos)
        << text << "\ngives " << config.status().message() << "\nexpected " << wanted;
  }
}

TEST(Config, AStateIsReadAsItWasWritten) {
  const Result<Config> config = parse(R"(
[servers.training]
uid = 1000
allowed_devices = "GPU-aa,GPU-bb"
active_thread_percentage = 12.5
work_time_limit = 0.1
sm_count = {"*" = 16, 1 = 8}
pinned_memory_limit = "1536M"
guaranteed_memory = {0 = "1G", "*" = "512M"}
weight = 2.5
borrow_sms = true
on_pressure = "wait"
[servers.training.namespaces.pod]
guaranteed_memory = "3G"
on_pressure = "none"
quality = "best-effort"
cgroup = "/sys/fs/cgroup"
user = "17"
client_priority = 0
[[servers.training.namespaces.pod.devices]]
uuid = "GPU-aa"
sm_partition = "large"
)");
  ASSERT_TRUE(config.ok()) << config.status().message();
  const State state{config->servers, {true, false}, "2\nGPU-aa training.large\n"};
  const auto read = parse_state(write_state(state));
  ASSERT_TRUE(read.has_value()) << write_state(state);
  EXPECT_EQ(read->partitions, state.partitions);
  EXPECT_TRUE(read->features.audit_log && !read->features.shares_default_socket);
  const NamedServer& was = state.servers.at("training");
  const NamedServer& is = read->servers.at("training");
  EXPECT_EQ(is.user.uid, was.user.uid);
  EXPECT_EQ(is.devices, was.devices);
  ASSERT_EQ(is.namespaces.size(), was.namespaces.size());
  for (const auto& [name, rule] : was.namespaces) {
    const GroupRule& other = is.namespaces.at(name);
    EXPECT_EQ(other.limits, rule.limits) << name;
    EXPECT_EQ(other.quality, rule.quality) << name;
    EXPECT_TRUE(other.has_same_members(rule)) << name;
    EXPECT_EQ(other.partitions, rule.partitions) << name;
  }
  EXPECT_FALSE(parse_state("nonsense").has_value());
  EXPECT_FALSE(parse_state("[servers.\"../x\"]").has_value());
}

TEST(Config, TheExampleIsValid) {
  const Result<Config> config = read_config(OPENMPS_EXAMPLE_CONFIG);
  EXPECT_TRUE(config.ok()) << config.status().message();
}

TEST(Config, AFileThatCantBeReadIsAnError) {
  EXPECT_EQ(read_config("/nowhere.toml").status().message(),
            "/nowhere.toml: No such file or directory");
  EXPECT_EQ(read_config("/tmp").status().message(), "/tmp: not a file");
  EXPECT_NE(read_config("/dev/zero").status().message(), "") << "a file without an end is refused";
}

class ConfigTest : public MpsTest {
 protected:
  void write(const std::string& text) { std::ofstream(path()) << text; }
  std::string path() { return directory_ + "/openmps.toml"; }
  std::string user() { return std::to_string(geteuid()); }
  Outcome start() { return control({"-d", "--config", path()}); }
};

TEST_F(ConfigTest, CheckConfigReportsMistakes) {
  write("[defaults]\nclient_priority = 0\n");
  EXPECT_EQ(control({"--check-config", path()}).out, "");
  EXPECT_EQ(control({"--check-config", path()}).status, 0);
  write("[defaults]\nclient_priority = 9\n");
  const std::string wrong =
      "openmps-control: " + path() + ":2:19: expected 0 (normal) or 1 (below normal)\n";
  EXPECT_EQ(control({"--check-config", path()}).out, wrong);
  EXPECT_EQ(control({"--check-config", path()}).status, 1);
  EXPECT_EQ(start().out, wrong) << "no daemon starts with a wrong file";
  EXPECT_EQ(start().status, 1);
  EXPECT_FALSE(std::ifstream(pipe_ + "/openmps-control.pid").good());
  EXPECT_EQ(control({"--config", path(), "ps"}).status, 1);
  EXPECT_EQ(control({"-d", "--config"}).status, 1);
}

TEST_F(ConfigTest, TheEnvironmentOverridesDefaultsAndUsersOverrideBoth) {
  environment_ = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=40";
  write("[defaults]\nactive_thread_percentage = 60\nclient_priority = 1\n[users." + user() +
        "]\nactive_thread_percentage = 30\n");
  ASSERT_EQ(start().status, 0);
  EXPECT_EQ(shell("get_default_active_thread_percentage\nget_default_client_priority\n").out,
            "40.0\n1\n");
  const Client client = join();
  EXPECT_EQ(client.welcome.limits.active_thread_percentage, 30);
  EXPECT_EQ(shell(format_text("get_active_thread_percentage %u\n", client.welcome.server_pid)).out,
            "30.0\n");
}

TEST_F(ConfigTest, ReloadChangesTheLimitsThatDifferFromTheOldFile) {
  write("[defaults]\nactive_thread_percentage = 60\n");
  ASSERT_EQ(start().status, 0);
  const Client first = join();
  EXPECT_EQ(first.welcome.limits.active_thread_percentage, 60);
  const std::string server = std::to_string(first.welcome.server_pid);
  EXPECT_EQ(shell("reload\n").out, "Nothing has changed\n");

  write("[defaults]\nactive_thread_percentage = 50\n[users.64999]\nclient_priority = 1\n");
  EXPECT_EQ(shell("reload\n").out,
            "default active_thread_percentage: 60.0 -> 50.0\n"
            "user " +
                user() +
                " active_thread_percentage: 60.0 -> 50.0\n"
                "user 64999 client_priority: 0 -> 1\n");
  EXPECT_EQ(shell("get_active_thread_percentage " + server + "\n").out, "50.0\n");
  EXPECT_EQ(join().welcome.limits.active_thread_percentage, 50)
      << "the running server has got the new limit";

  // A file with a mistake changes nothing.
  write("[defaults]\nactive_thread_percentage = 20\nthreads = 3\n");
  const Outcome wrong = shell("reload\n");
  EXPECT_TRUE(wrong.out.starts_with(path() + ":3:1: unknown key \"threads\": expected one of "));
  EXPECT_TRUE(wrong.out.ends_with("\nNothing is changed\n")) << wrong.out;
  EXPECT_EQ(wrong.status, 1);
  EXPECT_EQ(shell("get_default_active_thread_percentage\n").out, "50.0\n");

  // SIGHUP reloads, too: service managers send it.
  write("");
  ASSERT_EQ(kill(daemon_pid(), SIGHUP), 0);
  EXPECT_TRUE(
      eventually([&] { return shell("get_default_active_thread_percentage\n").out == "100.0\n"; }));
  EXPECT_NE(log_text("control.log").find("default active_thread_percentage: 50.0 -> 100.0"),
            std::string::npos);
}

TEST_F(ConfigTest, WhatCommandsSetOfANamespaceStaysAtAReload) {
  const std::string first =
      "[servers.s.namespaces.n]\nguaranteed_memory = \"1G\"\nquality = \"latency\"\n";
  write(first);
  ASSERT_EQ(start().status, 0);
  const auto get = [&](const std::string& field) {
    return shell("namespace get n s " + field + "\n").out;
  };
  EXPECT_EQ(get("guaranteed-memory") + get("on-pressure") + get("quality"), "1G\n-\nlatency\n");
  EXPECT_EQ(shell("namespace set n --server=s --quality=best-effort --on-pressure=terminate "
                  "--pinned-memory-limit=2G --guaranteed-memory=0=512M,1=2G\n")
                .out,
            "");
  const Outcome refused = shell("namespace set n --server=s --guaranteed-memory=4G\n");
  EXPECT_EQ(refused.out,
            "Error: the guaranteed memory of each device is 4G, more than the limit of its memory, "
            "2G\n");
  EXPECT_EQ(refused.status, 1);
  EXPECT_EQ(shell("namespace set n --server=s --quality=best\n").out,
            "Error: --quality=best: expected latency, normal or best-effort\n");
  EXPECT_EQ(shell("namespace create m --server=s --pinned-memory-limit=1G --guaranteed-memory=2G\n")
                .status,
            1);
  EXPECT_EQ(shell("namespace get m s name\n").status, 1) << "it has not been made";
  const std::string set = "0=512M,1=2G\nterminate\nbest-effort\n";
  EXPECT_EQ(get("guaranteed-memory") + get("on-pressure") + get("quality"), set);
  const std::string list = shell("namespace list n --format=json\n").out;
  for (const char* part : {"\"guaranteed-memory\": \"0=512M,1=2G\"", "\"weight\": \"-\"",
                           "\"on-pressure\": \"terminate\"", "\"quality\": \"best-effort\""}) {
    EXPECT_NE(list.find(part), std::string::npos) << part << " in " << list;
  }
  EXPECT_EQ(shell("namespace list n\n").out.find("terminate"), std::string::npos)
      << "the table has the columns of MPS's interface";
  EXPECT_EQ(shell("reload\n").out, "Nothing has changed\n");
  EXPECT_EQ(get("guaranteed-memory") + get("on-pressure") + get("quality"), set);
  // The next daemon has it, too.
  kill_daemon();
  ASSERT_EQ(start().status, 0);
  EXPECT_EQ(get("guaranteed-memory") + get("on-pressure") + get("quality"), set);
  write("[servers.s.namespaces.n]\nguaranteed_memory = \"2G\"\non_pressure = \"wait\"\n");
  EXPECT_EQ(shell("reload\n").out,
            "namespace n of server s guaranteed_memory of each device: 1G -> 2G\n"
            "namespace n of server s on_pressure: none -> wait\n"
            "namespace n of server s quality: latency -> normal\n");
  EXPECT_EQ(get("guaranteed-memory") + get("on-pressure") + get("quality"), "2G\nwait\nnormal\n");
  write("");
  shell("reload\n");
  EXPECT_EQ(shell("server delete s\n").out, "");
}

TEST_F(ConfigTest, PartitionsNeedADaemonWithStaticPartitions) {
  const std::string partition = "[[partitions]]\nname = \"small\"\ndevice = 0\nchunks = 1\n";
  const std::string wrong = path() + ": [[partitions]] are for a daemon with -S\n";
  write(partition);
  EXPECT_EQ(control({"--check-config", path()}).status, 0);
  EXPECT_EQ(start().out, "openmps-control: " + wrong);
  EXPECT_EQ(start().status, 1);
  write("");
  ASSERT_EQ(start().status, 0);
  write(partition);
  EXPECT_EQ(shell("reload\n").out, wrong + "Nothing is changed\n");
}

TEST_F(ConfigTest, WithoutAConfigurationThereIsNothingToReload) {
  start_daemon();
  const Outcome reload = shell("reload\n");
  EXPECT_EQ(reload.out, "There is nothing to reload: the daemon was started without --config\n");
  EXPECT_EQ(reload.status, 1);
}

}  // namespace
}  // namespace openmps::control
