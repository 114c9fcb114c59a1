// SPDX-License-Identifier: Apache-2.0
// A trace of commands and waits, as text and for viewers.
#include "wire/trace.h"
#include "wire/commands/device.h"
#include "wire/commands/stream.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <regex>
#include <span>
#include <sstream>
#include <string>
#include <utility>

#include "base/clock.h"

namespace openmps::wire {
namespace {

const Trace::Actor kActor{"session 3", "session 3 "};

class TraceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char folder[] = "/tmp/openmps-trace-XXXXXX";
    ASSERT_NE(mkdtemp(folder), nullptr);
    folder_ = folder;
  }
  void TearDown() override {
    unsetenv("OPENMPS_TRACE");
    unsetenv("OPENMPS_TRACE_MIN_US");
    EXPECT_EQ(system(("rm -r " + folder_).c_str()), 0);
  }
  std::unique_ptr<Trace> open(const std::string& name) {
    path_ = folder_ + "/" + name;
    setenv("OPENMPS_TRACE", path_.c_str(), 1);
    Result<std::unique_ptr<Trace>> trace = Trace::from_environment();
    EXPECT_TRUE(trace.ok());
    return trace.ok() ? std::move(*trace) : nullptr;
  }
  template <typename C>
  static void command(Trace& trace, const C& c, CUresult result = CUDA_SUCCESS) {
    trace.command(kActor, C::kOpcode, bytes_of(c), result, {}, now_ns() - 2500);
  }
  template <typename C>
  static void answered(Trace& trace, const C& c, const typename C::Reply& reply) {
    trace.command(kActor, C::kOpcode, bytes_of(c), CUDA_SUCCESS, bytes_of(reply), now_ns());
  }
  template <typename T>
  static std::span<const unsigned char> bytes_of(const T& value) {
    return {reinterpret_cast<const unsigned char*>(&value), sizeof(T)};
  }
  // The text of the trace, with N for numbers that differ from run to run.
  [[nodiscard]] std::string text() const {
    std::stringstream all;
    all << std::ifstream(path_).rdbuf();
    std::string text = std::regex_replace(all.str(), std::regex("\\d+\\.\\d+"), "N");
    return std::regex_replace(text, std::regex(std::to_string(getpid())), "PID");
  }

  std::string folder_;
  std::string path_;
};

TEST_F(TraceTest, IsOffWithoutTheVariable) {
  unsetenv("OPENMPS_TRACE");
  EXPECT_EQ(*Trace::from_environment(), nullptr);
  setenv("OPENMPS_TRACE", "", 1);
  EXPECT_EQ(*Trace::from_environment(), nullptr);
}

TEST_F(TraceTest, DriverCallsOfATenthOfAMillisecondAndMore) {
  const std::unique_ptr<Trace> trace = open("text");
  trace->driver_call("cuLaunchKernel", CUDA_SUCCESS, 1'000'000, 1'099'999);
  EXPECT_EQ(text(), "") << "a call of less than 0.1 ms is not written";
  trace->driver_call("cuLaunchKernel", CUDA_ERROR_NOT_READY, 1'000'000, 1'100'000);
  EXPECT_TRUE(std::regex_match(
      text(), std::regex("N PID driver, \\S+ \\S+: cuLaunchKernel\\{\\} = CUDA_ERROR_NOT_READY "
                         "\\(N us\\)\n")))
      << text();
}

TEST_F(TraceTest, AMinimumTimeHidesShorterCallsAndCommands) {
  setenv("OPENMPS_TRACE_MIN_US", "200", 1);
  const std::unique_ptr<Trace> trace = open("text");
  trace->driver_call("cuLaunchKernel", CUDA_SUCCESS, 1'000'000, 1'199'000);
  trace->command(kActor, Fence::kOpcode, bytes_of(Fence{1, 2, 3}), CUDA_SUCCESS, {}, now_ns());
  EXPECT_EQ(text(), "");
  trace->driver_call("cuLaunchKernel", CUDA_SUCCESS, 1'000'000, 1'200'000);
  EXPECT_NE(text(), "");
}

