// SPDX-License-Identifier: Apache-2.0
// The generated entry points, on the small description golden/mini.toml: first call, connected
// mode, pass-through, stubs, per-thread variants and aliases. The hand-written side is faked here.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <new>
#include <string>
#include <utility>

#include "api/client_impl.h"
#include "api/prototypes.h"

namespace openmps::client {
namespace {

enum class Choice { kNothing, kThrow, kRemote, kPassThrough };
Choice g_choice = Choice::kNothing;
int g_resolved = 0;
DriverTable g_below = {};

CUstream g_stream = nullptr;  // what the hand-written function was given
bool g_per_thread = false;    // whether it ran in a DefaultStreamScope
int g_calls = 0;
CUlaunchConfig g_config = {};
std::pair<DriverSymbol, CUresult> g_failed = {};
std::string g_reason;
int g_recorded = 0;
constexpr uint64_t kThrowingEvent = 0x77;

}  // namespace

constinit std::atomic<uint32_t> g_attention{0};

void resolve_mode() {
  ++g_resolved;
  if (g_choice == Choice::kThrow) throw std::bad_alloc();
  if (g_choice == Choice::kRemote) install_remote_entries();
  if (g_choice == Choice::kPassThrough) install_pass_through_entries(g_below);
}

void call_failed(DriverSymbol symbol, CUresult result) { g_failed = {symbol, result}; }
void call_succeeded(DriverSymbol symbol) {
  if (symbol == DriverSymbol::cuInit) ++g_recorded;
}
CUresult before_call(DriverSymbol) {
  return g_attention == kMemoryIsShort ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}
CUresult result_of_exception() noexcept { return CUDA_ERROR_UNKNOWN; }
void explain_failure(const char* reason) { g_reason = reason; }

namespace impl {

CUresult cuInit(unsigned int flags) {
  ++g_calls;
  return flags == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuEventRecord(CUevent event, CUstream stream) {
  if (event == reinterpret_cast<CUevent>(kThrowingEvent)) throw std::bad_alloc();
  g_stream = stream;
  g_per_thread = per_thread_default_stream();
  return CUDA_SUCCESS;
}
CUresult cuMemsetD8_v2(CUdeviceptr, unsigned char, size_t) {
  ++g_calls;
  g_per_thread = per_thread_default_stream();
  return CUDA_SUCCESS;
}
CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction, void**, void**) {
  g_config = *config;
  return CUDA_SUCCESS;
}

}  // namespace impl

namespace {

// The entries are state of the process that can only move forward: one test, in order.
TEST(ClientEntry, LifeOfTheEntries) {
  // A resolve_mode() that installs nothing must not recurse.
  EXPECT_EQ(::cuInit(0), CUDA_ERROR_NOT_INITIALIZED);
  EXPECT_EQ(g_resolved, 1);
  g_choice = Choice::kThrow;
  EXPECT_EQ(::cuInit(0), CUDA_ERROR_UNKNOWN) << "what result_of_exception() said";
  EXPECT_EQ(g_resolved, 2);

  g_choice = Choice::kRemote;
  EXPECT_EQ(::cuInit(0), CUDA_SUCCESS);
  EXPECT_EQ(::cuInit(1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(g_calls, 2);
  EXPECT_EQ(g_resolved, 3) << "the second call goes straight to the implementation";

  // What cuGetProcAddress hands out reports failures, too.
  EXPECT_EQ(g_failed, std::pair(DriverSymbol::cuInit, CUDA_ERROR_INVALID_VALUE));
  g_failed = {};
  const auto init = static_cast<uint16_t>(DriverSymbol::cuInit);
  const auto found = reinterpret_cast<CUresult (*)(unsigned)>(entry_target(init));
  EXPECT_EQ(found(0), CUDA_SUCCESS);
  EXPECT_EQ(g_failed, std::pair(DriverSymbol{}, CUDA_SUCCESS)) << "a success is no failure";
  EXPECT_EQ(found(1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(g_failed, std::pair(DriverSymbol::cuInit, CUDA_ERROR_INVALID_VALUE));
  EXPECT_EQ(entry_target(kDriverSymbolCount), nullptr);
  EXPECT_EQ(g_recorded, 0) << "nobody asked for a record";
  g_attention = kCallsAreRecorded;
  EXPECT_EQ(found(1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(g_recorded, 0) << "a failure is not recorded";
  EXPECT_EQ(found(0), CUDA_SUCCESS);
  EXPECT_EQ(g_recorded, 1);

  // Without memory nothing begins.
  g_attention = kMemoryIsShort;
  const int calls = g_calls;
  EXPECT_EQ(found(0), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(g_calls, calls);
  g_attention = 0;

  // An exception ends in the entry, as do those of variants.
  const auto throwing = reinterpret_cast<CUevent>(kThrowingEvent);
  EXPECT_EQ(::cuEventRecord(throwing, nullptr), CUDA_ERROR_UNKNOWN);
  EXPECT_EQ(g_failed, std::pair(DriverSymbol::cuEventRecord, CUDA_ERROR_UNKNOWN));
  EXPECT_EQ(::cuEventRecord_ptsz(throwing, nullptr), CUDA_ERROR_UNKNOWN);

  EXPECT_EQ(::cuNever(1), CUDA_ERROR_NOT_FOUND) << "the result that the description gives";
  EXPECT_EQ(g_failed, std::pair(DriverSymbol::cuNever, CUDA_ERROR_NOT_FOUND));
  EXPECT_NE(g_reason, "");
  EXPECT_EQ(::cuLater(), CUDA_ERROR_NOT_SUPPORTED) << "the default";

  // Streams of variants.
  const auto stream = reinterpret_cast<CUstream>(0x50);
  EXPECT_EQ(::cuEventRecord(nullptr, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(g_stream, nullptr);
  EXPECT_EQ(::cuEventRecord_ptsz(nullptr, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(g_stream, CU_STREAM_PER_THREAD);
  EXPECT_EQ(::cuEventRecord_ptsz(nullptr, stream), CUDA_SUCCESS);
  EXPECT_EQ(g_stream, stream);
  EXPECT_FALSE(g_per_thread);

  EXPECT_EQ(::cuMemsetD8_v2_ptds(0, 0, 0), CUDA_SUCCESS);
  EXPECT_TRUE(g_per_thread);
  EXPECT_FALSE(per_thread_default_stream()) << "the scope ended";
  EXPECT_EQ(::cuMemsetD8(0, 0, 0), CUDA_SUCCESS) << "the alias";
  EXPECT_FALSE(g_per_thread);

  CUlaunchConfig config = {};
  config.gridDimX = 3;
  EXPECT_EQ(::cuLaunchKernelEx_ptsz(&config, nullptr, nullptr, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(g_config.hStream, CU_STREAM_PER_THREAD);
  EXPECT_EQ(g_config.gridDimX, 3u);
  EXPECT_EQ(config.hStream, nullptr) << "the program's structure is untouched";
  EXPECT_EQ(::cuLaunchKernelEx_ptsz(nullptr, nullptr, nullptr, nullptr), CUDA_ERROR_INVALID_VALUE);

  // Pass-through: the driver's own function, also as the entry's target.
  g_below.cuInit = [](unsigned int) { return CUDA_ERROR_NO_DEVICE; };
  install_pass_through_entries(g_below);
  EXPECT_EQ(::cuInit(0), CUDA_ERROR_NO_DEVICE);
  EXPECT_EQ(entry_target(init), reinterpret_cast<void*>(g_below.cuInit));
  EXPECT_EQ(::cuEventRecord(nullptr, nullptr), CUDA_ERROR_NOT_SUPPORTED)
      << "a function that the driver below lacks";
  EXPECT_EQ(g_resolved, 3);
}

}  // namespace
}  // namespace openmps::client
