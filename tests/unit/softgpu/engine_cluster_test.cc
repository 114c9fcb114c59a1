// SPDX-License-Identifier: Apache-2.0
// Thread block clusters: where a block is in its cluster, the cluster's barrier, and the shared
// memory of other blocks by every kind of address.
#include <gtest/gtest.h>

#include <functional>

#include "engine_fixture.h"

namespace openmps::softgpu::test {
namespace {

// Each thread stores %r. %rank and %size are of the cluster, %next is the rank of the next block.
std::string kernel(const std::string& body, const std::string& directives = "") {
  return ".version 8.3\n.target sm_90\n.address_size 64\n"
         ".visible .entry k(.param .u64 out) " +
         directives +
         " {\n"
         "  .shared .align 16 .b32 own[64];\n"
         "  .reg .b64 %out, %at, %g, %h, %w<4>; .reg .b32 %r, %s, %t, %block, %rank, %size, "
         "%next;\n"
         "  .reg .b32 %threads, %there, %spin; .reg .pred %p, %q, %first; .reg .f32 %f;\n"
         "  ld.param.u64 %out, [out]; mov.u32 %t, %tid.x; mov.u32 %block, %nctaid.x;\n"
         "  mov.u32 %s, %ctaid.y; mad.lo.u32 %block, %block, %s, 0; mov.u32 %s, %ctaid.x;\n"
         "  add.u32 %block, %block, %s; mov.u32 %threads, %ntid.x;\n"
         "  mad.lo.u32 %s, %block, %threads, %t; mul.wide.u32 %at, %s, 4; add.s64 %out, %out, "
         "%at;\n"
         "  mov.u32 %rank, %cluster_ctarank; mov.u32 %size, %cluster_nctarank;\n"
         "  add.u32 %next, %rank, 1; setp.eq.u32 %p, %next, %size; selp.b32 %next, 0, %next, %p;\n"
         "  setp.eq.u32 %first, %t, 0; mov.u32 %r, -1; mov.u32 %s, own;\n" +
         body + "\n  st.global.u32 [%out], %r;\n  ret;\n}\n";
}

constexpr char kSync[] = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;\n";

class Clusters : public testing::Test {
 protected:
  struct Shape {
    Dim grid{8}, cluster{4};
    uint32_t threads = 64;
  };
  // `expected` of (block in the grid, thread).
  void check(const std::string& body, const std::function<uint32_t(uint32_t, uint32_t)>& expected,
             const Shape& shape) {
    Device device;
    ASSERT_TRUE(device.load(kernel(body))) << device.error.log;
    ASSERT_EQ(device.unsupported(), "");
    device.cluster = shape.cluster;
    const uint32_t blocks = shape.grid.x * shape.grid.y;
    for (uint64_t seed = 0; seed <= 8; ++seed) {
      std::vector<uint32_t> out(blocks * shape.threads, 12345);
      const Outcome outcome = device.run("k", shape.grid, {shape.threads},
                                         Parameters().add(device.buffer(out)), 0, seed, 5000, 1000);
      ASSERT_EQ(outcome.state, BlockState::kFinished) << body << " " << outcome.fault.text;
      for (uint32_t i = 0; i < out.size(); ++i) {
        ASSERT_EQ(out[i], expected(i / shape.threads, i % shape.threads))
            << body << ", block " << i / shape.threads << ", thread " << i % shape.threads
            << ", seed " << seed;
      }
      device.memory.remove(out.data());
    }
  }
  void check(const std::string& body, const std::function<uint32_t(uint32_t, uint32_t)>& expected) {
    check(body, expected, Shape{});
  }
  Fault fault_of(const std::string& body) {
    Device device;
    EXPECT_TRUE(device.load(kernel(body))) << device.error.log;
    device.cluster = {2};
    std::vector<uint32_t> out(64);
    const Outcome outcome = device.run("k", {2}, {32}, Parameters().add(device.buffer(out)));
    EXPECT_EQ(outcome.state, BlockState::kFaulted) << body;
    return outcome.fault;
  }
};

TEST_F(Clusters, SpecialRegistersSayWhereABlockIs) {
  const Shape shape{{4, 6}, {2, 3}, 32};
  const auto digits = [&](const char* a, const char* b) {
    return std::string("mov.u32 %r, ") + a + "; mov.u32 %s, " + b +
           "; mul.lo.u32 %r, %r, 100; add.u32 %r, %r, %s;";
  };
  const auto x = [](uint32_t block) { return block % 4; };
  const auto y = [](uint32_t block) { return block / 4; };
  check(
      digits("%clusterid.x", "%clusterid.y"),
      [&](uint32_t b, uint32_t) { return x(b) / 2 * 100 + y(b) / 3; }, shape);
  check(
      digits("%nclusterid.x", "%nclusterid.y"), [](uint32_t, uint32_t) { return 202; }, shape);
  check(
      digits("%cluster_ctaid.x", "%cluster_ctaid.y"),
      [&](uint32_t b, uint32_t) { return x(b) % 2 * 100 + y(b) % 3; }, shape);
  check(
      digits("%cluster_nctaid.x", "%cluster_nctaid.y"), [](uint32_t, uint32_t) { return 203; },
      shape);
  check(
      digits("%cluster_ctarank", "%cluster_nctarank"),
      [&](uint32_t b, uint32_t) { return (x(b) % 2 + 2 * (y(b) % 3)) * 100 + 6; }, shape);
  check(
      digits("%clusterid.z", "%nclusterid.z"), [](uint32_t, uint32_t) { return 1; }, shape);
  const std::string is_explicit = "mov.pred %p, %is_explicit_cluster; selp.b32 %r, 1, 0, %p;";
  check(
      is_explicit, [](uint32_t, uint32_t) { return 1; }, shape);
  check(is_explicit, [](uint32_t, uint32_t) { return 0; }, {{4, 2}, {}, 32});
  check(digits("%cluster_ctarank", "%cluster_nctarank"), [](uint32_t, uint32_t) { return 1; },
        {{4, 2}, {}, 32});
  check(digits("%clusterid.x", "%nclusterid.y"),
        [&](uint32_t b, uint32_t) { return x(b) * 100 + 2; }, {{4, 2}, {}, 32});
}

// Each block writes its rank and thread, and reads what its neighbour wrote.
std::string exchange(const std::string& read) {
  return "shl.b32 %there, %t, 2; add.u32 %s, %s, %there; mad.lo.u32 %r, %rank, 1000, %t;\n"
         "st.shared.u32 [%s], %r;\n" +
         std::string(kSync) + read + "\n" + kSync;
}
uint32_t neighbour(uint32_t block, uint32_t thread) { return (block + 1) % 4 * 1000 + thread; }

TEST_F(Clusters, SharedMemoryOfANeighbour) {
  check(
      exchange("mapa.shared::cluster.u32 %there, %s, %next; ld.shared::cluster.u32 %r, [%there];"),
      neighbour);
  check(exchange("cvta.shared.u64 %g, %w0; cvt.u64.u32 %g, %s; cvta.shared.u64 %g, %g;"
                 "mapa.u64 %h, %g, %next; ld.u32 %r, [%h];"),
        neighbour);
  check(exchange("mapa.shared::cluster.u32 %there, %s, %next;"
                 "ld.acquire.cluster.shared::cluster.u32 %r, [%there];"),
        neighbour);
  check(exchange("mapa.shared::cluster.u32 %there, %s, %next; cvt.u64.u32 %g, %there;"
                 "cvta.shared::cluster.u64 %g, %g; ld.u32 %r, [%g];"),
        neighbour);
  // Symbols and offsets: the last thread's word of the neighbour.
  check(exchange("mapa.shared::cluster.u32 %there, own + 4, %next;"
                 "ld.shared::cluster.u32 %r, [%there + 248];"),
        [](uint32_t block, uint32_t) { return neighbour(block, 63); });
  // A plain address in the cluster's window is the block's own.
  check(exchange("ld.shared::cluster.u32 %r, [own + 12];"),
        [](uint32_t block, uint32_t) { return block % 4 * 1000 + 3; });
}

TEST_F(Clusters, StoresAndAtomicsReachANeighbour) {
  check(
      "mad.lo.u32 %r, %rank, 1000, %t; shl.b32 %there, %t, 2; add.u32 %s, %s, %there;"
      "mapa.shared::cluster.u32 %there, %s, %next; st.shared::cluster.u32 [%there], %r;" +
          std::string(kSync) + "ld.shared.u32 %r, [%s];",
      [](uint32_t block, uint32_t thread) { return (block + 3) % 4 * 1000 + thread; });
  const std::string zero = "@%first st.shared.u32 [own], 0;" + std::string(kSync);
  // Every thread of the cluster adds its rank + 1 to each block's counter in turn.
  const std::string everywhere =
      "mov.u32 %spin, 0; add.u32 %block, %rank, 1;\n"
      "again: mapa.shared::cluster.u32 %there, %s, %spin;\n"
      "red.relaxed.cluster.shared::cluster.add.u32 [%there], %block;\n"
      "add.u32 %spin, %spin, 1; setp.lt.u32 %p, %spin, %size; @%p bra again;\n";
  check(zero + everywhere + kSync + "ld.shared.u32 %r, [own];",
        [](uint32_t, uint32_t) { return 64 * (1 + 2 + 3 + 4); });
  check(zero +
            "mapa.shared::cluster.u32 %there, %s, 0; mov.u32 %r, 0;"
            "@%first atom.acq_rel.cluster.shared::cluster.add.u32 %r, [%there], 1;"
            "@%first mapa.u64 %g, %w0, 0; @%first cvt.u64.u32 %g, %there;"
            "@%first cvta.shared::cluster.u64 %g, %g; @%first atom.add.u32 %spin, [%g], 10;" +
            std::string(kSync) + "ld.shared::cluster.u32 %r, [%there];",
        [](uint32_t, uint32_t) { return 44; });
}

TEST_F(Clusters, AnAddressTellsWhoseItIs) {
  const std::string mapped = "mapa.shared::cluster.u32 %there, %s, %next;";
  check(mapped + "getctarank.shared::cluster.u32 %r, %there;",
        [](uint32_t block, uint32_t) { return (block + 1) % 4; });
  check(mapped + "cvt.u64.u32 %g, %there; cvta.shared::cluster.u64 %g, %g; getctarank.u64 %r, %g;",
        [](uint32_t block, uint32_t) { return (block + 1) % 4; });
  check("getctarank.shared::cluster.u32 %r, %s;",
        [](uint32_t block, uint32_t) { return block % 4; });
  const auto is_space = [](const std::string& rank, const std::string& space) {
    return "cvt.u64.u32 %g, %s; cvta.shared.u64 %g, %g; mapa.u64 %h, %g, " + rank + "; isspacep." +
           space + " %p, %h; selp.b32 %r, 1, 0, %p;";
  };
  check(is_space("%next", "shared::cluster"), [](uint32_t, uint32_t) { return 1; });
  check(is_space("%next", "shared::cta"), [](uint32_t, uint32_t) { return 0; });
  check(is_space("%rank", "shared"), [](uint32_t, uint32_t) { return 1; });
  check(is_space("%next", "global"), [](uint32_t, uint32_t) { return 0; });
  check("isspacep.shared::cluster %p, %out; selp.b32 %r, 1, 0, %p;",
        [](uint32_t, uint32_t) { return 0; });
}

TEST_F(Clusters, TheBarrierWaitsForAllThatLive) {
  // Threads of one block leave early: the others do not wait for them.
  check(
      "setp.ge.u32 %p, %t, 40; setp.eq.u32 %q, %rank, 1; and.pred %p, %p, %q;"
      "mov.u32 %r, 7; @%p st.global.u32 [%out], %r; @%p exit;"
      "st.shared.u32 [own], %rank;" +
          std::string(kSync) +
          "mapa.shared::cluster.u32 %there, %s, %next; ld.shared::cluster.u32 %r, [%there];" +
          kSync,
      [](uint32_t block, uint32_t thread) {
        return block % 4 == 1 && thread >= 40 ? 7 : (block + 1) % 4;
      });
  // A thread that arrived and left does not count for one that has not arrived: the first block's
  // threads leave after their arrival, the others see all stores.
  check(
      "mad.lo.u32 %r, %rank, 1000, %t; shl.b32 %there, %t, 2; add.u32 %s, %s, %there;"
      "st.shared.u32 [%s], %r; setp.eq.u32 %p, %rank, 0; barrier.cluster.arrive.release;"
      "@%p st.global.u32 [%out], %r; @%p exit; barrier.cluster.wait.acquire;"
      "mapa.shared::cluster.u32 %there, %s, %next; ld.shared::cluster.u32 %r, [%there];",
      [](uint32_t block, uint32_t thread) {
        return block % 4 == 0 ? thread : neighbour(block, thread);
      });
  // Phases follow each other: a ring that passes a number on, one step in each.
  check("st.shared.u32 [own], %rank; mov.u32 %spin, 0;" + std::string(kSync) +
            "again: mapa.shared::cluster.u32 %there, %s, %next;"
            "ld.shared::cluster.u32 %r, [%there];" +
            kSync + "st.shared.u32 [own], %r;" + kSync +
            "add.u32 %spin, %spin, 1; setp.lt.u32 %p, %spin, 9; @%p bra again;",
        [](uint32_t block, uint32_t) { return (block + 9) % 4; });
}

TEST_F(Clusters, LanesMayArriveApart) {
  check(
      "and.b32 %spin, %t, 1; setp.eq.u32 %p, %spin, 0; st.shared.u32 [own], %rank;"
      "@%p bra even; barrier.cluster.arrive; barrier.cluster.wait; bra.uni both;\n"
      "even: barrier.cluster.arrive; barrier.cluster.wait;\n"
      "both: mapa.shared::cluster.u32 %there, %s, %next; ld.shared::cluster.u32 %r, [%there];" +
          std::string(kSync),
      [](uint32_t block, uint32_t) { return (block + 1) % 4; });
}

TEST_F(Clusters, ABlockMaySpinForANeighbour) {
  // A token goes round: each block's first thread waits for its own flag, then sets the next.
  check("setp.ne.u32 %p, %t, 0; @%first st.shared.u32 [own], 0;" + std::string(kSync) +
            "mov.u32 %r, 0; @%p bra done; setp.eq.u32 %q, %rank, 0; @%q bra pass;\n"
            "wait: ld.acquire.cluster.shared::cluster.u32 %r, [own];"
            "setp.eq.u32 %q, %r, 0; @%q bra wait;\n"
            "pass: add.u32 %r, %r, 1; mapa.shared::cluster.u32 %there, %s, %next;"
            "st.release.cluster.shared::cluster.u32 [%there], %r;\n"
            "done: " +
            kSync + "ld.shared.u32 %r, [own];",
        [](uint32_t block, uint32_t) { return (block + 3) % 4 + 1; });
}

TEST_F(Clusters, MemoryOfNoBlockFaults) {
  EXPECT_EQ(
      fault_of("mapa.shared::cluster.u32 %there, %s, 2; ld.shared::cluster.u32 %r, [%there];").code,
      CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(fault_of("mapa.shared::cluster.u32 %there, %s, 1;"
                     "st.shared::cluster.u32 [%there + 4096], %r;")
                .code,
            CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(fault_of("mapa.shared::cluster.u32 %there, %s, 1;"
                     "ld.shared::cluster.u32 %r, [%there + 2];")
                .code,
            CUDA_ERROR_MISALIGNED_ADDRESS);
  const Fault fault = fault_of("setp.eq.u32 %p, %rank, 1; @%p trap;" + std::string(kSync));
  EXPECT_EQ(fault.code, CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_NE(fault.text.find("block (1,0,0)"), std::string::npos) << fault.text;
}

TEST(ClusterDirectives, AreTold) {
  const auto info = [](const std::string& directives) {
    Device device;
    EXPECT_TRUE(device.load(kernel("", directives))) << device.error.log;
    return device.program->kernels()[0];
  };
  const KernelInfo plain = info("");
  EXPECT_FALSE(plain.explicit_cluster);
  EXPECT_EQ(plain.required_cluster[0], 0u);
  EXPECT_EQ(plain.max_cluster_blocks, 0u);
  const KernelInfo fixed = info(".explicitcluster .reqnctapercluster 4, 2");
  EXPECT_TRUE(fixed.explicit_cluster);
  EXPECT_EQ(fixed.required_cluster[0], 4u);
  EXPECT_EQ(fixed.required_cluster[1], 2u);
  EXPECT_EQ(fixed.required_cluster[2], 1u);
  EXPECT_EQ(info(".maxclusterrank 4").max_cluster_blocks, 4u);
}

}  // namespace
}  // namespace openmps::softgpu::test
