// SPDX-License-Identifier: Apache-2.0
// Code that the main context does not have yet is loaded and run in the second context, in the
// order of the program's streams, and moves when the main context is quiet. Wherever code is
// loaded, nothing is unfinished in its context: the fixture looks at that behind every test.
#include "worker/device/cold_lane.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "session_fixture.h"
#include "test_cubin.h"
#include "worker/device/log.h"

namespace openmps::worker {
namespace {

constexpr uint64_t kMapped = wire::window_base(3) + 2 * wire::kMiB;
// Images are text of PTX; these have nothing that binds them, a variable, and printf.
const std::string kPlain = "plain";
const std::string kVariable = ".global .u32 x;";
const std::string kPrinting = "call vprintf;";
const std::string kConstant = ".const .u32 c;";

// Machine code with a variable, whose address is in its table.
std::string cubin_with_variable() {
  TestCubin cubin;
  cubin.relocate(TestCubin::kAddresses, 0, cubin.add("x", TestCubin::kGlobal), 2);
  return cubin.image();
}

// While it lives the log goes into memory; then to standard error.
class LogFile {
 public:
  LogFile() { log_to(UniqueFd(dup(file_.get()))); }
  ~LogFile() { log_to(UniqueFd(dup(STDERR_FILENO))); }
  LogFile(const LogFile&) = delete;
  [[nodiscard]] std::string text() const {
    std::string text(static_cast<size_t>(lseek(file_.get(), 0, SEEK_END)), '\0');
    EXPECT_EQ(pread(file_.get(), text.data(), text.size(), 0), static_cast<ssize_t>(text.size()));
    return text;
  }

 private:
  UniqueFd file_{memfd_create("log", MFD_CLOEXEC)};
};

class ColdLaneTest : public SessionFixture {
 protected:
  void prepare() override {
    worker_parts_.cold =
        std::make_unique<ColdLanes>(driver_.table(), *devices_, worker_parts_.limits);
    worker_parts_.cold->share();
  }
  void TearDown() override {
    session_->stop = false;
    for (const uint32_t stream : held_) driver_.hold(stream, false);
    if (neighbour_ != nullptr) {
      const CUstream handle = neighbour_->handle;
      gate_.remove(neighbour_);
      driver_.table().cuStreamDestroy_v2(handle);
    }
    SessionFixture::TearDown();
  }

  // Stream 1, s1 for the driver, has a copy that does not end until the test says so.
  void keep_busy() {
    map(kMapped, 2 * wire::kMiB);
    create_stream(1, wire::StreamKind::kNonBlocking);
    create_stream(2, wire::StreamKind::kNonBlocking);
    hold(1);
    EXPECT_TRUE(copy(1).ok());
    driver_.take_calls();
  }
  // The same in a stream, s1, that is another session's.
  void keep_neighbour_busy() {
    CUstream stream = nullptr;
    driver_.table().cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0);
    hold(1);
    driver_.table().cuMemcpyAsync(0, 0, 1, stream);
    neighbour_ = gate_.add(stream, 0);
    neighbour_->set_busy();
    create_stream(2, wire::StreamKind::kNonBlocking);
    driver_.take_calls();
  }
  void hold(uint32_t stream) {
    driver_.hold(stream, true);
    held_.push_back(stream);
  }
  void let_go(uint32_t stream) { driver_.hold(stream, false); }
  Status copy(wire::Id stream) { return send(wire::Memcpy{stream, 0, kMapped, kStaging, 64}); }
  // Module and function of the same id.
  Status load(wire::Id id, const std::string& image, const std::string& name = "kern") {
    EXPECT_TRUE(send(wire::BlobBegin{image.size(), id}).ok());
    memcpy(session_->core.view.staging(), image.data(), image.size());
    const auto bytes = static_cast<uint32_t>(image.size());
    EXPECT_TRUE(send(wire::BlobData{id, bytes, 0, kStaging}).ok());
    OPENMPS_RETURN_IF_ERROR(send(wire::ModuleLoad{id, id, 0, wire::ModuleKind::kModule, 0, 0}));
    const auto length = static_cast<uint32_t>(name.size());
    return send(wire::GetFunction{id, id, wire::ModuleKind::kModule, length}, name);
  }
  // The same; where was it placed?
  std::string lane_of_load(wire::Id id, const std::string& image) {
    driver_.take_calls();
    const Status status = load(id, image);
    EXPECT_TRUE(status.ok()) << status.message();
    for (const std::string& call : calls()) {
      if (call.starts_with("place")) return call;
    }
    return "none";
  }
  void launch(wire::Id stream, wire::Id function = 1) {
    wire::Launch command = launch_of(stream);
    command.function = function;
    const Status status = send(command, std::string(16, '\0'));
    EXPECT_TRUE(status.ok()) << status.message();
  }
  // So often that its code moves when it can.
  void launch_often(wire::Id stream, wire::Id function = 1) {
    for (uint32_t i = 0; i < kUsesToMove; ++i) launch(stream, function);
  }
  // The load waits for as long as the session lives, rather than going where it must not.
  void expect_wait(wire::Id id, const std::string& image) {
    driver_.take_calls();
    session_->stop = true;
    EXPECT_EQ(load(id, image).code(), CUDA_ERROR_NOT_READY);
    session_->stop = false;
    for (const std::string& call : calls()) EXPECT_FALSE(call.starts_with("place")) << call;
  }

