// SPDX-License-Identifier: Apache-2.0
// Named servers and namespaces: which names there can be, who may come, and where a client belongs.
#include "control/named_servers.h"

#include <gtest/gtest.h>

namespace openmps::control {
namespace {

using Cgroups = std::optional<std::vector<std::string>>;

constexpr uid_t kRoot = 0, kAnne = 1000, kBert = 1001;

NamedServer server(const std::string& name, uid_t uid) { return {name, {uid, uid}}; }

Applicant applicant(uid_t user, std::string_view word = "") { return {user, "./program", word}; }

TEST(NamedServers, Names) {
  for (const char* name : {"a", "0", "pod_1-b", "UPPER", "4711"}) {
    EXPECT_EQ(fault_of_name("server", name), "") << name;
  }
  for (const char* name : {"", "-a", "a.b", ".", "..", "a/b", "a b", "\xc3\xa9", "a\n"}) {
    EXPECT_NE(fault_of_name("server", name), "") << name;
  }
  EXPECT_TRUE(names_a_share(std::string(64, 'x')));
  EXPECT_FALSE(names_a_share(std::string(65, 'x')));
  EXPECT_EQ(fault_of_name("namespace", "a.b"),
            "\"a.b\" is no name of a namespace: letters, digits, _ and -, at most 64");
  EXPECT_EQ(name_of_users_server(17), "uid_17");
  EXPECT_EQ(user_of_server_name("uid_17"), 17u);
  for (const char* name : {"uid_", "uid_x", "17", "uid_4294967295"}) {
    EXPECT_EQ(user_of_server_name(name), std::nullopt) << name;
  }
}

TEST(NamedServers, DirectoriesOfCgroups) {
  EXPECT_EQ(cgroup_of_directory("/sys/fs/cgroup/a/b"), "/a/b");
  EXPECT_EQ(cgroup_of_directory("/sys/fs/cgroup/a/"), "/a");
  EXPECT_EQ(cgroup_of_directory("/sys/fs/cgroup"), "/");
  for (const char* directory : {"", "/", "/sys/fs", "/sys/fs/cgroups/a", "a"}) {
    EXPECT_EQ(cgroup_of_directory(directory), std::nullopt) << directory;
  }
}

TEST(NamedServers, EachHasADefaultNamespaceAndNamesAreThereOnce) {
  NamedServers all(kRoot);
  ASSERT_TRUE(all.add(server("s", kAnne)).ok());
  EXPECT_NE(all.find("s", kDefaultNamespace), nullptr);
  EXPECT_EQ(all.add(server("s", kAnne)).code(), CUDA_ERROR_ALREADY_ACQUIRED);
  EXPECT_EQ(all.add(server("a.b", kAnne)).code(), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(all.add(server("uid_1000", kBert)).code(), CUDA_ERROR_INVALID_VALUE)
      << "a server of that name is that user's";
  ASSERT_TRUE(all.add("s", {.name = "n"}).ok());
  EXPECT_EQ(all.add("s", {.name = "n"}).code(), CUDA_ERROR_ALREADY_ACQUIRED);
  EXPECT_EQ(all.add("t", {.name = "n"}).code(), CUDA_ERROR_INVALID_VALUE);
  all.remove("s", "n");
  EXPECT_EQ(all.find("s", "n"), nullptr);
  all.remove("s");
  EXPECT_TRUE(all.all().empty());
}

TEST(NamedServers, AreBounded) {
  NamedServers all(kRoot);
  for (size_t i = 0; i < kMaxServersOfUser; ++i) {
    ASSERT_TRUE(all.add(server("s" + std::to_string(i), kAnne)).ok());
  }
  EXPECT_EQ(all.add(server("more", kAnne)).code(), CUDA_ERROR_MPS_MAX_CLIENTS_REACHED);
  EXPECT_TRUE(all.add(server("more", kBert)).ok());
  Status status;
  for (size_t i = 0; i <= kMaxNamespaces && status.ok(); ++i) {
    status = all.add("s0", {.name = "n" + std::to_string(i)});
    ASSERT_TRUE(status.ok() || i + kMaxServersOfUser + 1 == kMaxNamespaces) << i;
  }
  EXPECT_EQ(status.code(), CUDA_ERROR_MPS_MAX_CLIENTS_REACHED);
}

TEST(NamedServers, ADoorIsForItsServersUserOrForTheOneItIsMadeFor) {
  NamedServers all(kRoot);
  ASSERT_TRUE(all.add(server("root", kRoot)).ok() && all.add(server("anne", kAnne)).ok());
  ASSERT_TRUE(all.add("root", {.name = "berts", .user = kBert}).ok());
  const auto may = [&](const char* name, const char* space, uid_t user) {
    return all.may_come(name, space, user);
  };
  for (const uid_t user : {kRoot, kAnne}) EXPECT_TRUE(may("anne", "default", user));
  EXPECT_FALSE(may("anne", "default", kBert));
  EXPECT_FALSE(may("root", "default", kAnne));
  EXPECT_TRUE(may("root", "berts", kBert) && may("root", "berts", kRoot));
  EXPECT_FALSE(may("root", "berts", kAnne));
  EXPECT_FALSE(may("root", "nothing", kRoot) || may("nothing", "default", kRoot));
  all.serve_everybody();
  EXPECT_TRUE(may("root", "default", kAnne)) << "a server of root's is open to all with -m";
  EXPECT_FALSE(may("anne", "default", kBert) || may("root", "berts", kAnne));
}

TEST(NamedServers, TheDeepestCgroupDecidesThenRulesThenTheProgramsWord) {
  NamedServers all(kRoot);
  ASSERT_TRUE(all.add(server("s", kAnne)).ok());
  ASSERT_TRUE(all.add("s", {.name = "jobs", .cgroup = "/jobs"}).ok());
  ASSERT_TRUE(all.add("s", {.name = "one", .cgroup = "/jobs/1", .cgroup_depth = 1}).ok());
  EXPECT_TRUE(all.asks_for_cgroups());
  const auto place = [&](uid_t user, Cgroups cgroups, std::string_view word = "") {
    const Place found = all.route({}, applicant(user, word), cgroups);
    return found.server + "/" + found.group;
  };
  EXPECT_EQ(place(kAnne, {{"/jobs"}}), "s/jobs");
  EXPECT_EQ(place(kAnne, {{"/jobs/2/a/b"}}), "s/jobs");
  EXPECT_EQ(place(kAnne, {{"/jobs/1"}}), "s/one");
  EXPECT_EQ(place(kAnne, {{"/jobs/1/a"}}), "s/one");
  EXPECT_EQ(place(kAnne, {{"/jobs/1/a/b"}}), "s/jobs") << "deeper than one level";
  EXPECT_EQ(place(kAnne, {{"/jobs/10"}}), "s/jobs") << "/jobs/1 is no parent of it";
  EXPECT_EQ(place(kAnne, {{"/jobsx", "/jobs"}}), "s/jobs") << "a hierarchy that fits suffices";
  EXPECT_EQ(place(kAnne, {{"/jobsx"}}), "uid_1000/");
  EXPECT_EQ(place(kAnne, std::nullopt), "uid_1000/");
  EXPECT_EQ(place(kBert, {{"/jobs"}}), "uid_1001/") << "not in another user's server";
  EXPECT_NE(all.route({}, applicant(kBert), Cgroups{{"/jobs"}}).note, "");
  ASSERT_TRUE(all.add("s", {.name = "all", .cgroup = "/", .user = kBert}).ok());
  EXPECT_EQ(place(kBert, {{"/x"}}), "uid_1001/") << "nobody draws others into a server of theirs";
  EXPECT_EQ(place(kRoot, {{"/jobs"}}), "uid_0/") << "not root either";
  all.remove("s", "all");
  EXPECT_EQ(place(kAnne, {{"/"}}, "mine"), "uid_1000/mine");
  EXPECT_EQ(place(kAnne, {{"/jobs"}}, "mine"), "s/jobs");
}

TEST(NamedServers, AUsersServerWithNamespacesHasADefaultOne) {
  NamedServers all(kRoot);
  ASSERT_TRUE(all.add(server("uid_1000", kAnne)).ok());
  ASSERT_TRUE(all.add("uid_1000", {.name = "small"}).ok());
  ASSERT_TRUE(all.add("uid_1000", {.name = "berts", .user = kBert}).ok());
  EXPECT_EQ(all.route({}, applicant(kAnne), std::nullopt).group, kDefaultNamespace);
  EXPECT_EQ(all.route({}, applicant(kAnne, "small"), std::nullopt).group, "small");
  const Place other = all.route({}, applicant(kAnne, "berts"), std::nullopt);
  EXPECT_EQ(other.group, kDefaultNamespace) << "she may not come by its socket";
  EXPECT_NE(other.note, "");
  EXPECT_EQ(all.route({}, applicant(kBert), std::nullopt).group, "");
}

}  // namespace
}  // namespace openmps::control
