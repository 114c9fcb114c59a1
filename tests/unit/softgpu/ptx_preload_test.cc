// SPDX-License-Identifier: Apache-2.0
// libsoftgpu-ptx.so before the compilers (fake_compilers.h): which options reach them, and what a
// program gets when it asks for machine code.
#include <gtest/gtest.h>

#include "fake_compilers.h"

namespace {

using Options = std::vector<std::string>;

Options compiled_with(std::vector<const char*> options) {
  EXPECT_EQ(nvrtcCompileProgram(nullptr, static_cast<int>(options.size()), options.data()), 0);
  return fake_compilers()->options;
}

TEST(PtxPreload, RealArchitecturesBecomeVirtualOnes) {
  EXPECT_EQ(compiled_with({"--gpu-architecture=sm_90", "-I/sm_90/arch=sm_1"}),
            (Options{"--gpu-architecture=compute_90", "-I/sm_90/arch=sm_1"}));
  EXPECT_EQ(compiled_with({"-arch=sm_90a"}), Options{"-arch=compute_90a"});
  EXPECT_EQ(compiled_with({"-arch", "sm_80", "-DX=sm_80", "sm_80"}),
            (Options{"-arch", "compute_80", "-DX=sm_80", "sm_80"}));
}

TEST(PtxPreload, WhatIsNewerThanTheCompilerBecomesItsNewest) {
  EXPECT_EQ(compiled_with({"-arch=sm_130"}), Options{"-arch=compute_121"});
  EXPECT_EQ(compiled_with({"--gpu-architecture", "compute_130a"}),
            (Options{"--gpu-architecture", "compute_121"}));
  EXPECT_EQ(compiled_with({"-arch=compute_121"}), Options{"-arch=compute_121"});
  EXPECT_EQ(compiled_with({"-arch=newest"}), Options{"-arch=newest"});
  fake_compilers()->architectures.clear();
  EXPECT_EQ(compiled_with({"-arch=sm_130"}), Options{"-arch=compute_130"}) << "it does not say";
  fake_compilers()->architectures = {75, 90, 121};
}

TEST(PtxPreload, OtherOptionsStay) {
  EXPECT_EQ(compiled_with({"-arch=compute_80", "-default-device"}),
            (Options{"-arch=compute_80", "-default-device"}));
  EXPECT_EQ(compiled_with({"-arch=sm_90", "-dlto"}), (Options{"-arch=sm_90", "-dlto"}));
  EXPECT_EQ(compiled_with({}), Options{});
}

TEST(PtxPreload, PtxComesWhereMachineCodeWould) {
  fake_compilers()->machine_code = "";
  fake_compilers()->ptx = "the PTX";
  size_t size = 0;
  ASSERT_EQ(nvrtcGetCUBINSize(nullptr, &size), 0);
  ASSERT_EQ(size, sizeof "the PTX");
  std::string code(size, '?');
  ASSERT_EQ(nvrtcGetCUBIN(nullptr, code.data()), 0);
  EXPECT_STREQ(code.c_str(), "the PTX");
}

TEST(PtxPreload, MachineCodeThatIsThereStays) {
  fake_compilers()->machine_code = "code";
  fake_compilers()->ptx = "the PTX";
  size_t size = 0;
  ASSERT_EQ(nvrtcGetCUBINSize(nullptr, &size), 0);
  ASSERT_EQ(size, sizeof "code");
  std::string code(size, '?');
  ASSERT_EQ(nvrtcGetCUBIN(nullptr, code.data()), 0);
  EXPECT_STREQ(code.c_str(), "code");
  std::string linked(size, '?');
  ASSERT_EQ(__nvJitLinkGetLinkedCubinSize_13_0(nullptr, &size), 0);
  ASSERT_EQ(size, sizeof "code");
  ASSERT_EQ(__nvJitLinkGetLinkedCubin_13_0(nullptr, linked.data()), 0);
  EXPECT_STREQ(linked.c_str(), "code");
}

// Their own errors come back: a null pointer, and a program of which nothing was made.
TEST(PtxPreload, ErrorsStay) {
  fake_compilers()->machine_code = fake_compilers()->ptx = "";
  size_t size = 5;
  EXPECT_EQ(nvrtcGetCUBINSize(nullptr, nullptr), 3);
  EXPECT_EQ(nvrtcGetCUBINSize(nullptr, &size), 0);
  EXPECT_EQ(size, 0u);
  EXPECT_EQ(__nvJitLinkGetLinkedCubinSize_13_0(nullptr, &size), 3);
}

TEST(PtxPreload, LinkersThatOptimiseStopAtPtx) {
  const char* options[] = {"-lto", "-arch=sm_90"};
  void* handle = nullptr;
  ASSERT_EQ(__nvJitLinkCreate_13_0(&handle, 2, options), 0);
  EXPECT_EQ(handle, fake_compilers());
  EXPECT_EQ(fake_compilers()->options, (Options{"-lto", "-arch=sm_90", "-ptx"}));
  fake_compilers()->machine_code = "";
  fake_compilers()->ptx = "linked";
  size_t size = 0;
  ASSERT_EQ(__nvJitLinkGetLinkedCubinSize_13_0(handle, &size), 0);
  ASSERT_EQ(size, sizeof "linked");
  std::string code(size, '?');
  ASSERT_EQ(__nvJitLinkGetLinkedCubin_13_0(handle, code.data()), 0);
  EXPECT_STREQ(code.c_str(), "linked");

  const char* plain[] = {"-arch=sm_90"};
  ASSERT_EQ(__nvJitLinkCreate_13_0(&handle, 1, plain), 0);
  EXPECT_EQ(fake_compilers()->options, Options{"-arch=sm_90"});
  const char* asked[] = {"-lto", "-ptx"};
  ASSERT_EQ(__nvJitLinkCreate_13_0(&handle, 2, asked), 0);
  EXPECT_EQ(fake_compilers()->options, (Options{"-lto", "-ptx"}));
}

TEST(PtxPreload, ACompilerThatIsNotThereIsAnError) {
  void* handle = nullptr;
  EXPECT_EQ(__nvJitLinkCreate_12_4(&handle, 0, nullptr), 6);
}

}  // namespace
