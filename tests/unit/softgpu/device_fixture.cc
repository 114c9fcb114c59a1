// SPDX-License-Identifier: Apache-2.0
// The shared fixture, and the environment that describes the machine before cuInit reads it.
#include "device_fixture.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

namespace openmps::softgpu::testing {
namespace {

constexpr const char* kTraceVariable = "SOFTGPU_TRACE";
constexpr const char* kTracePrefix = "/tmp/softgpu-trace-";
std::string trace_path() { return kTracePrefix + std::to_string(getpid()); }

// A death test starts this program anew, which ends there without TearDown().
bool is_in_death_test() {
  const char* inherited = getenv(kTraceVariable);
  return inherited != nullptr && std::string(inherited).starts_with(kTracePrefix);
}

// Each run has a device of its own and leaves nothing behind.
class Machine : public ::testing::Environment {
 public:
  void SetUp() override {
    setenv("SOFTGPU_SMS", std::to_string(kSms).c_str(), 1);
    setenv("SOFTGPU_MEMORY", "256M", 1);
    setenv("SOFTGPU_DEVICES", std::to_string(kDevices).c_str(), 1);
    setenv("SOFTGPU_CC", "9.0", 1);
    setenv("SOFTGPU_LOADING_WAITS", "1", 1);
    setenv("SOFTGPU_STREAM_LOTS", "1", 1);
    setenv("SOFTGPU_STREAM_ITEMS", std::to_string(kStreamItems).c_str(), 1);
    if (is_in_death_test()) {
      unsetenv(kTraceVariable);  // and on its parent's device, which goes with the parent
    } else {
      setenv("SOFTGPU_DEVICE", ("softgpu-unit-" + std::to_string(getpid())).c_str(), 1);
      setenv(kTraceVariable, trace_path().c_str(), 1);
    }
    unsetenv("CUDA_VISIBLE_DEVICES");
    ASSERT_CU(cuInit(0));
  }
  void TearDown() override { unlink(trace_path().c_str()); }
};

[[maybe_unused]] ::testing::Environment* const machine =
    ::testing::AddGlobalTestEnvironment(new Machine);

std::string text_field(const std::string& line, const std::string& key) {
  size_t at = line.find("\"" + key + "\":\"");
  if (at == std::string::npos) return "";
  at += key.size() + 4;
  return line.substr(at, line.find('"', at) - at);
}

uint64_t number_field(const std::string& line, const std::string& key) {
  size_t at = line.find("\"" + key + "\":");
  return at == std::string::npos ? 0 : strtoull(line.c_str() + at + key.size() + 3, nullptr, 10);
}

size_t trace_size() {
  struct stat facts {};
  return stat(trace_path().c_str(), &facts) == 0 ? static_cast<size_t>(facts.st_size) : 0;
}

}  // namespace

void DeviceTest::SetUp() {
  trace_begin_ = trace_size();
  ASSERT_CU(cuCtxCreate_v2(&context_, 0, 0));
  ASSERT_CU(cuModuleLoadData(&module_, kFakeImage));
}

void DeviceTest::TearDown() {
  CUcontext current = nullptr;
  EXPECT_CU(cuCtxGetCurrent(&current));
  EXPECT_EQ(current, context_) << "the test left another context behind";
  // One failed test must not fail the next ones.
  while (cuCtxPopCurrent_v2(&current) == CUDA_SUCCESS) {
  }
  EXPECT_CU(cuCtxDestroy_v2(context_));
}

CUfunction DeviceTest::function(const char* name) {
  CUfunction found = nullptr;
  EXPECT_CU(cuModuleGetFunction(&found, module_, name));
  return found;
}

CUresult DeviceTest::try_launch(CUfunction function, CUstream stream, FakeParameters parameters,
                                unsigned blocks, unsigned threads, unsigned shared) {
  size_t size = sizeof parameters;
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &parameters, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                   CU_LAUNCH_PARAM_END};
  return cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, shared, stream, nullptr, extra);
}

void DeviceTest::launch(CUstream stream, FakeAction action, uint64_t address, uint64_t value,
                        unsigned blocks, unsigned threads) {
  ASSERT_CU(try_launch(function("run"), stream, {action, address, value}, blocks, threads));
}

CUstream DeviceTest::stream(unsigned flags, int priority) {
  CUstream made = nullptr;
  EXPECT_CU(cuStreamCreateWithPriority(&made, flags, priority));
  return made;
}

CUevent DeviceTest::event(unsigned flags) {
  CUevent made = nullptr;
  EXPECT_CU(cuEventCreate(&made, flags));
  return made;
}

uint32_t* DeviceTest::words(size_t count) {
  CUdeviceptr address = 0;
  EXPECT_CU(cuMemAllocManaged(&address, count * sizeof(uint32_t), CU_MEM_ATTACH_GLOBAL));
  EXPECT_CU(cuMemsetD32_v2(address, 0, count));
  return reinterpret_cast<uint32_t*>(address);
}

std::vector<TraceEvent> DeviceTest::trace() const {
  std::ifstream file(trace_path());
  file.seekg(static_cast<std::streamoff>(trace_begin_));
  std::vector<TraceEvent> events;
  for (std::string line; std::getline(file, line);) {
    if (line.size() < 3) continue;  // the opening bracket
    events.push_back({text_field(line, "name"), text_field(line, "cat"), text_field(line, "kernel"),
                      number_field(line, "sequence"), number_field(line, "stream"),
                      number_field(line, "launch")});
  }
  return events;
}

uint64_t DeviceTest::stream_id(CUstream stream) {
  unsigned long long id = 0;
  EXPECT_CU(cuStreamGetId(stream, &id));
  return id;
}

}  // namespace openmps::softgpu::testing
