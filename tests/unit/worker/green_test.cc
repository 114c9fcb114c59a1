// SPDX-License-Identifier: Apache-2.0
// Green contexts and events of a whole context: what reaches the driver, and what does not.
#include <algorithm>

#include "session_fixture.h"
#include "wire/commands/graph.h"
#include "wire/commands/green.h"
#include "wire/commands/stream.h"

namespace openmps::worker {
namespace {

using wire::StreamKind;

class GreenTest : public SessionFixture {
 protected:
  [[nodiscard]] uint64_t limit() const override { return 0; }
  CUdevResource device_resource() {
    const Status status = send(wire::DeviceResource{0, 0, CU_DEV_RESOURCE_TYPE_SM});
    EXPECT_TRUE(status.ok()) << status.message();
    return reply<CUdevResource>();
  }
  // Two groups of `sms` SMs and the rest.
  std::vector<CUdevResource> split(const CUdevResource& input, uint32_t sms) {
    const Status status = send(wire::ResourceSplit{input, 2, 0, sms, 0, 1});
    EXPECT_TRUE(status.ok()) << status.message();
    const auto made = reply<wire::ResourceSplit::Reply>();
    EXPECT_EQ(made.groups, 2u);
    std::vector<CUdevResource> resources;
    while (resources.size() < made.resources) {
      const auto first = static_cast<uint32_t>(resources.size());
      EXPECT_TRUE(send(wire::ResourceRead{first}).ok());
      for (size_t at = sizeof(wire::ResourceRead::Reply); at < reply_.size();
           at += sizeof(CUdevResource)) {
        resources.push_back(reply<CUdevResource>(at));
      }
    }
    return resources;
  }
  Status describe_resource(wire::Id id, const CUdevResource& resource) {
    return send(wire::ResourceDescribe{id, 1},
                std::string(reinterpret_cast<const char*>(&resource), sizeof(resource)));
  }
  // Green contexts 1 and 2 of two SMs each.
  void make_greens() {
    const std::vector<CUdevResource> parts = split(device_resource(), 2);
    for (wire::Id id = 1; id <= 2; ++id) {
      EXPECT_TRUE(describe_resource(id, parts[id - 1]).ok());
      EXPECT_TRUE(send(wire::GreenCreate{id, id, 0, 1}).ok());
    }
    calls();
  }
  Status green_stream(wire::Id id, wire::Id context, wire::Id green) {
    return send(wire::StreamCreate{id, context, 0, wire::StreamKind::kNonBlocking, 0, green});
  }
};

TEST_F(GreenTest, StreamsAreMadeInTheirGreenContext) {
  make_greens();
  load_module();
  EXPECT_TRUE(green_stream(1, 7, 2).ok());
  create_stream(2, StreamKind::kNonBlocking);
  launch(1);
  launch(2);
  EXPECT_EQ(calls(), (Calls{"stream in g2", "launch s1 16", "stream 0", "launch s2 16"}));
}

TEST_F(GreenTest, StreamsKeepToWhatTheSessionHas) {
  make_greens();
  load_module();
  EXPECT_TRUE(green_stream(1, 7, 2).ok());
  launch(1);
  calls();
  const auto found = [&](const char* call) {
    launch(1);
    const Calls made = calls();
    return std::ranges::find(made, call) != made.end() ? "" : ::testing::PrintToString(made);
  };
  session_->core.parts.set(0, {.sms = 4});
  EXPECT_EQ(found("stream in g3"), "");
  EXPECT_TRUE(green_stream(2, 7, 1).ok());
  launch(2);
  EXPECT_EQ(calls().front(), "stream in g3") << "whoever comes later, too";
  session_->core.parts.set(0, {});
  EXPECT_EQ(found("stream in g2"), "");
}

// What a limited session has split keeps its SMs as long as they are the session's.
TEST_F(GreenTest, WithinWhatTheSessionHasTheyStay) {
  session_->core.parts.set(0, {.sms = 8});
  make_greens();  // g2 and g3: g1 is the session's part
  load_module();
  EXPECT_TRUE(green_stream(1, 7, 1).ok());
  launch(1);
  EXPECT_EQ(calls().front(), "stream in g2");
  for (const uint32_t sms : {10, 0, 8}) {
    session_->core.parts.set(0, {.sms = sms});
    launch(1);
    for (const std::string& call : calls()) EXPECT_EQ(call.find("stream in"), call.npos) << call;
  }
  session_->core.parts.set(0, {.sms = 4});
  launch(1);
  EXPECT_EQ(std::ranges::count(calls(), "stream in g2"), 0);
  EXPECT_NE(session_->streams.streams().find(1)->part, nullptr);
}

TEST_F(GreenTest, SplitsGiveGroupsAndTheRest) {
  const std::vector<CUdevResource> parts = split(device_resource(), 5);
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_EQ(parts[0].sm.smCount, 6u) << "rounded up to the alignment";
  EXPECT_EQ(parts[1].sm.smCount, 6u);
  EXPECT_EQ(parts[2].sm.smCount, kFakeSms - 12);
  EXPECT_NE(parts[0]._internal_padding[0], parts[1]._internal_padding[0]) << "other SMs";
  EXPECT_EQ(send(wire::ResourceSplit{device_resource(), 2, 0, 99, 0, 1}).code(),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_TRUE(is_violation(send(wire::ResourceRead{0}))) << "a failed split leaves nothing to read";
}

// The driver believes what is in a resource: nothing made up may reach it.
TEST_F(GreenTest, OnlyResourcesThatWereGivenAreTaken) {
  CUdevResource made_up = split(device_resource(), 2)[0];
  calls();
  ++made_up._internal_padding[5];
  EXPECT_EQ(describe_resource(1, made_up).code(), CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
  EXPECT_EQ(send(wire::ResourceSplit{made_up, 1, 0, 1, 0, 0}).code(),
            CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
  made_up.type = CU_DEV_RESOURCE_TYPE_INVALID;
  EXPECT_EQ(describe_resource(1, made_up).code(), CUDA_ERROR_INVALID_RESOURCE_TYPE);
  EXPECT_EQ(calls(), Calls{});
}

TEST_F(GreenTest, ResourcesOfAGreenContextGoWithIt) {
  make_greens();
  EXPECT_TRUE(send(wire::DeviceResource{0, 1, CU_DEV_RESOURCE_TYPE_SM}).ok());
  CUdevResource share = reply<CUdevResource>();
  EXPECT_TRUE(describe_resource(3, share).ok());
  EXPECT_TRUE(send(wire::GreenDestroy{1}).ok());
  EXPECT_EQ(describe_resource(4, share).code(), CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
}

TEST_F(GreenTest, EqualResourcesHaveOneDescriptor) {
  const CUdevResource all = device_resource();
  calls();
  for (wire::Id id = 1; id <= 3; ++id) EXPECT_TRUE(describe_resource(id, all).ok());
  EXPECT_EQ(calls(), Calls{"describe"});
}

TEST_F(GreenTest, GoesAfterWhatRunsInIt) {
  make_greens();
  load_module();
  EXPECT_TRUE(green_stream(1, 7, 1).ok());
  driver_.hold(1, true);
  launch(1);
  EXPECT_TRUE(is_violation(send(wire::GreenDestroy{1}))) << "its stream is alive";
  EXPECT_TRUE(send(wire::StreamDestroy{1}).ok());
  EXPECT_EQ(driver_.live(), "greens 2 libraries 1 registrations 1 streams 1");
  EXPECT_TRUE(send(wire::GreenDestroy{1}).ok());
  EXPECT_TRUE(is_violation(send(wire::GreenDestroy{1}))) << "the client has it no more";
  EXPECT_EQ(driver_.live(), "events 1 greens 2 libraries 1 registrations 1 streams 1")
      << "its work goes on";
  driver_.hold(1, false);
  session_->service();
  EXPECT_EQ(driver_.live(), "greens 1 libraries 1 registrations 1");
}

TEST_F(GreenTest, GoesWhenItsStreamsAreElsewhere) {
  make_greens();
  load_module();
  EXPECT_TRUE(green_stream(1, 7, 1).ok());
  for (const uint32_t sms : {4, 0}) {  // the part is there from then on
    session_->core.parts.set(0, {.sms = sms});
    launch(1);
  }
  EXPECT_EQ(driver_.live(), "greens 3 libraries 1 registrations 1 streams 1");
  calls();
  driver_.hold(3, true);
  launch(1);
  EXPECT_EQ(calls().back(), "launch s3 16");
  session_->core.parts.set(0, {.sms = 4});
  launch(1);  // in the session's part, behind what the green context still has
  EXPECT_EQ(calls().front(), "stream in g3");
  EXPECT_TRUE(send(wire::StreamDestroy{1}).ok());
  EXPECT_TRUE(send(wire::GreenDestroy{1}).ok());
  session_->service();
  EXPECT_EQ(driver_.live(), "events 2 greens 3 libraries 1 registrations 1 streams 2");
  driver_.hold(3, false);
  session_->service();
  EXPECT_EQ(driver_.live(), "greens 2 libraries 1 registrations 1");
}

class GreenGraphTest : public GreenTest {
 protected:
  // A kernel of executable graph 1 in that green context; what the driver was asked for last.
  std::string add_kernel(wire::Id green, uint32_t parent = 0) {
    calls();
    const Status status = send(wire::GraphNode{.exec = 1,
                                               .kind = wire::GraphNodeKind::kKernel,
                                               .body_bytes = static_cast<uint32_t>(body_.size()),
                                               .parent = parent,
                                               .green = green},
                               body_);
    EXPECT_TRUE(status.ok()) << status.message();
    return calls().back();
  }

  const wire::Launch launch_ = launch_of(0);
  const std::string body_ =
      std::string(reinterpret_cast<const char*>(&launch_), sizeof launch_) + std::string(16, '\0');
};

TEST_F(GreenGraphTest, KernelsAreInTheirGreenContext) {
  make_greens();
  load_module();
  EXPECT_TRUE(send(wire::GraphBegin{1, 0}).ok());
  EXPECT_EQ(add_kernel(0), "kernel behind 0");
  EXPECT_EQ(add_kernel(2), "kernel in g2 behind 0");
  EXPECT_EQ(add_kernel(1), "kernel in g1 behind 0");
  EXPECT_TRUE(send(wire::GraphInstantiate{0, 1}).ok());
  const wire::GraphSetNode set{1, 1, wire::GraphNodeKind::kKernel,
                               static_cast<uint32_t>(body_.size())};
  calls();
  EXPECT_TRUE(send(set, body_).ok());
  EXPECT_EQ(calls(), (Calls{"set kernel in g2", "refresh kernel in g2"})) << "it stays there";
  EXPECT_TRUE(is_violation(
      send(wire::GraphNode{.exec = 1, .kind = wire::GraphNodeKind::kEmpty, .green = 3})));
}

TEST_F(GreenGraphTest, TheyKeepToWhatTheSessionHas) {
  make_greens();
  load_module();
  create_stream(1, StreamKind::kNonBlocking);
  EXPECT_TRUE(send(wire::GraphBegin{1, 0}).ok());
  add_kernel(0);
  add_kernel(2);
  EXPECT_TRUE(send(wire::GraphInstantiate{0, 1}).ok());
  const auto refreshed = [&](uint32_t sms, const char* where) {
    session_->core.parts.set(0, {.sms = sms});
    calls();
    EXPECT_TRUE(send(wire::GraphLaunch{1, 1}).ok());
    return std::ranges::count(calls(), std::string("refresh kernel") + where);
  };
  EXPECT_EQ(refreshed(4, " in g3"), 2);
  EXPECT_EQ(refreshed(0, " in g2"), 1) << "its own again";
}

TEST_F(GreenGraphTest, BodiesAreInTheirHandles) {
  make_greens();
  load_module();
  for (const wire::Id green : {2, 0}) {
    calls();
    EXPECT_TRUE(
        send(wire::ConditionCreate{.graph = 5, .initial = 1, .flags = 1, .green = green}).ok());
    const wire::GraphConditional conditional{reply<wire::ConditionCreate::Reply>().handle,
                                             CU_GRAPH_COND_TYPE_IF, 1};
    if (green == 2) {
      EXPECT_TRUE(send(wire::GraphBegin{1, 0, 5}).ok());
    }
    EXPECT_TRUE(send(wire::GraphNode{1, wire::GraphNodeKind::kConditional, 0, sizeof conditional},
                     std::string(reinterpret_cast<const char*>(&conditional), sizeof conditional))
                    .ok());
  }
  EXPECT_EQ(add_kernel(2, 1), "kernel in g2 behind 0");
  EXPECT_EQ(add_kernel(0, 2), "kernel behind 0");
}

// An executable graph may be launched after its green contexts were destroyed.
TEST_F(GreenGraphTest, GoesWithTheLastGraph) {
  make_greens();
  load_module();
  EXPECT_TRUE(send(wire::GraphBegin{1, 0}).ok());
  add_kernel(1);
  EXPECT_TRUE(send(wire::GraphInstantiate{0, 1}).ok());
  const std::string before = driver_.live();
  EXPECT_TRUE(send(wire::GreenDestroy{1}).ok());
  session_->service();
  EXPECT_EQ(driver_.live(), before);
  EXPECT_TRUE(send(wire::GraphExecDestroy{1}).ok());
  session_->service();
  EXPECT_EQ(driver_.live(), "greens 1 libraries 1 registrations 1");
}

// Both wait for a quiet moment.
TEST_F(GreenGraphTest, GoesBehindTheGraphsThatRanInIt) {
  make_greens();
  load_module();
  create_stream(1, StreamKind::kNonBlocking);
  EXPECT_TRUE(send(wire::GraphBegin{1, 0}).ok());
  add_kernel(1);
  EXPECT_TRUE(send(wire::GraphInstantiate{0, 1}).ok());
  driver_.hold(1, true);
  launch(1);
  EXPECT_TRUE(send(wire::GraphExecDestroy{1}).ok());
  EXPECT_TRUE(send(wire::GreenDestroy{1}).ok());
  EXPECT_NE(driver_.live().find("execs 1"), std::string::npos) << driver_.live();
  calls();
  driver_.hold(1, false);
  session_->service();
  const Calls made = calls();
  const auto exec = std::ranges::find(made, "destroy exec");
  const auto green = std::ranges::find(made, "destroy green");
  EXPECT_TRUE(exec < green && green != made.end()) << ::testing::PrintToString(made);
}

TEST_F(GreenTest, RefusesWhatItDoesNotHave) {
  make_greens();
  EXPECT_TRUE(is_violation(green_stream(1, 1, 3)));
  EXPECT_TRUE(is_violation(send(wire::GreenDestroy{3})));
  EXPECT_TRUE(is_violation(send(wire::GreenCreate{3, 9, 0, 1})));
  EXPECT_TRUE(is_violation(send(wire::GreenCreate{1, 1, 0, 1})));
  EXPECT_TRUE(is_violation(send(wire::GreenCreate{3, 1, 1, 1})));
  EXPECT_TRUE(is_violation(send(wire::DeviceResource{0, 3, 1})));
  EXPECT_TRUE(is_violation(send(wire::DeviceResource{1, 0, 1})));
  EXPECT_TRUE(is_violation(describe_resource(1, device_resource()))) << "the id is in use";
  const wire::ResourceSplit large{device_resource(), wire::kMaxResourceGroups + 1, 0, 1, 0};
  EXPECT_TRUE(is_violation(send(large)));
  EXPECT_EQ(send(wire::GreenCreate{3, 1, 0, 0}).code(), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(GreenTest, ThereIsALimit) {
  EXPECT_TRUE(describe_resource(1, device_resource()).ok());
  for (wire::Id id = 1; id <= wire::kMaxGreenContexts; ++id) {
    EXPECT_TRUE(send(wire::GreenCreate{id, 1, 0, 1}).ok());
  }
  const wire::GreenCreate more{wire::kMaxGreenContexts + 1, 1, 0, 1};
  EXPECT_EQ(send(more).code(), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_TRUE(send(wire::GreenDestroy{5}).ok());
  EXPECT_TRUE(send(more).ok());
}

TEST_F(GreenTest, ADriverWithoutThem) {
  DriverTable old = driver_.table();
  old.cuGreenCtxStreamCreate = nullptr;
  WorkerParts worker_parts(clock_);
  SessionInfo info;
  info.id = 2;
  SessionParts session(old, *devices_, gate_, worker_parts, info);
  EXPECT_EQ(send_to(session, wire::DeviceResource{0, 0, CU_DEV_RESOURCE_TYPE_SM}).code(),
            CUDA_ERROR_NOT_SUPPORTED);
}

// ---- Events of a whole context ------------------------------------------------------------------

TEST_F(GreenTest, AStreamJoinsTheBusyStreamsOfItsContext) {
  load_module();
  for (wire::Id id = 1; id <= 3; ++id) create_stream(id, StreamKind::kNonBlocking, 1);
  create_stream(4, StreamKind::kNonBlocking, 2);  // of another context
  create_stream(5, StreamKind::kNonBlocking, 1);
  launch(1);
  launch(3);
  launch(4);
  calls();
  EXPECT_TRUE(send(wire::ContextJoin{5, 1}).ok());
  EXPECT_EQ(calls(), (Calls{"stream 0", "event", "record e1 s1", "wait s4 e1", "event",
                            "record e2 s2", "wait s4 e2"}));
  EXPECT_TRUE(send(wire::ContextJoin{5, 77}).ok()) << "has no streams";
  EXPECT_EQ(calls(), Calls{});
  EXPECT_TRUE(is_violation(send(wire::ContextJoin{6, 1})));
}

TEST_F(GreenTest, LaterWorkOfAContextFollowsAStream) {
  load_module();
  for (wire::Id id = 1; id <= 3; ++id) create_stream(id, StreamKind::kNonBlocking, 1);
  create_stream(4, StreamKind::kNonBlocking, 2);
  launch(1);
  launch(4);
  calls();
  EXPECT_TRUE(send(wire::ContextFollow{3}).ok());
  EXPECT_EQ(calls(), (Calls{"stream 0", "event", "record e1 s3"}));
  launch(1);
  EXPECT_EQ(calls(), (Calls{"wait s1 e1", "launch s1 16"}));
  launch(1);
  EXPECT_EQ(calls(), Calls{"launch s1 16"}) << "once";
  launch(2);
  EXPECT_EQ(calls(), (Calls{"stream 0", "wait s4 e1", "launch s4 16"})) << "a new stream, too";
  launch(4);
  EXPECT_EQ(calls(), Calls{"launch s2 16"}) << "another context does not";
  EXPECT_TRUE(is_violation(send(wire::ContextFollow{9})));
}

// Beside a stream that waits for its client.
class GreenBesideTest : public GreenGraphTest {
 protected:
  void SetUp() override {
    GreenGraphTest::SetUp();
    load_module();
    ASSERT_EQ(driver_.table().cuStreamCreateWithPriority(&waiting_, CU_STREAM_NON_BLOCKING, 0),
              CUDA_SUCCESS);
    driver_.hold(1, true);
    driver_.table().cuMemcpyAsync(0, 0, 1, waiting_);
    neighbour_ = gate_.add(waiting_, 0);
    neighbour_->set_busy();
    neighbour_->waits = true;
    calls();
  }
  void TearDown() override {
    end_neighbour();
    gate_.remove(neighbour_);
    driver_.table().cuStreamDestroy_v2(waiting_);
    GreenGraphTest::TearDown();
  }
  void end_neighbour() {
    driver_.hold(1, false);
    while (gate_.has_deferred() || gate_.is_collecting()) gate_.run_deferred();
  }
  size_t found(const char* call) {
    const Calls made = calls();
    return static_cast<size_t>(std::ranges::count(made, std::string(call)));
  }

 private:
  CUstream waiting_ = nullptr;
  ContextGate::Stream* neighbour_ = nullptr;
};

TEST_F(GreenBesideTest, WhatIsInItRunsElsewhereUntilItIsThere) {
  make_greens();
  EXPECT_TRUE(green_stream(1, 7, 2).ok());
  launch(1);
  EXPECT_EQ(calls(), (Calls{"stream 0", "launch s2 16"}));
  EXPECT_TRUE(send(wire::GraphBegin{1, 0}).ok());
  EXPECT_EQ(add_kernel(2), "kernel behind 0");
  EXPECT_TRUE(send(wire::GraphInstantiate{0, 1}).ok());
  EXPECT_TRUE(send(wire::DeviceResource{0, 2, CU_DEV_RESOURCE_TYPE_SM}).ok());
  EXPECT_EQ(reply<CUdevResource>().sm.smCount, 2u) << "as if it were there";
  end_neighbour();
  calls();
  launch(1);
  EXPECT_EQ(found("stream in g2"), 1u);
  EXPECT_TRUE(send(wire::GraphLaunch{1, 1}).ok());
  EXPECT_EQ(found("refresh kernel in g2"), 1u);
}

TEST_F(GreenBesideTest, WithinTheSessionsLimit) {
  session_->core.parts.set(0, {.sms = 4});
  create_stream(2, StreamKind::kNonBlocking);  // which has to have its set, later, too
  make_greens();
  EXPECT_TRUE(green_stream(1, 7, 2).ok());
  EXPECT_EQ(session_->streams.streams().find(1)->part, session_->streams.streams().find(2)->part);
}

TEST_F(GreenBesideTest, OneThatIsGoneIsNotMade) {
  make_greens();
  EXPECT_TRUE(send(wire::GreenDestroy{1}).ok());
  EXPECT_TRUE(send(wire::GreenDestroy{2}).ok());
  session_->core.releases.sweep();
  end_neighbour();
  EXPECT_EQ(driver_.live().find("greens"), std::string::npos) << driver_.live();
  EXPECT_TRUE(send(wire::GreenCreate{3, 1, 0, 1}).ok());
  EXPECT_NE(driver_.live().find("greens 1"), std::string::npos) << "beside nobody";
}

}  // namespace
}  // namespace openmps::worker