TEST_F(TraceTest, AnInvalidMinimumTimeIsRefused) {
  setenv("OPENMPS_TRACE", (folder_ + "/text").c_str(), 1);
  setenv("OPENMPS_TRACE_MIN_US", "0.2", 1);
  const Result<std::unique_ptr<Trace>> trace = Trace::from_environment();
  ASSERT_FALSE(trace.ok());
  EXPECT_NE(trace.status().message().find("'0.2'"), std::string::npos) << trace.status().message();
}

TEST_F(TraceTest, AFileThatCanNotBeOpenedIsRefused) {
  setenv("OPENMPS_TRACE", (folder_ + "/none/file").c_str(), 1);
  const Result<std::unique_ptr<Trace>> trace = Trace::from_environment();
  ASSERT_FALSE(trace.ok());
  EXPECT_NE(trace.status().message().find("/none/file: No such file"), std::string::npos);
}

TEST_F(TraceTest, ALinePerCommand) {
  const auto trace = open("text");
  command(*trace, Fence{1, 2, 3});
  command(*trace, EventDestroy{7}, CUDA_ERROR_OUT_OF_MEMORY);
  trace->wait(kActor, 5, CUDA_SUCCESS, now_ns());
  EXPECT_EQ(text(),
            "N PID session 3: Fence{stream=1, slot=2, value=3} = CUDA_SUCCESS (N us)\n"
            "N PID session 3: EventDestroy{event=7} = CUDA_ERROR_OUT_OF_MEMORY (N us)\n"
            "N PID session 3: wait{stream=5} = CUDA_SUCCESS (N us)\n");
}

TEST_F(TraceTest, RepliesAreWrittenWithTheirCommands) {
  const auto lines = open("text");
  answered(*lines, MemoryInfo{2}, {5, 7});
  command(*lines, MemoryInfo{2}, CUDA_ERROR_DEINITIALIZED);
  EXPECT_EQ(text(),
            "N PID session 3: MemoryInfo{device=2} = CUDA_SUCCESS {free=5, total=7} (N us)\n"
            "N PID session 3: MemoryInfo{device=2} = CUDA_ERROR_DEINITIALIZED (N us)\n");
  // The reply is an object of its own, since it may have a field with the name of a field of the
  // command.
  const auto events = open("trace.json");
  answered(*events, MemoryInfo{2}, {5, 7});
  EXPECT_NE(text().find(R"("args":{"device":"2","reply":{"free":"5","total":"7"},)"
                        R"("result":"CUDA_SUCCESS"}},)"),
            std::string::npos)
      << text();
}

TEST_F(TraceTest, LanesOfExecutorsAndStreams) {
  const auto trace = open("trace.json");
  command(*trace, WakeAfter{9});
  command(*trace, Ping{});
  EXPECT_EQ(
      text(),
      "[\n"
      R"({"ph":"M","name":"thread_name","pid":PID,"tid":4194304,"args":{"name":"session 3"}},)"
      "\n"
      R"({"ph":"X","name":"WakeAfter","pid":PID,"tid":4194304,"ts":N,"dur":N,)"
      R"("args":{"stream":"9","result":"CUDA_SUCCESS"}},)"
      "\n"
      R"({"ph":"M","name":"thread_name","pid":PID,"tid":4194305,"args":{"name":"session 3 stream 9"}},)"
      "\n"
      R"({"ph":"X","name":"WakeAfter","pid":PID,"tid":4194305,"ts":N,"dur":N,)"
      R"("args":{"stream":"9","result":"CUDA_SUCCESS"}},)"
      "\n"
      R"({"ph":"X","name":"Ping","pid":PID,"tid":4194304,"ts":N,"dur":N,)"
      R"("args":{"result":"CUDA_SUCCESS"}},)"
      "\n");
}

TEST_F(TraceTest, SeveralProcessesShareAFile) {
  const auto one = open("shared.json");
  const auto two = open("shared.json");
  command(*one, Ping{});
  command(*two, Ping{});
  const std::string all = text();
  EXPECT_EQ(all.find('['), 0u);
  EXPECT_EQ(all.find('[', 1), std::string::npos) << "the file holds one array";
  EXPECT_EQ(std::count(all.begin(), all.end(), '\n'), 5);
}

}  // namespace
}  // namespace openmps::wire