  std::vector<uint32_t> held_;
  ContextGate::Stream* neighbour_ = nullptr;
};

TEST_F(ColdLaneTest, CodeGoesToTheMainContextWhileThatIsQuiet) {
  create_stream(2, wire::StreamKind::kNonBlocking);
  EXPECT_EQ(lane_of_load(1, kPlain), "place");
  launch(2);
  EXPECT_EQ(calls(), (Calls{"stream 0", "launch s1 16"}));
}

TEST_F(ColdLaneTest, BesideWorkItIsLoadedAndRunInTheColdOne) {
  keep_busy();
  EXPECT_EQ(lane_of_load(1, kPlain), "place cold");
  launch(2);
  // s3 is the cold stream of s2: it waits for the stream, and the stream for it.
  EXPECT_EQ(calls(), (Calls{"stream 0", "event", "event", "stream 0", "record e1 s2", "wait s3 e1",
                            "launch s3 16", "record e2 s3", "wait s2 e2"}));
}

TEST_F(ColdLaneTest, LaunchesInARowStayThere) {
  keep_busy();
  ASSERT_TRUE(load(1, kPlain).ok());
  launch(2);
  driver_.take_calls();
  const Calls stay{"launch s3 16", "record e2 s3", "wait s2 e2"};
  const Calls hop{"record e1 s2", "wait s3 e1", "launch s3 16", "record e2 s3", "wait s2 e2"};
  launch(2);
  EXPECT_EQ(calls(), stay);
  EXPECT_TRUE(send(wire::Fence{2, 0, 1}).ok());
  driver_.take_calls();
  launch(2);
  EXPECT_EQ(calls(), stay) << "a fence is nothing to wait for";
  EXPECT_TRUE(copy(2).ok());
  driver_.take_calls();
  launch(2);
  EXPECT_EQ(calls(), hop) << "a copy is";
}

// The wait behind the launch is one that the order has to come before.
TEST_F(ColdLaneTest, ALaunchBehindAnOrderedCopy) {
  keep_neighbour_busy();
  map(kMapped, 2 * wire::kMiB);
  ASSERT_TRUE(send(wire::Memcpy{2, wire::kOrderAllStreams, kMapped, kStaging, 64}).ok());
  EXPECT_EQ(lane_of_load(1, kPlain), "place cold");
  launch(2);
  create_stream(3, wire::StreamKind::kNonBlocking);
  EXPECT_TRUE(copy(3).ok());
}

// A wait that the stream got between two launches holds for the second one.
TEST_F(ColdLaneTest, WaitsOfTheStreamHoldInTheTwin) {
  keep_busy();
  create_stream(3, wire::StreamKind::kBlocking);
  create_stream(4, wire::StreamKind::kLegacy);
  ASSERT_TRUE(load(1, kPlain).ok());
  launch(3);
  EXPECT_TRUE(copy(4).ok());
  driver_.take_calls();
  launch(3);
  const Calls seen = calls();
  // The legacy stream's end, which the stream waits for, and then the hand-over.
  const auto legacy = std::find(seen.begin(), seen.end(), "wait s2 e4");
  ASSERT_NE(legacy, seen.end()) << ::testing::PrintToString(seen);
  EXPECT_EQ(*(legacy + 1), "record e1 s2");
  EXPECT_EQ(*(legacy + 2), "wait s3 e1");
}

TEST_F(ColdLaneTest, AnEventThatALaunchRecordsIsRecordedBehindIt) {
  keep_busy();
  ASSERT_TRUE(load(1, kPlain).ok());
  EXPECT_TRUE(send(wire::EventCreate{1, 0, 0}).ok());
  launch(2);
  driver_.take_calls();
  CUlaunchAttribute attributes[2]{};
  attributes[0].id = CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT;
  attributes[0].value.launchCompletionEvent.event = reinterpret_cast<CUevent>(uint64_t{1});
  attributes[1].id = CU_LAUNCH_ATTRIBUTE_PRIORITY;
  wire::Launch command = launch_of(2);
  command.attribute_count = 2;
  std::string variable(sizeof(attributes) + 16, '\0');
  memcpy(variable.data(), attributes, sizeof(attributes));
  const Status status = send(command, variable);
  EXPECT_TRUE(status.ok()) << status.message();
  const Calls seen = calls();
  EXPECT_NE(std::find(seen.begin(), seen.end(), "launch-ex s3 a8"), seen.end())
      << ::testing::PrintToString(seen);
  EXPECT_EQ(seen.back(), "record e3 s2");
}

// ---- Moving -------------------------------------------------------------------------------------

TEST_F(ColdLaneTest, WhatIsColdMovesInTheNextQuietMoment) {
  keep_busy();
  ASSERT_TRUE(load(1, kPlain).ok());
  launch_often(2);
  EXPECT_NE(session_->service(), ~0ull) << "it looks again soon";
  driver_.take_calls();
  launch(2);
  EXPECT_EQ(calls().front(), "launch s3 16") << "the work goes on";
  let_go(1);
  session_->service();
  driver_.take_calls();
  launch(2);
  EXPECT_EQ(calls(), (Calls{"launch s2 16"}));
  EXPECT_GT(session_->service(), 1'000'000'000u) << "nothing is to move soon";
}

// To load it once more costs others a moment, which a program that ends soon does not need.
TEST_F(ColdLaneTest, WhatIsHardlyUsedMovesLater) {
  keep_busy();
  ASSERT_TRUE(load(1, kPlain).ok());
  launch(2);
  EXPECT_NE(session_->service(), ~0ull) << "it looks when that is due";
  let_go(1);
  session_->service();
  driver_.take_calls();
  launch(2);
  EXPECT_EQ(calls().back(), "wait s2 e2");
  EXPECT_EQ(session_->modules.plan_moves(now_ns() + 3'000'000'000), 0u);
  session_->service();
  driver_.take_calls();
  launch(2);
  EXPECT_EQ(calls(), (Calls{"launch s2 16"}));
  EXPECT_EQ(session_->service(), ~0ull);
}

TEST_F(ColdLaneTest, AttributesHoldInBothLanes) {
  keep_busy();
  ASSERT_TRUE(load(1, kPlain).ok());
  driver_.take_calls();
  EXPECT_TRUE(send(wire::FunctionSetAttribute{1, wire::FunctionSetting::kAttribute, 8, 4096}).ok());
  EXPECT_EQ(calls(), (Calls{"attribute 8=4096 cold"}));
  launch_often(2);
  driver_.take_calls();
  let_go(1);
  session_->service();
  const Calls moved = calls();
  EXPECT_EQ(std::count(moved.begin(), moved.end(), "attribute 8=4096"), 1)
      << ::testing::PrintToString(moved);
  EXPECT_TRUE(send(wire::FunctionSetAttribute{1, wire::FunctionSetting::kAttribute, 8, 8192}).ok());
  EXPECT_EQ(calls(), (Calls{"attribute 8=8192", "attribute 8=8192 cold"}));
}

TEST_F(ColdLaneTest, QueriesGoWhereTheFunctionIs) {
  keep_busy();
  ASSERT_TRUE(load(1, kPlain).ok());
  EXPECT_TRUE(send(wire::Occupancy{1, 128, 0, 0}).ok());
  EXPECT_EQ(reply<wire::Occupancy::Reply>().value, 5u);
  EXPECT_TRUE(send(wire::FunctionGetAttribute{1, 3}).ok());
  EXPECT_EQ(reply<int32_t>(), 103);
}

// ---- Homes --------------------------------------------------------------------------------------

TEST_F(ColdLaneTest, AModuleWithVariablesStaysWhereItIs) {
  keep_busy();
  EXPECT_EQ(lane_of_load(1, kVariable), "place cold");
  launch(2);
  let_go(1);
  session_->service();
  driver_.take_calls();
  launch(2);
  EXPECT_EQ(calls(), (Calls{"launch s3 16", "record e2 s3", "wait s2 e2"}));
}

TEST_F(ColdLaneTest, ItsVariablesAreFilledThere) {
  keep_busy();
  ASSERT_TRUE(load(1, kVariable).ok());
  EXPECT_TRUE(send(wire::GetGlobal{1, wire::ModuleKind::kModule, 4}, "glob").ok());
  EXPECT_EQ(reply<wire::GetGlobal::Reply>().address, kFakeColdGlobal);
  launch(2);
  driver_.take_calls();
  EXPECT_TRUE(send(wire::Memset{2, 4, kFakeColdGlobal, 0, 8, 1, 7}).ok());
  EXPECT_EQ(calls(), (Calls{"fill32 s3 8", "record e2 s3", "wait s2 e2"}));
  EXPECT_TRUE(send(wire::Memset{2, 4, kMapped, 0, 8, 1, 7}).ok());
  EXPECT_EQ(calls(), (Calls{"fill32 s2 8"}));
  EXPECT_TRUE(send(wire::Memcpy{2, 0, kFakeColdGlobal, kStaging, 64}).ok());
  EXPECT_EQ(calls(), (Calls{"copy s2 64"})) << "copies reach both";
  EXPECT_EQ(send(wire::StreamWaitValue{{kFakeColdGlobal, 1, 4, 0}, 2}).code(),
            CUDA_ERROR_NOT_SUPPORTED);
}

// Machine code can name them where they are.
TEST_F(ColdLaneTest, MachineCodeMovesWithoutItsVariables) {
  keep_busy();
  EXPECT_EQ(lane_of_load(1, cubin_with_variable()), "place cold");
  EXPECT_TRUE(send(wire::GetGlobal{1, wire::ModuleKind::kModule, 4}, "glob").ok());
  EXPECT_EQ(reply<wire::GetGlobal::Reply>().address, kFakeColdGlobal);
  launch_often(2);
  EXPECT_NE(driver_.live().find("libraries 1"), std::string::npos) << "it may end soon";
  session_->modules.modules().find(1)->cold_since_ns = 1;  // it has not
  launch(2);
  let_go(1);
  session_->service();
  driver_.take_calls();
  launch(2);
  EXPECT_EQ(calls(), (Calls{"launch s2 16"}));
  EXPECT_TRUE(send(wire::GetGlobal{1, wire::ModuleKind::kModule, 4}, "glob").ok());
  EXPECT_EQ(reply<wire::GetGlobal::Reply>().address, kFakeColdGlobal) << "they are where they were";
  EXPECT_NE(driver_.live().find("libraries 2"), std::string::npos) << driver_.live();
  EXPECT_TRUE(send(wire::ModuleUnload{1}).ok());
  session_->service();
  EXPECT_EQ(driver_.live().find("libraries"), std::string::npos) << driver_.live();
}

// What has come to the main lane first is there.
TEST_F(ColdLaneTest, MachineCodeOfTheMainLaneHasItsVariablesThere) {
  create_stream(2, wire::StreamKind::kNonBlocking);
  EXPECT_EQ(lane_of_load(1, cubin_with_variable()), "place");
  EXPECT_TRUE(send(wire::GetGlobal{1, wire::ModuleKind::kModule, 4}, "glob").ok());
  EXPECT_EQ(reply<wire::GetGlobal::Reply>().address, kFakeGlobal);
  EXPECT_NE(driver_.live().find("libraries 1"), std::string::npos) << driver_.live();
}

// Nobody can have written a constant before he knows where it is.
TEST_F(ColdLaneTest, ConstantsBindOnceTheirAddressIsKnown) {
  keep_busy();
  EXPECT_EQ(lane_of_load(1, kConstant), "place cold");
  EXPECT_EQ(lane_of_load(2, kConstant), "place cold");
  EXPECT_TRUE(send(wire::GetGlobal{2, wire::ModuleKind::kModule, 4}, "glob").ok());
  EXPECT_EQ(reply<wire::GetGlobal::Reply>().address, kFakeColdGlobal);
  launch_often(2, 1);
  let_go(1);
  session_->service();
  driver_.take_calls();
  launch(2, 1);
  EXPECT_EQ(calls().back(), "launch s2 16") << "it has moved";
  launch(2, 2);
  EXPECT_EQ(calls().back(), "wait s2 e2") << "it stays";
  EXPECT_TRUE(send(wire::GetGlobal{1, wire::ModuleKind::kModule, 4}, "glob").ok());
  EXPECT_EQ(reply<wire::GetGlobal::Reply>().address, kFakeGlobal) << "where it runs by now";
}

// A limit that comes later does not reach it: the log says so, once.
TEST_F(ColdLaneTest, CodeThatKeepsAllSmsIsNamed) {
  keep_busy();
  EXPECT_EQ(lane_of_load(1, kConstant), "place cold");
  EXPECT_TRUE(send(wire::GetGlobal{1, wire::ModuleKind::kModule, 4}, "glob").ok());
  let_go(1);
  const LogFile logged;
  launch(2);
  session_->core.parts.set(0, {.sms = 4});
  EXPECT_EQ(logged.text(), "");
  for (int i = 0; i < 3; ++i) launch(2);
  const std::string text = logged.text();
  EXPECT_NE(text.find("runs on all SMs"), std::string::npos) << text;
  EXPECT_EQ(std::ranges::count(text, '\n'), 1) << text;
  const auto& counts = session_->core.usage.row().counts;
  EXPECT_EQ(counts[static_cast<size_t>(wire::UsageCount::kBeyondLimit)].load(), 2u)
      << "once the stream has followed";
}

// It is moved as a whole before its address is told, where that can be soon.
TEST_F(ColdLaneTest, ConstantsComeToTheMainLaneToBeWritten) {
  keep_busy();
  EXPECT_EQ(lane_of_load(1, kConstant), "place cold");
  let_go(1);
  EXPECT_TRUE(send(wire::GetGlobal{1, wire::ModuleKind::kModule, 4}, "glob").ok());
  EXPECT_EQ(reply<wire::GetGlobal::Reply>().address, kFakeGlobal);
  driver_.take_calls();
  launch(2);
  EXPECT_EQ(calls().back(), "launch s2 16");
}

// All sessions share the library; a session that asks for the address of its variable gets a copy
// of its own, once.
TEST_F(ColdLaneTest, WhatNobodyWritesIsSharedUntilSomebodyAsksForIt) {
  create_stream(2, wire::StreamKind::kNonBlocking);
  for (const auto& [declaration, name] :
       {std::pair(".global .align 1 .b8 $str[2] = {65, 0};", "$str"),
        std::pair(".const .align 4 .b8 _ZZ1fvE1z[16] = {5, 0};", "_ZZ1")}) {
    ASSERT_TRUE(load(1, declaration).ok());
    EXPECT_NE(driver_.live().find("libraries 1"), std::string::npos) << driver_.live();
    for (int times = 0; times < 2; ++times) {
      EXPECT_TRUE(send(wire::GetGlobal{1, wire::ModuleKind::kModule, 4}, name).ok());
      EXPECT_EQ(reply<wire::GetGlobal::Reply>().address, kFakeGlobal);
      EXPECT_NE(driver_.live().find("libraries 2"), std::string::npos) << driver_.live();
    }
    EXPECT_TRUE(send(wire::ModuleUnload{1}).ok());
    session_->service();
    EXPECT_EQ(driver_.live().find("libraries"), std::string::npos) << driver_.live();
  }
}

// Which of the two a name is, the image says.
TEST_F(ColdLaneTest, CodeWithBothMovesWithoutItsVariables) {
  TestCubin cubin;
  cubin.relocate(TestCubin::kAddresses, 0, cubin.add("glob", TestCubin::kGlobal), 2);
  cubin.add("constant", TestCubin::kConstants);
  keep_busy();
  EXPECT_EQ(lane_of_load(1, cubin.with_constants().image()), "place cold");
  const auto address_of = [&](const std::string& name) {
    const auto length = static_cast<uint32_t>(name.size());
    EXPECT_TRUE(send(wire::GetGlobal{1, wire::ModuleKind::kModule, length}, name).ok());
    return reply<wire::GetGlobal::Reply>().address;
  };
  EXPECT_EQ(address_of("glob"), kFakeColdGlobal);
  launch_often(2);
  session_->modules.modules().find(1)->cold_since_ns = 1;
  launch(2);
  let_go(1);
  session_->service();
  driver_.take_calls();
  launch(2);
  EXPECT_EQ(calls(), (Calls{"launch s2 16"})) << "asking for a variable binds nothing";
  EXPECT_EQ(address_of("glob"), kFakeColdGlobal);
  EXPECT_EQ(address_of("constant"), kFakeGlobal);
}

// A texture object would read zeros there.
TEST_F(ColdLaneTest, TextureObjectsAndVariablesInTheColdLaneExcludeEachOther) {
  keep_busy();
  wire::ImageCreate image{};
  image.image = 1;
  image.type = CU_RESOURCE_TYPE_LINEAR;
  image.address = kMapped;
  image.bytes = 256;
  image.format = CU_AD_FORMAT_UNSIGNED_INT32;
  image.channels = 1;
  ASSERT_TRUE(load(1, kVariable).ok());
  EXPECT_EQ(send(image).code(), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_TRUE(send(wire::ModuleUnload{1}).ok());
  EXPECT_TRUE(send(image).ok());
  expect_wait(2, kVariable);
  expect_wait(3, kPlain);
  EXPECT_TRUE(send(wire::ImageDestroy{1}).ok());
  EXPECT_EQ(lane_of_load(4, kPlain), "place cold");
}

// What has gone cold before waits for the main context then.
TEST_F(ColdLaneTest, WithATextureObjectKernelsRunInTheMainContext) {
  keep_busy();
  ASSERT_TRUE(load(1, kPlain).ok());
  wire::ImageCreate image{};
  image.image = 1;
  image.type = CU_RESOURCE_TYPE_LINEAR;
  image.address = kMapped;
  image.bytes = 256;
  image.format = CU_AD_FORMAT_UNSIGNED_INT32;
  image.channels = 1;
  ASSERT_TRUE(send(image).ok());
  session_->stop = true;
  EXPECT_EQ(send(launch_of(2), std::string(16, '\0')).code(), CUDA_ERROR_NOT_READY);
  session_->stop = false;
  let_go(1);
  driver_.take_calls();
  launch(2);
  EXPECT_EQ(calls().back(), "launch s2 16");
}

TEST_F(ColdLaneTest, WhatPrintsOrAllocatesWaits) {
  keep_busy();
  expect_wait(1, kPrinting);
  expect_wait(2, "call malloc;");
  expect_wait(3, ".global .attribute(.managed) .u32 x;");
}

// A failed assertion ends both contexts, and says so.
TEST_F(ColdLaneTest, WhatAssertsDoesNot) {
  keep_busy();
  EXPECT_EQ(lane_of_load(1, "call __assertfail;"), "place cold");
}

// The cold context waits for its own work as the main one does.
TEST_F(ColdLaneTest, ABusyColdLaneLoadsNothing) {
  keep_busy();
  ASSERT_TRUE(load(1, kPlain).ok());
  launch(2);
  hold(3);
  launch(2);
  expect_wait(2, "other");
  let_go(3);
  EXPECT_EQ(lane_of_load(3, "third"), "place cold");
}

// ---- Whether there is one -----------------------------------------------------------------------

TEST_F(ColdLaneTest, WithoutAContextLoadingWaits) {
  driver_.fail("context", CUDA_ERROR_OUT_OF_MEMORY);
  keep_busy();
  expect_wait(1, kPlain);
  driver_.fail("context", CUDA_SUCCESS);
  expect_wait(2, kPlain);  // that was tried once
}

TEST_F(ColdLaneTest, WhatItsKernelsRelyOnIsTheMainContexts) {
  constexpr int kLaunches = CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT;
  keep_busy();
  driver_.limits[CU_LIMIT_STACK_SIZE] = 4096;
  driver_.limits[kLaunches] = 3000;
  ASSERT_TRUE(load(1, kPlain).ok());
  EXPECT_EQ(driver_.other_limits[CU_LIMIT_STACK_SIZE], 4096u);
  EXPECT_EQ(driver_.other_limits[kLaunches], 3000u);
  let_go(1);
  session_->service();
  EXPECT_TRUE(send(wire::LimitRaise{0, CU_LIMIT_STACK_SIZE, 8192}).ok());
  EXPECT_TRUE(send(wire::LimitRaise{0, kLaunches, 5000}).ok());
  EXPECT_EQ(driver_.limits[kLaunches], 5000u);
  EXPECT_EQ(driver_.other_limits[CU_LIMIT_STACK_SIZE], 8192u);
  EXPECT_EQ(driver_.other_limits[kLaunches], 5000u);
}

class NoColdLaneTest : public ColdLaneTest {
 protected:
  void prepare() override {}
};
TEST_F(NoColdLaneTest, LoadingWaits) {
  keep_busy();
  expect_wait(1, kPlain);
}

class LoneSessionTest : public ColdLaneTest {
 protected:
  void prepare() override {
    worker_parts_.cold =
        std::make_unique<ColdLanes>(driver_.table(), *devices_, worker_parts_.limits);
  }
};
TEST_F(LoneSessionTest, WaitsForItselfAsNatively) {
  keep_busy();
  expect_wait(1, kPlain);
  worker_parts_.cold->share();
  EXPECT_EQ(lane_of_load(2, kPlain), "place cold");
}

TEST_F(LoneSessionTest, HasItMadeAfterASecondOrForASecondOne) {
  constexpr uint64_t kNow = 5'000'000'000;
  ColdLanes& lanes = *worker_parts_.cold;
  EXPECT_EQ(lanes.due_ns(), 0u) << "nobody has come yet";
  lanes.note_session(true, false, kNow);
  EXPECT_EQ(lanes.due_ns(), kNow + ColdLanes::kAloneNs);
  EXPECT_EQ(lanes.context(0), nullptr);
  lanes.note_session(true, false, kNow + 1);
  EXPECT_EQ(lanes.due_ns(), kNow + ColdLanes::kAloneNs) << "the first has gone, its time has not";
  EXPECT_EQ(lanes.want(0), nullptr) << "alone";
  lanes.note_session(false, false, kNow + 2);
  EXPECT_EQ(lanes.due_ns(), 0u);
  EXPECT_NE(lanes.want(0), nullptr);
  lanes.note_session(true, false, kNow + 3);
  EXPECT_EQ(lanes.due_ns(), 0u) << "made";
}

TEST_F(LoneSessionTest, HasItLaterWhereSessionsHaveMovedTo) {
  constexpr uint64_t kNow = 5'000'000'000;
  ColdLanes& lanes = *worker_parts_.cold;
  lanes.note_session(true, true, kNow);
  lanes.note_session(false, true, kNow + 1);
  lanes.note_session(false, false, kNow + 2);
  EXPECT_EQ(lanes.due_ns(), kNow + 1 + ColdLanes::kAdoptedNs);
  EXPECT_EQ(lanes.want(0), nullptr) << "the new one does not make the others wait";
  lanes.make_ahead();
  EXPECT_NE(lanes.want(0), nullptr);
}

TEST_F(LoneSessionTest, ASpareWorkerHasItBefore) {
  constexpr uint64_t kNow = 5'000'000'000;
  ColdLanes& lanes = *worker_parts_.cold;
  lanes.make_later(kNow);
  EXPECT_EQ(lanes.due_ns(), kNow + ColdLanes::kSpareNs);
  lanes.make_ahead();
  EXPECT_EQ(lanes.want(0), nullptr) << "no session, or one";
  lanes.note_session(true, true, kNow);
  EXPECT_EQ(lanes.due_ns(), 0u);
  EXPECT_NE(lanes.want(0), nullptr);
}

// ---- Unloading ----------------------------------------------------------------------------------

TEST_F(ColdLaneTest, CodeOfTheColdLaneGoesWhateverTheMainOneDoes) {
  keep_neighbour_busy();
  ASSERT_TRUE(load(1, kVariable).ok());
  launch(2);
  driver_.take_calls();
  EXPECT_TRUE(send(wire::ModuleUnload{1}).ok());
  EXPECT_EQ(calls(), (Calls{"unload"}));
}

TEST_F(ColdLaneTest, ItStaysWhileTheColdLaneWorks) {
  keep_neighbour_busy();
  ASSERT_TRUE(load(1, kVariable).ok());
  launch(2);
  hold(3);
  launch(2);
  EXPECT_TRUE(send(wire::ModuleUnload{1}).ok());
  session_->service();
  Calls seen = calls();
  EXPECT_EQ(std::count(seen.begin(), seen.end(), "unload"), 0);
  let_go(3);
  session_->service();
  seen = calls();
  EXPECT_EQ(std::count(seen.begin(), seen.end(), "unload"), 1);
}

// The cold context is quiet, the stream that uses the variable is not.
TEST_F(ColdLaneTest, ItStaysWhileAStreamMayUseItsVariables) {
  keep_neighbour_busy();
  map(kMapped, 2 * wire::kMiB);
  ASSERT_TRUE(load(1, kVariable).ok());
  EXPECT_TRUE(copy(2).ok());
  hold(2);
  EXPECT_TRUE(copy(2).ok());
  EXPECT_TRUE(send(wire::ModuleUnload{1}).ok());
  session_->service();
  Calls seen = calls();
  EXPECT_EQ(std::count(seen.begin(), seen.end(), "unload"), 0);
  let_go(2);
  session_->service();
  seen = calls();
  EXPECT_EQ(std::count(seen.begin(), seen.end(), "unload"), 1);
}

}  // namespace
}  // namespace openmps::worker
