// SPDX-License-Identifier: Apache-2.0
// Functions that are compiled when they are first needed: a module says the same of its kernels,
// and they compute the same, as if it had been compiled at once; a mistake concerns those that need
// it.
#include <gtest/gtest.h>

#include <thread>

#include "engine_fixture.h"

namespace openmps::softgpu::test {
namespace {

constexpr char kHead[] = ".version 8.3\n.target sm_90\n.address_size 64\n";

// Direct and indirect calls, aliases, recursion, shared variables of the module and of bodies,
// vectors, a table of addresses, and labels.
constexpr char kModule[] = R"(
.shared .align 4 .b8 common[64];
.shared .align 4 .b8 unused[128];
.func (.param .b32 r) add_common(.param .b32 x);
.func (.param .b32 r) twice(.param .b32 x) {
  .reg .b32 %v;
  ld.param.u32 %v, [x]; shl.b32 %v, %v, 1; st.param.b32 [r], %v; ret;
}
.func (.param .b32 r) doubled(.param .b32 x);
.alias doubled, twice;
.global .align 8 .u64 table[2] = {twice, add_common};
.func (.param .b32 r) add_common(.param .b32 x) {
  .reg .b32 %v, %w;
  ld.param.u32 %v, [x]; ld.shared.u32 %w, [common + 4]; add.u32 %v, %v, %w; st.param.b32 [r], %v; ret;
}
.func (.param .b32 r) factorial(.param .b32 n) {
  .reg .b32 %n, %f; .reg .pred %p;
  ld.param.u32 %n, [n]; mov.u32 %f, 1; setp.lt.u32 %p, %n, 2;
  @%p bra DONE;
  sub.u32 %f, %n, 1;
  { .param .b32 a; .param .b32 b; st.param.b32 [a], %f; call.uni (b), factorial, (a); ld.param.b32 %f, [b]; }
  mul.lo.u32 %f, %f, %n;
DONE:
  st.param.b32 [r], %f; ret;
}
.visible .entry calls(.param .u64 out) .maxntid 64 {
  .shared .align 4 .b8 own[40];
  .reg .b64 %d<4>; .reg .b32 %r<6>;
  ld.param.u64 %d1, [out];
  mov.u32 %r1, 5; mov.u32 %r2, 7;
  st.shared.v2.u32 [common], {%r1, %r2};
  st.shared.u32 [own + 36], %r1;
  { .param .b32 a; .param .b32 b; st.param.b32 [a], %r1; call (b), doubled, (a); ld.param.b32 %r3, [b]; }
  { .param .b32 a; .param .b32 b; st.param.b32 [a], %r3; call (b), add_common, (a); ld.param.b32 %r3, [b]; }
  { .param .b32 a; .param .b32 b; st.param.b32 [a], %r1; call (b), factorial, (a); ld.param.b32 %r4, [b]; }
  ld.shared.u32 %r5, [own + 36];
  st.global.v4.u32 [%d1], {%r3, %r4, %r5, %r2};
  ret;
}
.visible .entry indirect(.param .u64 out, .param .u32 which) {
  .reg .b64 %d<6>; .reg .b32 %r<4>;
  ld.param.u64 %d1, [out]; ld.param.u32 %r1, [which];
  mov.u32 %r2, 100; st.shared.u32 [common + 4], %r2; mov.u32 %r2, 21;
  mov.u64 %d2, table; mul.wide.u32 %d3, %r1, 8; add.s64 %d2, %d2, %d3; ld.global.u64 %d4, [%d2];
  { .param .b32 a; .param .b32 b; st.param.b32 [a], %r2;
  proto: .callprototype (.param .b32 _) _ (.param .b32 _);
  call (b), %d4, (a), proto; ld.param.b32 %r3, [b]; }
  st.global.u32 [%d1], %r3;
  ret;
}
.visible .entry plain(.param .u64 out) { .reg .b64 %d; .reg .b32 %r; ld.param.u64 %d, [out]; mov.u32 %r, 3; st.global.u32 [%d], %r; ret; }
)";

class Lazily : public Device {
 public:
  explicit Lazily(const std::string& ptx, size_t most_at_once = 0) {
    good = load(ptx, {.most_at_once = most_at_once});
  }
  bool good;
};

std::vector<uint32_t> run(Device& device, const char* kernel, uint32_t which = 0) {
  std::vector<uint32_t> out(4);
  const Outcome outcome =
      device.run(kernel, {}, {1}, Parameters().add(device.buffer(out)).add(which));
  EXPECT_EQ(outcome.state, BlockState::kFinished) << kernel << ": " << outcome.fault.text;
  device.memory.remove(out.data());
  return out;
}

TEST(LazyCode, ComputesWhatCodeThatIsCompiledAtOnceDoes) {
  Lazily lazy(kHead + std::string(kModule)), whole(kHead + std::string(kModule), SIZE_MAX);
  ASSERT_TRUE(lazy.good && whole.good) << lazy.error.log << whole.error.log;
  EXPECT_EQ(run(lazy, "calls"), (std::vector<uint32_t>{17, 120, 5, 7}));
  EXPECT_EQ(run(whole, "calls"), (std::vector<uint32_t>{17, 120, 5, 7}));
  for (Device* device : {static_cast<Device*>(&lazy), static_cast<Device*>(&whole)}) {
    EXPECT_EQ(run(*device, "indirect", 0)[0], 42u);
    EXPECT_EQ(run(*device, "indirect", 1)[0], 121u);
    EXPECT_EQ(run(*device, "plain")[0], 3u);
  }
  EXPECT_EQ(lazy.unsupported(), "");
}

TEST(LazyCode, SaysTheSameOfItsKernels) {
  Lazily lazy(kHead + std::string(kModule)), whole(kHead + std::string(kModule), SIZE_MAX);
  ASSERT_TRUE(lazy.good && whole.good);
  ASSERT_EQ(lazy.program->kernels().size(), 3u);
  for (uint32_t i = 0; i < 3; ++i) {
    lazy.program->complete(i);
    const KernelInfo &one = lazy.program->kernels()[i], &other = whole.program->kernels()[i];
    EXPECT_EQ(one.name, other.name);
    EXPECT_EQ(one.registers, other.registers) << one.name;
    EXPECT_EQ(one.local_bytes, other.local_bytes) << one.name;
    EXPECT_EQ(one.static_shared_bytes, other.static_shared_bytes) << one.name;
    EXPECT_EQ(one.parameter_bytes, other.parameter_bytes) << one.name;
    EXPECT_EQ(one.max_threads, other.max_threads) << one.name;
    EXPECT_TRUE(one.unusable.empty()) << one.unusable;
  }
  EXPECT_EQ(lazy.program->kernels()[2].static_shared_bytes, 0u);
}

TEST(LazyCode, OfManyThreadsIsCompiledOnce) {
  Lazily lazy(kHead + std::string(kModule));
  ASSERT_TRUE(lazy.good);
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (uint32_t kernel = 0; kernel < 3; ++kernel) {
        lazy.program->complete(kernel);
        right += lazy.program->kernels()[kernel].registers >= 16 ? 1 : 0;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 12);
}

TEST(LazyCode, MistakeInABodyConcernsTheKernelsThatNeedIt) {
  const std::string broken = std::string(kHead) +
                             ".func helper() {\n mov.u32 %nobody, 1;\n ret;\n}\n" + kModule +
                             ".visible .entry needs() { call helper, (); ret; }\n";
  Lazily lazy(broken), whole(broken, SIZE_MAX);
  EXPECT_FALSE(whole.good);
  EXPECT_EQ(whole.error.code, CUDA_ERROR_INVALID_PTX);
  ASSERT_TRUE(lazy.good) << lazy.error.log;
  EXPECT_EQ(run(lazy, "calls")[0], 17u);
  const uint32_t needs = lazy.kernel("needs");
  lazy.program->complete(needs);
  EXPECT_NE(lazy.program->kernels()[needs].unusable.find("line 5"), std::string::npos)
      << lazy.program->kernels()[needs].unusable;
  EXPECT_EQ(lazy.program->kernels()[needs].unusable, whole.error.log);
}

TEST(LazyCode, BodyThatDoesNotEndIsAnErrorOfLoading) {
  Lazily lazy(std::string(kHead) + ".visible .entry k() { .reg .b32 %r; mov.u32 %r, 1;\n");
  EXPECT_FALSE(lazy.good);
  EXPECT_EQ(lazy.error.code, CUDA_ERROR_INVALID_PTX);
}

}  // namespace
}  // namespace openmps::softgpu::test
