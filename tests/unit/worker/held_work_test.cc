// SPDX-License-Identifier: Apache-2.0
// Work that is held back and submitted later does what it would have done at once, whatever has
// become meanwhile of the command that it was made of, and of what it uses.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <memory>
#include <string>

#include "session_fixture.h"
#include "worker/work/work.h"

namespace openmps::worker {
namespace {

class HeldWorkTest : public SessionFixture {
 protected:
  void SetUp() override {
    SessionFixture::SetUp();
    create_stream(1, wire::StreamKind::kNonBlocking);
    load_module();
  }
  [[nodiscard]] Stream& stream() const { return *session_->streams.streams().find(1); }
  [[nodiscard]] Function& function() const { return *session_->modules.functions().find(1); }
  Status submit(const HeldWork& held) {
    const SubmitScope scope(session_->core.gate_client);
    return session_->submitter.submit(held.work(), stream());
  }

  // A launch of this command, whose bytes are gone when this returns.
  std::unique_ptr<HeldWork> hold_launch(const std::string& parameters, uint32_t attributes = 0,
                                        CUlaunchAttribute attribute = {}) {
    wire::Launch command = launch_of(1);
    command.attribute_count = attributes;
    command.parameter_bytes = static_cast<uint32_t>(parameters.size());
    std::string bytes = parameters;
    std::array<CUlaunchAttribute, 1> list{attribute};
    const wire::Launch::Tail tail{
        std::span(list).first(attributes),
        {reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size()}};
    Work work;
    const Status made =
        session_->work_maker.make(command, tail, function(), {}, Modules::Reach::kAnyLane,
                                  &work.uses, &work.what.emplace<KernelWork>());
    EXPECT_TRUE(made.ok()) << made.message();
    auto held = std::make_unique<HeldWork>(work);
    command = {};
    memset(bytes.data(), 'x', bytes.size());
    list.fill({});
    overwrite_buffers();
    return held;
  }
  // The maker's buffers serve other work.
  void overwrite_buffers() {
    std::array<wire::ValueOperation, 2> values;
    values.fill({{}, wire::ValueKind::kBarrier});
    Work other;
    EXPECT_TRUE(
        session_->work_maker.make(values, &other.uses, &other.what.emplace<ValuesWork>()).ok());
    CUlaunchAttribute attribute{};
    attribute.id = CU_LAUNCH_ATTRIBUTE_PRIORITY;
    wire::Launch launch = launch_of(1);
    launch.attribute_count = 1;
    const std::array<unsigned char, 16> parameters{};
    const wire::Launch::Tail tail{{&attribute, 1}, parameters};
    Work another;
    EXPECT_TRUE(session_->work_maker
                    .make(launch, tail, function(), {}, Modules::Reach::kAnyLane, &another.uses,
                          &another.what.emplace<KernelWork>())
                    .ok());
  }
};

TEST_F(HeldWorkTest, ALaunchKeepsItsParameters) {
  const std::string few = "0123456789abcdef";
  const std::string many(4096, 'p');
  const auto first = hold_launch(few);
  const auto second = hold_launch(many);
  EXPECT_EQ(calls(), Calls{});
  EXPECT_TRUE(submit(*first).ok());
  EXPECT_EQ(driver_.parameters, few);
  EXPECT_TRUE(submit(*second).ok());
  EXPECT_EQ(driver_.parameters, many);
  EXPECT_EQ(calls(), (Calls{"stream 0", "launch s1 16", "launch s1 4096"}));
}

TEST_F(HeldWorkTest, ALaunchKeepsItsCode) {
  auto held = hold_launch("0123456789abcdef");
  EXPECT_TRUE(send(wire::ModuleUnload{1}).ok());
  session_->service();
  EXPECT_EQ(calls(), Calls{}) << "the library is unloaded";
  EXPECT_TRUE(submit(*held).ok());
  EXPECT_EQ(calls(), (Calls{"stream 0", "launch s1 16"}));
  held.reset();
  session_->service();
  EXPECT_EQ(calls(), (Calls{"unload"}));
}

TEST_F(HeldWorkTest, ALaunchKeepsTheEventsOfItsAttributes) {
  EXPECT_TRUE(send(wire::EventCreate{5, 0, 0}).ok());
  CUlaunchAttribute completion{};
  completion.id = CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT;
  completion.value.launchCompletionEvent.event = reinterpret_cast<CUevent>(uintptr_t{5});
  auto held = hold_launch("0123456789abcdef", 1, completion);
  EXPECT_TRUE(send(wire::EventDestroy{5}).ok());
  EXPECT_EQ(calls(), (Calls{"event"}));
  EXPECT_TRUE(submit(*held).ok());
  EXPECT_EQ(calls(), (Calls{"stream 0", "launch-ex s1 a12"}));
  EXPECT_EQ(driver_.parameters, "0123456789abcdef");
  held.reset();
  EXPECT_EQ(calls(), (Calls{"destroy event"}));
}

TEST_F(HeldWorkTest, ValuesAreWhatTheyWere) {
  std::array<wire::ValueOperation, 2> values{
      wire::ValueOperation{{kStaging, 7, 4, 0}, wire::ValueKind::kWrite},
      wire::ValueOperation{{kStaging + 8, 1ull << 40, 8, 0}, wire::ValueKind::kWrite}};
  Work work;
  EXPECT_TRUE(session_->work_maker.make(values, &work.uses, &work.what.emplace<ValuesWork>()).ok());
  const HeldWork held(work);
  values.fill({});
  overwrite_buffers();
  EXPECT_TRUE(submit(held).ok());
  EXPECT_EQ(calls(), (Calls{"stream 0", "batch of 2 s1"}));
  ASSERT_EQ(driver_.last_batch.size(), 2u);
  EXPECT_EQ(driver_.last_batch[0].writeValue.value, 7u);
  EXPECT_EQ(driver_.last_batch[1].writeValue.value64, 1ull << 40);
  EXPECT_EQ(driver_.last_batch[1].writeValue.address, kStaging + 8);
}

TEST_F(HeldWorkTest, ARecordKeepsItsEvent) {
  EXPECT_TRUE(send(wire::EventCreate{1, 0, 0}).ok());
  Work work;
  Event& event = *session_->events.events().find(1);
  RecordWork& record = work.what.emplace<RecordWork>();
  const FenceValue fence{3, 42, 1};
  EXPECT_TRUE(session_->work_maker.make(event, fence, &work.uses, &record).ok());
  auto held = std::make_unique<HeldWork>(work);
  work = Work();
  EXPECT_TRUE(send(wire::EventDestroy{1}).ok());
  EXPECT_TRUE(submit(*held).ok());
  EXPECT_EQ(session_->core.view.fence(3).value.load(), 42u);
  held.reset();
  EXPECT_EQ(calls(), (Calls{"event", "stream 0", "record e1 s1", "write s1 42", "destroy event"}));
}

TEST_F(HeldWorkTest, AnArrayOutlivesTheCopy) {
  map(kBase, wire::kMemoryGranularity);
  EXPECT_TRUE(send(wire::ArrayCreate{1, 0, 64, 8, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1, 0, 0}).ok());
  calls();
  wire::ArrayCopy copy{.stream = 1, .width = 64, .height = 8, .depth = 1};
  copy.destination.array = 1;
  copy.source.address = kBase;
  copy.source.pitch = 64;
  Work work;
  EXPECT_TRUE(session_->work_maker.make(copy, &work.uses, &work.what.emplace<BoxWork>()).ok());
  auto held = std::make_unique<HeldWork>(work);
  work = Work();
  EXPECT_TRUE(send(wire::ArrayDestroy{1}).ok());
  EXPECT_EQ(calls(), Calls{});
  EXPECT_TRUE(submit(*held).ok());
  held.reset();
  session_->core.releases.wait();
  const Calls made = calls();
  ASSERT_EQ(made.size(), 3u);
  EXPECT_EQ(made.back(), "destroy array");
}

TEST_F(HeldWorkTest, AnExecutableGraphOutlivesItsLaunch) {
  EXPECT_TRUE(send(wire::GraphBegin{1, 0}).ok());
  EXPECT_TRUE(send(wire::GraphNode{1, wire::GraphNodeKind::kEmpty, 0, 0, 0}).ok());
  EXPECT_TRUE(send(wire::GraphInstantiate{0, 1}).ok());
  calls();
  Work work;
  GraphExec& exec = *session_->graphs.execs().find(1);
  EXPECT_TRUE(session_->graphs.make_launch(exec, &work).ok());
  auto held = std::make_unique<HeldWork>(work);
  work = Work();
  EXPECT_TRUE(send(wire::GraphExecDestroy{1}).ok());
  EXPECT_EQ(calls(), Calls{});
  EXPECT_TRUE(submit(*held).ok());
  EXPECT_EQ(calls(), (Calls{"stream 0", "graph s1"}));
  held.reset();
  EXPECT_EQ(calls(), (Calls{"destroy exec", "destroy graph"}));
}

}  // namespace
}  // namespace openmps::worker
