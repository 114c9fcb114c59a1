// SPDX-License-Identifier: Apache-2.0
// What lanes do together when they come in groups: member masks that differ within one instruction,
// groups that are complete before others, lanes that never come. Results are those of an H200
// (tests/softgpu/conformance has more of them).
#include <gtest/gtest.h>

#include <functional>

#include "engine_fixture.h"

namespace openmps::softgpu::test {
namespace {

// Each thread stores %r. %lane is its lane, %t the mask of its tile of eight.
std::string kernel(const std::string& body) {
  return ".version 8.0\n.target sm_80\n.address_size 64\n"
         ".visible .entry k(.param .u64 out) {\n"
         "  .reg .b64 %out, %at; .reg .b32 %r, %s, %lane, %t, %x; .reg .pred %p, %q, %tile;\n"
         "  ld.param.u64 %out, [out]; mov.u32 %lane, %tid.x; mul.wide.u32 %at, %lane, 4;\n"
         "  add.s64 %out, %out, %at; mov.u32 %r, -1;\n"
         "  and.b32 %x, %lane, 24; mov.u32 %t, 255; shl.b32 %t, %t, %x;\n" +
         body + "\n  st.global.u32 [%out], %r;\n  ret;\n}\n";
}

class Collectives : public testing::Test {
 protected:
  void check(const std::string& body, const std::function<uint32_t(uint32_t)>& expected,
             uint32_t threads = 32) {
    Device device;
    ASSERT_TRUE(device.load(kernel(body))) << device.error.log;
    ASSERT_EQ(device.unsupported(), "");
    for (uint64_t seed = 0; seed <= 10; ++seed) {
      std::vector<uint32_t> out(threads, 12345);
      const Outcome outcome =
          device.run("k", {}, {threads}, Parameters().add(device.buffer(out)), 0, seed, 5000, 1000);
      ASSERT_EQ(outcome.state, BlockState::kFinished) << body << " " << outcome.fault.text;
      for (uint32_t i = 0; i < threads; ++i) {
        ASSERT_EQ(out[i], expected(i)) << body << ", thread " << i << ", seed " << seed;
      }
      device.memory.remove(out.data());
    }
  }
};

TEST_F(Collectives, TilesVoteForThemselves) {
  const auto tile = [](uint32_t lane) { return lane / 8; };
  const std::string odd_ninth = "setp.eq.u32 %p, %lane, 9;\n";
  check(odd_ninth + "vote.sync.ballot.b32 %r, %p, %t;",
        [&](uint32_t lane) { return tile(lane) == 1 ? 1u << 9 : 0; });
  check(odd_ninth + "vote.sync.any.pred %q, %p, %t; selp.b32 %r, 1, 0, %q;",
        [&](uint32_t lane) { return uint32_t{tile(lane) == 1}; });
  check(odd_ninth + "not.pred %p, %p; vote.sync.all.pred %q, %p, %t; selp.b32 %r, 1, 0, %q;",
        [&](uint32_t lane) { return uint32_t{tile(lane) != 1}; });
  check(odd_ninth + "vote.sync.uni.pred %q, %p, %t; selp.b32 %r, 1, 0, %q;",
        [&](uint32_t lane) { return uint32_t{tile(lane) != 1}; });
}

TEST_F(Collectives, TilesReduceMatchAndElect) {
  check("redux.sync.add.s32 %r, %lane, %t;", [](uint32_t lane) { return 8 * (lane & 24) + 28; });
  check("redux.sync.max.u32 %r, %lane, %t;", [](uint32_t lane) { return lane | 7; });
  check("and.b32 %s, %lane, 1; match.any.sync.b32 %r, %s, %t;",
        [](uint32_t lane) { return (lane & 1 ? 0xaau : 0x55u) << (lane & 24); });
  check("and.b32 %s, %lane, 8; match.all.sync.b32 %r, %s, %t;",
        [](uint32_t lane) { return 0xffu << (lane & 24); });
}

TEST(CollectivesOfSm90, TilesElect) {
  Device device;
  std::string text = kernel("elect.sync %r|%p, %t; selp.b32 %s, 100, 0, %p; add.s32 %r, %r, %s;");
  text.replace(text.find("sm_80"), 5, "sm_90");
  ASSERT_TRUE(device.load(text)) << device.error.log;
  std::vector<uint32_t> out(32);
  ASSERT_EQ(device.run("k", {}, {32}, Parameters().add(device.buffer(out))).state,
            BlockState::kFinished);
  for (uint32_t lane = 0; lane < 32; ++lane) {
    EXPECT_EQ(out[lane], (lane & 24) + (lane % 8 == 0 ? 100 : 0)) << lane;
  }
}

TEST_F(Collectives, LanesOfDifferentPathsMeetInTheirTile) {
  // The odd lanes come to the reduction another way than the even ones.
  check(
      "and.b32 %s, %lane, 1; setp.eq.u32 %p, %s, 1; mov.u32 %x, 1; @!%p bra $even;\n"
      "mov.u32 %x, 100; $even: redux.sync.add.s32 %r, %x, %t;",
      [](uint32_t) { return 404u; });
}

TEST_F(Collectives, AWholeGroupDoesNotWaitForOthers) {
  // Half of the second tile waits, in a loop, for what the first tile stores behind its reduction.
  check(
      "setp.eq.u32 %p, %lane, 31; mov.u32 %s, 0; @!%p bra $come;\n"
      "$wait: ld.volatile.global.u32 %s, [%out+-124]; setp.ne.u32 %q, %s, 28; @%q bra $wait;\n"
      "$come: redux.sync.add.s32 %r, %lane, %t; st.volatile.global.u32 [%out], %r;",
      [](uint32_t lane) { return 8 * (lane & 24) + 28; });
}

TEST_F(Collectives, TilesMeetAtWarpBarriers) {
  // Only the lanes below 12 write; each tile's barrier lets its own lanes read.
  check(
      "setp.lt.u32 %p, %lane, 12; @!%p bra $side; add.u32 %s, %lane, 50;\n"
      "st.volatile.global.u32 [%out], %s; bar.warp.sync %t; bra $read;\n"
      "$side: mov.u32 %s, 7; st.volatile.global.u32 [%out], %s; bar.warp.sync %t;\n"
      "$read: xor.b32 %x, %lane, 7; sub.s32 %x, %x, %lane; mul.wide.s32 %at, %x, 4;\n"
      "add.s64 %at, %out, %at; ld.volatile.global.u32 %r, [%at]; bar.warp.sync %t;",
      [](uint32_t lane) { return (lane ^ 7) < 12 ? (lane ^ 7) + 50 : 7; });
}

TEST_F(Collectives, ShufflesFromLanesThatAreNotThereGiveZero) {
  const auto down = [](uint32_t lane, uint32_t by, uint32_t here) {
    const uint32_t from = lane + by;
    return from > 31 ? lane + 1 : here >> from & 1 ? from + 1 : 0;
  };
  // A partial warp.
  for (const uint32_t by : {16u, 8u, 1u}) {
    check(
        "add.u32 %s, %lane, 1; shfl.sync.down.b32 %r, %s, " + std::to_string(by) + ", 31, -1;",
        [&](uint32_t lane) { return down(lane, by, 0xfffff); }, 20);
  }
  // Lanes that have exited.
  check(
      "setp.ge.u32 %p, %lane, 24; mov.u32 %r, 12345; @%p exit; add.u32 %s, %lane, 1;\n"
      "shfl.sync.down.b32 %r, %s, 8, 31, -1;",
      [&](uint32_t lane) { return lane >= 24 ? 12345 : down(lane, 8, 0xffffff); });
  // Lanes outside of the mask.
  check(
      "setp.lt.u32 %p, %lane, 16; add.u32 %s, %lane, 1; mov.u32 %r, 77; @!%p bra $end;\n"
      "shfl.sync.bfly.b32 %r, %s, 16, 31, 0xffff; $end:",
      [](uint32_t lane) { return lane < 16 ? 0u : 77u; });
  check(
      "setp.lt.u32 %p, %lane, 16; add.u32 %s, %lane, 1; mov.u32 %r, 77; @!%p bra $end;\n"
      "shfl.sync.idx.b32 %r, %s, 20, 31, 0xffff; $end:",
      [](uint32_t lane) { return lane < 16 ? 0u : 77u; });
}

TEST_F(Collectives, TilesThatShuffleTogetherReadEachOther) {
  check("add.u32 %s, %lane, 1; shfl.sync.bfly.b32 %r, %s, 16, 31, %t;",
        [](uint32_t lane) { return (lane ^ 16) + 1; });
}

}  // namespace
}  // namespace openmps::softgpu::test
