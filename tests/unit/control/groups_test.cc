// SPDX-License-Identifier: Apache-2.0
// The group of a client: by the operator's rules, or as the client's OPENMPS_GROUP says.
#include "control/groups.h"

#include <gtest/gtest.h>
#include <unistd.h>

namespace openmps::control {
namespace {

using wire::Limit;

using Paths = std::vector<std::string>;

// The cgroups of two containers of a pod.
constexpr const char* kPod =
    "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1.slice";
const std::string kFirst = std::string(kPod) + "/cri-containerd-aa.scope";
const std::string kSecond = std::string(kPod) + "/cri-containerd-bb.scope";

TEST(Groups, Names) {
  for (const char* name : {"a", "pods", "Train_1.b-c", "4711x", "..."}) {
    EXPECT_TRUE(names_a_group(name)) << name;
  }
  for (const char* name : {"", "4711", "a b", "a/b", "a:b", "\xc3\xa9", "a\n"}) {
    EXPECT_FALSE(names_a_group(name)) << name;
  }
  EXPECT_TRUE(names_a_group(std::string(kMaxGroupWord, 'a')));
  EXPECT_FALSE(names_a_group(std::string(kMaxGroupWord + 1, 'a')));
}

TEST(Groups, APatternMatchesTheHighestCgroup) {
  const std::string each_pod = "/kubepods.slice/*-pod*.slice";
  EXPECT_EQ(matching_cgroup(each_pod, kFirst), kPod);
  EXPECT_EQ(matching_cgroup(each_pod, kPod), kPod);
  EXPECT_EQ(matching_cgroup(each_pod, "/kubepods.slice/kubepods-pod2.slice/a.scope"),
            "/kubepods.slice/kubepods-pod2.slice")
      << "a pod of a node without the level of a quality-of-service class";
  EXPECT_EQ(matching_cgroup(each_pod + "/*", kFirst), kFirst);
  EXPECT_EQ(matching_cgroup(each_pod + "/*", kFirst + "/made/by/itself"), kFirst)
      << "a process can't leave its group by making a cgroup below its own";
  EXPECT_EQ(matching_cgroup(each_pod + "/*", kPod), std::nullopt);
  EXPECT_EQ(matching_cgroup("/*", "/a/b"), "/a");
  EXPECT_EQ(matching_cgroup("/*/c", "/a/b/c/d"), "/a/b/c") << "a star matches slashes, too";
  EXPECT_EQ(matching_cgroup("/", "/"), "/");
  EXPECT_EQ(matching_cgroup("/docker/[0-9a-f]*", "/docker/0af"), "/docker/0af");
  EXPECT_EQ(matching_cgroup("/docker/*", ""), std::nullopt);
}

TEST(Groups, PathsOfEachHierarchy) {
  EXPECT_EQ(cgroup_paths("0::/a:b\n"), (Paths{"/a:b"}));
  EXPECT_EQ(cgroup_paths("5:cpu,cpuacct:/docker/1\n1:name=systemd:/docker/1\n0::/"),
            (Paths{"/docker/1", "/docker/1", "/"}));
  EXPECT_EQ(cgroup_paths("nonsense\n:\n\n"), Paths());
  const auto own = read_cgroups(static_cast<uint32_t>(getpid()));
  ASSERT_TRUE(own.has_value());
  EXPECT_EQ(own->front().front(), '/');
  EXPECT_EQ(read_cgroups(0), std::nullopt) << "PID 0 is a process of another PID namespace";
}

class MembershipTest : public ::testing::Test {
 protected:
  MembershipTest() {
    rules_.push_back(
        {.name = "pods", .cgroup = "/kubepods.slice/*-pod*.slice", .each_cgroup = true});
    rules_.push_back({.name = "trainers", .program = "train", .user = 1000});
    rules_.push_back({.name = "alice", .user = 1000});
    rules_.push_back({.name = "docker", .cgroup = "/docker/*"});
    rules_.push_back({.name = "open"});
  }
  Membership of(uid_t user, const char* command, const char* word,
                const std::optional<Paths>& cgroups = Paths{"/"}) {
    return membership_of(rules_, {user, command, word}, cgroups);
  }
  std::vector<GroupRule> rules_;
};

TEST_F(MembershipTest, TheFirstMatchingRuleDecides) {
  EXPECT_EQ(of(1000, "/opt/train --fast", "").group, "trainers");
  EXPECT_EQ(of(1000, "/opt/trainer", "").group, "alice");
  EXPECT_EQ(of(1001, "train", "").group, "");
  EXPECT_EQ(of(1001, "train", "", Paths{"/docker/1/below"}).group, "docker");
  EXPECT_EQ(of(1000, "train", "", Paths{"/", kFirst}).group, std::string("pods:") + kPod);
  EXPECT_EQ(of(1000, "train", "", Paths{kSecond}).group, std::string("pods:") + kPod);
  EXPECT_EQ(of(1000, "train", "").note, "");
}

TEST_F(MembershipTest, RulesOverrideTheClientsChoice) {
  EXPECT_EQ(of(1001, "x", "open").group, "open");
  EXPECT_EQ(of(1001, "x", "new").group, "new") << "a client may name a new group";
  EXPECT_EQ(of(1000, "x", "open").group, "alice") << "the operator's rule comes first";
  EXPECT_EQ(of(1001, "x", "open", Paths{kFirst}).group, std::string("pods:") + kPod);
  for (const char* word : {"alice", "pods", "docker"}) {
    const Membership refused = of(1001, "x", word);
    EXPECT_EQ(refused.group, "") << "clients can't choose a group whose rule chooses its members";
    EXPECT_NE(refused.note.find(word), std::string::npos);
  }
  for (const char* word : {"pods:/kubepods.slice/a", "1000", "a b"}) {
    EXPECT_EQ(of(1001, "x", word).group, "");
    EXPECT_NE(of(1001, "x", word).note, "");
  }
}

TEST_F(MembershipTest, ACgroupThatCantBeReadMatchesNoRule) {
  const Membership unread = of(1001, "x", "open", std::nullopt);
  EXPECT_EQ(unread.group, "open");
  EXPECT_NE(unread.note.find("can't be read"), std::string::npos) << unread.note;
  EXPECT_EQ(of(1000, "x", "", std::nullopt).group, "alice");
  const Membership longer =
      of(1001, "x", "", Paths{"/kubepods.slice/-pod" + std::string(400, '1') + ".slice"});
  EXPECT_EQ(longer.group, "");
  EXPECT_NE(longer.note.find("too long"), std::string::npos) << longer.note;
}

TEST_F(MembershipTest, TheRuleOfAGroupIsFoundByItsName) {
  EXPECT_EQ(rule_of(rules_, "pods:/a/b")->name, "pods");
  EXPECT_EQ(rule_of(rules_, "docker")->name, "docker");
  EXPECT_EQ(rule_of(rules_, "pod"), nullptr);
}

TEST(Groups, LimitsAreResolvedToDeviceNumbers) {
  GroupRule rule{.name = "a"};
  const wire::ClientLimits none = group_limits(rule, {});
  EXPECT_EQ(none, wire::ClientLimits());
  rule.limits = {{{Limit::kPercentage}, 25},        {{Limit::kPriority}, 0},
                 {{Limit::kMemory, "GPU-bb"}, 7},   {{Limit::kMemory, "0"}, 5},
                 {{Limit::kSmCount, "GPU-bb"}, 32}, {{Limit::kSmCount, "GPU-nowhere"}, 9}};
  const std::vector<Device> devices = {{"", "GPU-aa", ""}, {"", "GPU-bb-1", ""}};
  const wire::ClientLimits limits = group_limits(rule, devices);
  EXPECT_EQ(limits.active_thread_percentage, 25);
  EXPECT_EQ(limits.client_priority, 0u) << "a priority of 0 is a limit, too, and not \"none\"";
  EXPECT_EQ(limits.memory_limit[0], 5u);
  EXPECT_EQ(limits.memory_limit[1], 7u);
  EXPECT_EQ(limits.sm_count[0], 0u);
  EXPECT_EQ(limits.sm_count[1], 32u);
}

TEST(Groups, ChangesAreListed) {
  const GroupRule before{.name = "a",
                         .program = "x",
                         .limits = {{{Limit::kPercentage}, 50},
                                    {{Limit::kMemory, "0"}, wire::kGiB},
                                    {{Limit::kSmCount, "0"}, 8}}};
  GroupRule now = before;
  EXPECT_EQ(changes_of_group(&before, &now), Paths());
  now.program = "y";
  now.limits = {{{Limit::kPercentage}, 20}, {{Limit::kSmCount, "1"}, 4}};
  EXPECT_EQ(changes_of_group(&before, &now),
            (Paths{"group a has other members from now on",
                   "group a active_thread_percentage: 50.0 -> 20.0",
                   "group a device_pinned_mem_limit of 0: 1G -> none",
                   "group a sm_count of 0: 8 -> none", "group a sm_count of 1: none -> 4"}));
  EXPECT_EQ(changes_of_group(nullptr, &now).front(), "group a is there from now on");
  EXPECT_EQ(changes_of_group(&now, nullptr).front(), "group a is not described any more");
}

}  // namespace
}  // namespace openmps::control
