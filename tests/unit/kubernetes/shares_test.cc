// SPDX-License-Identifier: Apache-2.0
// Shares of GPUs: their IDs, which go well together, what they are worth, how the daemon is told.
#include "kubernetes/shares.h"

#include <gtest/gtest.h>

namespace openmps::kubernetes {
namespace {

constexpr uint64_t kGiB = 1ull << 30;
constexpr uint64_t kMiB = 1ull << 20;

observe::Device gpu(uint32_t ordinal, const std::string& uuid, uint32_t sms, uint64_t memory) {
  observe::Device device;
  device.ordinal = ordinal;
  device.uuid = uuid;
  device.sms = sms;
  device.memory_bytes = memory;
  return device;
}

// Two of one kind, and a smaller one. The kubelet orders by name, the node has another order.
const std::vector<observe::Device> kNode = {gpu(0, "GPU-b", 132, 141 * kGiB),
                                            gpu(1, "GPU-a", 132, 141 * kGiB),
                                            gpu(2, "GPU-c", 56, 24 * kGiB)};

std::vector<std::string> ids(const std::string& gpu, uint32_t from, uint32_t to) {
  std::vector<std::string> list;
  for (uint32_t i = from; i < to; ++i) list.push_back(text_of({gpu, i}));
  return list;
}

std::vector<std::string> operator+(std::vector<std::string> a, const std::vector<std::string>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

std::vector<std::string> preferred(const std::vector<std::string>& available,
                                   const std::vector<std::string>& must, int64_t count) {
  std::vector<std::string> list;
  const Result<ShareSet> shares = prefer_shares(available, must, count);
  EXPECT_TRUE(shares.ok()) << shares.status().message();
  if (!shares.ok()) return list;
  for (const ShareId& id : *shares) list.push_back(text_of(id));
  return list;
}

TEST(ShareIds, AreReadAsTheyAreWritten) {
  for (const char* text : {"GPU-73677075-0000-8000-b21c-8ebb71fd1800::0", "GPU-a::99"}) {
    const std::optional<ShareId> id = parse_share_id(text);
    ASSERT_TRUE(id.has_value()) << text;
    EXPECT_EQ(text_of(*id), text);
  }
  for (const char* text :
       {"", "::", "GPU-a", "GPU-a::", "GPU-::1", "a::1", "GPU-a::100", "GPU-a::01", "GPU-a::-1",
        "GPU-a::1::2", "GPU-a:1", "GPU-a,b::1", "GPU-a\n::1", " GPU-a::1", "MIG-GPU-a::1",
        "GPU-0123456789012345678901234567890123456789012345678901234567::1"}) {
    EXPECT_FALSE(parse_share_id(text).has_value()) << text;
  }
}

TEST(ShareIds, ASetHasEachOnce) {
  EXPECT_EQ(read_share_ids({"GPU-a::1", "GPU-a::0"})->size(), 2u);
  EXPECT_EQ(read_share_ids({"GPU-a::1", "GPU-a::1"}).status().message(),
            "share GPU-a::1 is there twice");
  EXPECT_EQ(read_share_ids({"GPU-a::1", "x\n"}).status().message(), "'x?' is no share of a GPU");
  EXPECT_FALSE(read_share_ids({}).ok());
}

TEST(ShareIds, OfANode) {
  const std::vector<ShareId> all = all_shares(kNode, {.per_gpu = 3});
  ASSERT_EQ(all.size(), 9u);
  EXPECT_EQ(text_of(all.front()), "GPU-b::0");
  EXPECT_EQ(text_of(all.back()), "GPU-c::2");
}

TEST(PreferredShares, AreOfOneGpu) {
  const std::vector<std::string> free = ids("GPU-a", 2, 4) + ids("GPU-b", 0, 4);
  // The one that has the least room, as long as it suffices.
  EXPECT_EQ(preferred(free, {}, 1), ids("GPU-a", 2, 3));
  EXPECT_EQ(preferred(free, {}, 2), ids("GPU-a", 2, 4));
  EXPECT_EQ(preferred(free, {}, 3), ids("GPU-b", 0, 3));
  // No GPU suffices: as few as possible.
  EXPECT_EQ(preferred(free, {}, 5), ids("GPU-a", 2, 3) + ids("GPU-b", 0, 4));
  EXPECT_EQ(preferred(free, {}, 6), free);
  EXPECT_EQ(preferred(free, {}, 0), std::vector<std::string>());
}

TEST(PreferredShares, AreBesideThoseThatHaveToBeThere) {
  const std::vector<std::string> free = ids("GPU-a", 2, 4) + ids("GPU-b", 0, 4);
  EXPECT_EQ(preferred(free, {"GPU-b::2"}, 2), (std::vector<std::string>{"GPU-b::0", "GPU-b::2"}));
  EXPECT_EQ(preferred(free, {"GPU-b::9"}, 1), (std::vector<std::string>{"GPU-b::9"}));
  EXPECT_EQ(preferred(free, {"GPU-b::9"}, 6),
            (std::vector<std::string>{"GPU-a::2"} + ids("GPU-b", 0, 4) +
             std::vector<std::string>{"GPU-b::9"}));
}

TEST(PreferredShares, WrongWishesAreErrors) {
  const std::vector<std::string> free = ids("GPU-a", 0, 2);
  EXPECT_EQ(prefer_shares(free, {}, 3).status().message(),
            "3 shares are wanted of 2, with 0 among them");
  EXPECT_FALSE(prefer_shares(free, {}, -1).ok());
  EXPECT_FALSE(prefer_shares(free, free, 1).ok());
  EXPECT_FALSE(prefer_shares({"GPU-a"}, {}, 1).ok());
  EXPECT_FALSE(prefer_shares(free, {"x"}, 1).ok());
}

TEST(NamesOfNamespaces, FollowFromTheShares) {
  const auto name = [](const std::vector<std::string>& list) {
    return namespace_of(read_share_ids(list).value());
  };
  EXPECT_EQ(name({"GPU-a::1", "GPU-a::0"}), name({"GPU-a::0", "GPU-a::1"}));
  EXPECT_NE(name({"GPU-a::1", "GPU-a::0"}), name({"GPU-a::0"}));
  EXPECT_NE(name({"GPU-a::1", "GPU-a::0"}), name({"GPU-a::10"}));
  // It is the name of a directory that outlives the program: it may not change between versions.
  EXPECT_EQ(name({"GPU-a::0"}), "kube-1c2dd8840f8802c1");
  EXPECT_TRUE(names_shares(name({"GPU-a::0"})));
  for (const char* other : {"", "kube-", "default", "kube-1c2dd8840f8802c", "kube-Ac2dd8840f8802c1",
                            "kube-1c2dd8840f8802c1x", "xube-1c2dd8840f8802c1"}) {
    EXPECT_FALSE(names_shares(other)) << other;
  }
}

TEST(Grants, AddUp) {
  const ShareSize size{.per_gpu = 8, .reserved_bytes = kGiB};
  Grant one = grant_of(read_share_ids({"GPU-a::7"}).value(), kNode, size).value();
  ASSERT_EQ(one.parts.size(), 1u);
  EXPECT_EQ(one.parts["GPU-a"].sms, 16u);  // 16.5
  EXPECT_EQ(one.parts["GPU-a"].memory_bytes, 140 * kGiB / 8);
  // The fractions of SMs add up, too; the memory of each share is whole MiB.
  Grant four = grant_of(read_share_ids(ids("GPU-a", 0, 3) + ids("GPU-c", 2, 3)).value(), kNode,
                        {.per_gpu = 7, .reserved_bytes = 0})
                   .value();
  ASSERT_EQ(four.parts.size(), 2u);
  EXPECT_EQ(four.parts["GPU-a"].sms, 132u * 3 / 7);
  EXPECT_EQ(four.parts["GPU-a"].memory_bytes, 141 * 1024 / 7 * kMiB * 3);
  EXPECT_EQ(four.parts["GPU-c"].sms, 8u);
  EXPECT_EQ(visible_devices(four, kNode), "GPU-a,GPU-c");
  Grant both = grant_of(read_share_ids({"GPU-a::0", "GPU-b::0"}).value(), kNode, size).value();
  EXPECT_EQ(visible_devices(both, kNode), "GPU-b,GPU-a") << "in the node's order";
}

TEST(Grants, OfWhatIsNotThereAreErrors) {
  const ShareSize size{.per_gpu = 8, .reserved_bytes = kGiB};
  EXPECT_EQ(grant_of(read_share_ids({"GPU-d::0"}).value(), kNode, size).status().message(),
            "this node has no share GPU-d::0");
  EXPECT_EQ(grant_of(read_share_ids({"GPU-a::8"}).value(), kNode, size).status().message(),
            "this node has no share GPU-a::8");
}

TEST(Grants, TheDaemonIsToldOfEachGpu) {
  Grant grant{.name = "x", .parts = {{"GPU-a", {16, 3 * kMiB}}}};
  EXPECT_EQ(
      options_of(grant, kNode),
      " --sm-count=GPU-b=1,GPU-a=16,GPU-c=1"
      " --pinned-memory-limit=GPU-b=1K,GPU-a=3072K,GPU-c=1K --borrow-sms=false --quality=normal");
  // 0 would be no limit.
  grant.parts["GPU-a"] = {0, 0};
  grant.borrows = true;
  grant.quality = "latency";
  EXPECT_EQ(
      options_of(grant, {kNode[1]}),
      " --sm-count=GPU-a=1 --pinned-memory-limit=GPU-a=1K --borrow-sms=true --quality=latency");
  EXPECT_EQ(first_options_of(grant), "");
  grant.partitions = {{"GPU-a", "p"}, {"GPU-b", "q"}};
  EXPECT_EQ(first_options_of(grant), " --sm-partitions=GPU-a=p,GPU-b=q");
}

}  // namespace
}  // namespace openmps::kubernetes
