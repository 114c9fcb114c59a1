// SPDX-License-Identifier: Apache-2.0
// mbarriers, asynchronous copies and bulk copies, within a block and across a cluster, against what
// the PTX ISA says of them.
#include <gtest/gtest.h>

#include <bit>
#include <functional>

#include "engine_fixture.h"

namespace openmps::softgpu::test {
namespace {

// Each thread stores %r of 64. `in` has 1,024 words. %b is an mbarrier that is not initialised yet,
// %m what `box` (1,024 bytes) is at. %next is the rank of the next block.
std::string kernel(const std::string& body) {
  return ".version 8.6\n.target sm_90\n.address_size 64\n"
         ".visible .entry k(.param .u64 out, .param .u64 in) {\n"
         "  .shared .align 128 .b8 box[1024]; .shared .align 8 .b64 bar;\n"
         "  .reg .b64 %out, %in, %at, %g, %h, %token, %policy; .reg .pred %p, %q, %first;\n"
         "  .reg .b32 %r, %s, %t, %b, %m, %rank, %size, %next, %there, %bytes; .reg .b16 %mask;\n"
         "  ld.param.u64 %out, [out]; ld.param.u64 %in, [in]; mov.u32 %t, %tid.x;\n"
         "  mov.u32 %s, %ctaid.x; mad.lo.u32 %s, %s, 64, %t; mul.wide.u32 %at, %s, 4;\n"
         "  add.s64 %out, %out, %at; mov.u32 %b, bar; mov.u32 %m, box; setp.eq.u32 %first, %t, 0;\n"
         "  mov.u32 %rank, %cluster_ctarank; mov.u32 %size, %cluster_nctarank; mov.u32 %r, -1;\n"
         "  add.u32 %next, %rank, 1; setp.eq.u32 %p, %next, %size; selp.b32 %next, 0, %next, %p;\n"
         "  shl.b32 %s, %t, 2; add.u32 %s, %s, %m;\n" +
         body + "\n  st.global.u32 [%out], %r;\n  ret;\n}\n";
}

// A barrier of `count` arrivals that all threads of the cluster see.
std::string barrier_of(const char* count) {
  return std::string("@%first mbarrier.init.shared.b64 [%b], ") + count +
         ";\n@%first fence.mbarrier_init.release.cluster;\n"
         "barrier.cluster.arrive; barrier.cluster.wait;\n";
}
constexpr char kWait[] =
    "wait: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p, [%b], 0; @!%p bra wait;\n";
constexpr char kSync[] = "barrier.cluster.arrive; barrier.cluster.wait;\n";

class Async : public testing::Test {
 protected:
  void SetUp() override {
    for (uint32_t i = 0; i < 1024; ++i) in.push_back(i * 0x01010101 + 7);
  }
  // `expected` of (block, thread); `in` is writable and as it was before each run.
  void check(const std::string& body, const std::function<uint32_t(uint32_t, uint32_t)>& expected,
             uint32_t blocks = 1, uint32_t cluster = 1,
             const std::function<uint32_t(uint32_t)>& expected_in = nullptr) {
    Device device;
    ASSERT_TRUE(device.load(kernel(body))) << device.error.log;
    ASSERT_EQ(device.unsupported(), "") << body;
    device.cluster = {cluster};
    for (uint64_t seed = 0; seed <= 6; ++seed) {
      std::vector<uint32_t> out(blocks * 64, 12345), words = in;
      const Outcome outcome = device.run(
          "k", {blocks}, {64}, Parameters().add(device.buffer(out)).add(device.buffer(words)), 0,
          seed, 5000, 1000);
      ASSERT_EQ(outcome.state, BlockState::kFinished) << body << " " << outcome.fault.text;
      for (uint32_t i = 0; i < out.size(); ++i) {
        ASSERT_EQ(out[i], expected(i / 64, i % 64))
            << body << ", block " << i / 64 << ", thread " << i % 64 << ", seed " << seed;
      }
      for (uint32_t i = 0; expected_in && i < words.size(); ++i) {
        ASSERT_EQ(words[i], expected_in(i)) << body << ", word " << i << ", seed " << seed;
      }
      device.memory.remove(out.data());
      device.memory.remove(words.data());
    }
  }
  CUresult fault_of(const std::string& body) {
    Device device;
    EXPECT_TRUE(device.load(kernel(body))) << device.error.log;
    EXPECT_EQ(device.unsupported(), "");
    std::vector<uint32_t> out(64);
    const Outcome outcome =
        device.run("k", {1}, {64}, Parameters().add(device.buffer(out)).add(device.buffer(in)));
    EXPECT_EQ(outcome.state, BlockState::kFaulted) << body;
    return outcome.fault.code;
  }
  std::vector<uint32_t> in;
};

using Number = std::function<uint32_t(uint32_t, uint32_t)>;
Number always(uint32_t value) {
  return [value](uint32_t, uint32_t) { return value; };
}

// One thread acts on a barrier of its own and tells in %r; `body` has %p, %q, %token.
std::string alone(const std::string& body) {
  return "@!%first bra out;\n" + body + "\nout: bar.sync 0; @!%first mov.u32 %r, 0;";
}
Number of_first(uint32_t value) {
  return [value](uint32_t, uint32_t thread) { return thread == 0 ? value : 0; };
}

TEST_F(Async, PhasesOfABarrier) {
  const std::string count_ready = "selp.b32 %s, 1, 0, %p; mad.lo.u32 %r, %r, 10, %s;\n";
  const auto test_token = [&] {
    return "mbarrier.test_wait.shared.b64 %p, [%b], %token;\n" + count_ready;
  };
  const auto test_parity = [&](const char* parity) {
    return std::string("mbarrier.test_wait.parity.shared.b64 %p, [%b], ") + parity + ";\n" +
           count_ready;
  };
  const std::string two = "mov.u32 %r, 0; mbarrier.init.shared.b64 [%b], 2;\n";
  const std::string arrive = "mbarrier.arrive.shared.b64 %token, [%b];\n";
  // The token of a phase is ready when that phase is over; the parity of the one before at once.
  check(alone(two + test_parity("1") + test_parity("0") + arrive + test_token() + arrive +
              test_token() + test_parity("0") + test_parity("1")),
        of_first(100110));
  check(alone(two + "mbarrier.arrive.shared.b64 %token, [%b], 2;" + test_token()), of_first(1));
  check(alone(two + "mbarrier.arrive.noComplete.release.cta.shared::cta.b64 %token, [%b], 1;" +
              test_token() + arrive + test_token()),
        of_first(1));
  // Later phases do not wait for threads that have dropped out.
  check(alone(two + "mbarrier.arrive_drop.shared.b64 %token, [%b];" + arrive + test_token() +
              arrive + test_token()),
        of_first(11));
  check(alone(two + arrive + "mbarrier.pending_count.b64 %r, %token;"), of_first(2));
  check(alone(two + arrive + arrive + arrive + arrive + "mbarrier.pending_count.b64 %r, %token;"),
        of_first(1));
  // Without a space the address is generic.
  check(
      alone("mov.u32 %r, 0; cvt.u64.u32 %g, %b; cvta.shared.u64 %g, %g; mbarrier.init.b64 [%g], 1;"
            "mbarrier.arrive.b64 %token, [%g]; mbarrier.test_wait.b64 %p, [%g], %token;" +
            count_ready + "mbarrier.inval.b64 [%g];"),
      of_first(1));
}

TEST_F(Async, TransactionsOfABarrier) {
  const std::string ready =
      "mbarrier.try_wait.parity.shared::cta.b64 %p, [%b], 0, 1000;"
      "selp.b32 %s, 1, 0, %p; mad.lo.u32 %r, %r, 10, %s;\n";
  const std::string one = "mov.u32 %r, 0; mbarrier.init.shared.b64 [%b], 1;\n";
  const auto complete = [](const char* bytes) {
    return std::string("mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%b], ") + bytes + ";\n";
  };
  check(alone(one + "mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 %token, [%b], 48;" +
              ready + complete("16") + ready + complete("32") + ready),
        of_first(1));
  check(alone(one +
              "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%b], 16;"
              "mbarrier.arrive.shared::cta.b64 _, [%b];" +
              ready + complete("16") + ready),
        of_first(1));
  // What comes before it is announced counts, too.
  check(alone(one + complete("16") + ready +
              "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%b], 16;" + ready),
        of_first(1));
  check(alone("mov.u32 %r, 0; mbarrier.init.shared.b64 [%b], 2;"
              "mbarrier.arrive_drop.expect_tx.release.cta.shared::cta.b64 _, [%b], 16;"
              "mbarrier.arrive.shared.b64 _, [%b];" +
              ready + complete("16") + ready +
              "mbarrier.arrive.shared.b64 %token, [%b];"
              "mbarrier.test_wait.shared.b64 %p, [%b], %token; selp.b32 %s, 1, 0, %p;"
              "mad.lo.u32 %r, %r, 10, %s;"),
        of_first(11));
}

TEST_F(Async, ThreadsOfOtherBlocksArrive) {
  // Each thread stores into the next block, then arrives at that block's barrier.
  const auto expected = [](uint32_t block, uint32_t thread) {
    return (block + 3) % 4 * 100 + thread;
  };
  const std::string store =
      barrier_of("64") +
      "mapa.shared::cluster.u32 %there, %s, %next; mad.lo.u32 %r, %rank, 100, %t;"
      "st.shared::cluster.u32 [%there], %r; mapa.shared::cluster.u32 %there, %b, %next;\n";
  const std::string load = std::string(kWait) + "ld.shared.u32 %r, [%s];" + kSync;
  check(store + "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%there];" + load, expected,
        4, 4);
  check(store +
            "mbarrier.arrive.expect_tx.release.cluster.shared::cluster.b64 _, [%there], 4;"
            "mbarrier.complete_tx.relaxed.cluster.shared::cluster.b64 [%there], 4;" +
            load,
        expected, 4, 4);
  // Stores that complete at the mbarrier.
  const std::string announce =
      barrier_of("1") +
      "@%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [%b], 256;"
      "mapa.shared::cluster.u32 %there, %s, %next; mad.lo.u32 %r, %rank, 100, %t;"
      "mov.u32 %m, %there; mapa.shared::cluster.u32 %there, %b, %next;";
  check(announce +
            "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%m], %r, [%there];" +
            load,
        expected, 4, 4);
  check(
      announce +
          "and.b32 %bytes, %t, 3; setp.ne.u32 %q, %bytes, 0; add.u32 %bytes, %r, 1;"
          "@!%q st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.u32 [%m], "
          "{%r, %bytes, %r, %bytes}, [%there];" +
          load,
      [](uint32_t block, uint32_t thread) {
        return (block + 3) % 4 * 100 + (thread & ~3u) + (thread & 1);
      },
      4, 4);
  check("st.shared.u32 [%s], 0;" + announce +
            "mapa.shared::cluster.u32 %m, box, %next;"
            "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 "
            "[%m], %t, [%there];" +
            kWait + "ld.shared.u32 %r, [box];" + kSync,
        always(63 * 64 / 2), 4, 4);
}

TEST_F(Async, CopiesOfThreads) {
  const std::string here = "add.s64 %in, %in, %at; mov.u32 %r, 9; st.shared.u32 [%s], %r;";
  const auto load = [](const std::string& copy) {
    return copy + "cp.async.commit_group; cp.async.wait_group 0; ld.shared.u32 %r, [%s];";
  };
  const Number word = [this](uint32_t, uint32_t thread) { return in[thread]; };
  check(here + load("cp.async.ca.shared.global [%s], [%in], 4;"), word);
  check(here + load("createpolicy.fractional.L2::evict_first.b64 %policy, 1.0;"
                    "cp.async.ca.shared.global.L2::cache_hint [%s], [%in], 4, %policy;"),
        word);
  check(here + load("add.u32 %there, %s, 8; cp.async.ca.shared.global [%there + -8], [%in], 4;"),
        word);
  check(here + load("mov.u32 %bytes, 2; cp.async.ca.shared.global [%s], [%in], 4, %bytes;"),
        [this](uint32_t, uint32_t thread) { return in[thread] & 0xffff; });
  check(here + load("setp.gt.u32 %q, %t, 9; cp.async.ca.shared.global [%s], [%in], 4, %q;"),
        [this](uint32_t, uint32_t thread) { return thread > 9 ? 0 : in[thread]; });
  // An address of which nothing is read may be any.
  const std::string nowhere = "setp.gt.u32 %q, %t, 9; @%q mov.u64 %in, 0x1001;";
  check(here + nowhere + load("cp.async.ca.shared.global [%s], [%in], 4, %q;"),
        [this](uint32_t, uint32_t thread) { return thread > 9 ? 0 : in[thread]; });
  check(here + nowhere +
            load("selp.b32 %bytes, 0, 3, %q; cp.async.ca.shared.global [%s], [%in], 4, %bytes;"),
        [this](uint32_t, uint32_t thread) { return thread > 9 ? 0 : in[thread] & 0xffffff; });
  check(barrier_of("64") + here +
            "cp.async.ca.shared.global [%s], [%in], 4; cp.async.mbarrier.arrive.noinc.shared.b64 "
            "[%b];" +
            kWait + "ld.shared.u32 %r, [%s];",
        word);
  check(barrier_of("64") + here +
            "cp.async.ca.shared.global [%s], [%in], 4; cp.async.mbarrier.arrive.shared.b64 [%b];"
            "mbarrier.arrive.shared.b64 _, [%b];" +
            kWait + "ld.shared.u32 %r, [%s];",
        word);
}

// The last words of an allocation, as the tail of a matrix is copied.
TEST_F(Async, CopiesReadNothingBehindTheirSize) {
  Device device;
  const std::string copy =
      "shl.b32 %m, %t, 4; mov.u32 %b, box; add.u32 %m, %m, %b;"
      "cp.async.cg.shared.global [%m], [%in + 16], 16, %bytes; cp.async.wait_all;"
      "ld.shared.u32 %r, [%m + 4]; ld.shared.u32 %s, [%m]; add.u32 %r, %r, %s;";
  for (const bool fits : {true, false}) {
    ASSERT_TRUE(device.load(kernel((fits ? "mov.u32 %bytes, 4;" : "mov.u32 %bytes, 5;") + copy)))
        << device.error.log;
    std::vector<uint32_t> out(64), words = {1, 2, 3, 4, 5};
    const Outcome outcome =
        device.run("k", {1}, {64}, Parameters().add(device.buffer(out)).add(device.buffer(words)));
    if (!fits) {
      EXPECT_EQ(outcome.fault.code, CUDA_ERROR_ILLEGAL_ADDRESS);
      continue;
    }
    ASSERT_EQ(outcome.state, BlockState::kFinished) << outcome.fault.text;
    EXPECT_EQ(out, std::vector<uint32_t>(64, 5));
  }
}

TEST_F(Async, BulkCopies) {
  const std::string announce =
      barrier_of("1") + "@%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [%b], 256;";
  const std::string load = std::string(kWait) + "ld.shared.u32 %r, [%s];";
  const std::string first_only = "@%first cp.async.bulk.";
  const Number word = [this](uint32_t, uint32_t thread) { return in[thread]; };
  for (const char* to : {"shared::cluster", "shared::cta"}) {
    check(announce + first_only + to +
              ".global.mbarrier::complete_tx::bytes [%m], [%in], 256, [%b];" + load,
          word);
  }
  check(announce + "cp.async.bulk.prefetch.L2.global [%in], 256; mov.u64 %policy, 0;" + first_only +
            "shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
            "[%m + 256], [%in + 16], 256, [%b], %policy;" +
            kWait + "ld.shared.u32 %r, [%s + 256];",
        [this](uint32_t, uint32_t thread) { return in[thread + 4]; });
  // To the next block, and its barrier.
  check(
      "mad.lo.u32 %r, %rank, 100, %t; st.shared.u32 [%s], %r; fence.proxy.async.shared::cta;" +
          announce +
          "mapa.shared::cluster.u32 %there, %b, %next; mapa.shared::cluster.u32 %m, box, %next;"
          "@%first cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes "
          "[%m + 512], [box], 256, [%there];" +
          kWait + "ld.shared.u32 %r, [%s + 512];" + kSync,
      [](uint32_t block, uint32_t thread) { return (block + 1) % 2 * 100 + thread; }, 4, 2);
  // Block 1 to blocks 0, 1 and 3 of its cluster, each at its own barrier.
  check(
      "mov.u32 %r, 5; st.shared.u32 [%s], %r;" + barrier_of("1") +
          "setp.ne.u32 %q, %rank, 2;"
          "@!%first bra read; @%q mbarrier.arrive.expect_tx.shared::cta.b64 _, [%b], 256;"
          "setp.ne.u32 %p, %rank, 1; @%p bra read; mov.b16 %mask, 11;"
          "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
          "[%m], [%in], 256, [%b], %mask;\n"
          "read: setp.eq.u32 %q, %rank, 2; @%q bra done;\n" +
          kWait + "done: ld.shared.u32 %r, [%s];" + kSync,
      [this](uint32_t block, uint32_t thread) { return block == 2 ? 5 : in[thread]; }, 4, 4);
  // From shared to global memory.
  check(
      "add.u32 %r, %t, 1; st.shared.u32 [%s], %r; fence.proxy.async.shared::cta; bar.sync 0;"
      "@%first cp.async.bulk.global.shared::cta.bulk_group [%in + 64], [%m], 256;"
      "cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0; cp.async.bulk.wait_group 0;",
      [](uint32_t, uint32_t thread) { return thread + 1; }, 1, 1,
      [this](uint32_t i) { return i >= 16 && i < 80 ? i - 15 : in[i]; });
}

TEST_F(Async, BulkReductions) {
  const std::string mine =
      "add.u32 %r, %t, 1; st.shared.u32 [%s], %r; fence.proxy.async.shared::cta; bar.sync 0;";
  const auto to_global = [&](const std::string& op, const std::string& value = "") {
    return mine + value + "@%first cp.reduce.async.bulk.global.shared::cta.bulk_group." + op +
           " [%in], [%m], 256; cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; mov.u32 %r, "
           "0;";
  };
  const auto first_64 = [this](const std::function<uint32_t(uint32_t, uint32_t)>& f) {
    return [this, f](uint32_t i) { return i < 64 ? f(in[i], i + 1) : in[i]; };
  };
  check(to_global("add.u32"), always(0), 8, 1,
        first_64([](uint32_t old, uint32_t value) { return old + 8 * value; }));
  check(to_global("min.s32"), always(0), 2, 1, first_64([](uint32_t old, uint32_t value) {
          return uint32_t(std::min(int32_t(old), int32_t(value)));
        }));
  check(to_global("or.b32"), always(0), 2, 1,
        first_64([](uint32_t old, uint32_t value) { return old | value; }));
  check(to_global("xor.b64"), always(0), 1, 1,
        first_64([](uint32_t old, uint32_t value) { return old ^ value; }));
  check(to_global("inc.u32"), always(0), 1, 1,
        first_64([](uint32_t old, uint32_t value) { return old >= value ? 0 : old + 1; }));
  for (uint32_t i = 0; i < 64; ++i) in[i] = std::bit_cast<uint32_t>(float(i) + 0.5f);
  check(to_global("add.f32", "cvt.rn.f32.u32 %r, %r; st.shared.f32 [%s], %r; bar.sync 0;"),
        always(0), 4, 1, first_64([](uint32_t old, uint32_t value) {
          return std::bit_cast<uint32_t>(std::bit_cast<float>(old) + 4 * float(value));
        }));
  for (uint32_t i = 0; i < 64; ++i) in[i] = 0x3c004000;  // 1, 2
  check(to_global("add.noftz.f16", "mov.u32 %r, 0x3c003c00; st.shared.u32 [%s], %r; bar.sync 0;"),
        always(0), 2, 1, first_64([](uint32_t, uint32_t) { return 0x42004400u; }));
  // Into the next block's shared memory.
  check(
      mine + barrier_of("1") +
          "@%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [%b], 256;"
          "mapa.shared::cluster.u32 %there, %b, %next; mapa.shared::cluster.u32 %m, box, %next;"
          "mov.u32 %r, 1000; st.shared.u32 [%s + 512], %r;" +
          kSync +
          "@%first cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes."
          "add.u32 [%m + 512], [box], 256, [%there];" +
          kWait + "ld.shared.u32 %r, [%s + 512];" + kSync,
      [](uint32_t, uint32_t thread) { return 1001 + thread; }, 2, 2);
}

TEST_F(Async, BadPlacesFault) {
  const std::string bulk = "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes ";
  const std::string init =
      "@%first mbarrier.init.shared.b64 [%b], 1; bar.sync 0; @!%first bra out;";
  EXPECT_EQ(fault_of(init + bulk + "[%m + 8], [%in], 256, [%b]; out:"),
            CUDA_ERROR_MISALIGNED_ADDRESS);
  EXPECT_EQ(fault_of(init + bulk + "[%m], [%in], 24, [%b]; out:"), CUDA_ERROR_MISALIGNED_ADDRESS);
  EXPECT_EQ(fault_of(init + bulk + "[%m], [%in + 4096], 256, [%b]; out:"),
            CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(fault_of(init + bulk + "[%m], [%in], 4096, [%b]; out:"), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(
      fault_of(init + "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes "
                      "[%m + 256], [%m], 256, [%b]; out:"),
      CUDA_ERROR_ILLEGAL_INSTRUCTION);
  EXPECT_EQ(fault_of("mbarrier.init.b64 [%in], 1;"), CUDA_ERROR_INVALID_ADDRESS_SPACE);
  EXPECT_EQ(fault_of("mbarrier.init.shared.b64 [%b + 4], 1;"), CUDA_ERROR_MISALIGNED_ADDRESS);
}

// Boxes and their swizzles need it: dynamic shared memory begins where its declaration says.
TEST(DynamicShared, IsAligned) {
  Device device;
  ASSERT_TRUE(
      device.load(".version 8.0\n.target sm_90\n.address_size 64\n"
                  ".extern .shared .align 1024 .b8 dynamic[];\n"
                  ".visible .entry k(.param .u64 out) {\n"
                  "  .shared .align 8 .b64 bar; .reg .b64 %out; .reg .b32 %r, %s;\n"
                  "  ld.param.u64 %out, [out]; mov.u32 %r, dynamic; mov.u32 %s, bar;\n"
                  "  st.shared.u32 [%s], %r; st.shared.u32 [%r + 60], %r;\n"
                  "  st.global.u32 [%out], %r; ret;\n}\n"))
      << device.error.log;
  std::vector<uint32_t> out(1, 1);
  const Outcome outcome = device.run("k", {}, {1}, Parameters().add(device.buffer(out)), 64);
  ASSERT_EQ(outcome.state, BlockState::kFinished) << outcome.fault.text;
  EXPECT_EQ(out[0], 1024u);
}

}  // namespace
}  // namespace openmps::softgpu::test
