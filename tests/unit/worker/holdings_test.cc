// SPDX-License-Identifier: Apache-2.0
// What one session may make a worker hold (wire/limits.h, docs/limits.md): each limit is kept, what
// comes beyond it is refused, and what is given back is free again.
#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "session_fixture.h"
#include "wire/commands/array.h"
#include "wire/commands/code.h"
#include "wire/commands/graph.h"
#include "wire/commands/green.h"
#include "wire/commands/memory.h"
#include "wire/commands/stream.h"
#include "worker/code/linker.h"
#include "worker/graphs/driver_graph.h"
#include "worker/images/image_facts.h"

namespace openmps::worker {
namespace {

template <typename T>
std::string text_of(const T& value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof(value));
}

class HoldingsTest : public SessionFixture {
 protected:
  Status announce(wire::Id blob, uint64_t bytes) { return send(wire::BlobBegin{bytes, blob}); }
  Status load(wire::Id module, wire::Id blob) {
    return send(wire::ModuleLoad{module, blob, 0, wire::ModuleKind::kModule, 0, 0});
  }
  Status load_text(wire::Id module, const std::string& image) {
    EXPECT_TRUE(announce(9, image.size()).ok());
    memcpy(session_->core.view.staging(), image.data(), image.size());
    const auto bytes = static_cast<uint32_t>(image.size());
    EXPECT_TRUE(send(wire::BlobData{9, bytes, 0, kStaging}).ok());
    return load(module, 9);
  }
  uint64_t granted() { return session_->memory.granted(0); }
};

TEST_F(HoldingsTest, ImagesThatAreAnnouncedAndNotLoaded) {
  EXPECT_TRUE(announce(1, wire::kMaxAnnouncedBytes - 4).ok());
  EXPECT_TRUE(load_text(1, "code").ok()) << "all but what was announced before is left";
  EXPECT_TRUE(announce(2, 4).ok());
  EXPECT_TRUE(announce(3, 1).ok()) << "the load that uses it is told";
  EXPECT_TRUE(send(wire::BlobData{3, 1, 0, kStaging}).ok());
  const Status refused = load(2, 3);
  EXPECT_EQ(refused.code(), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_NE(refused.message().find("not loaded yet"), std::string::npos) << refused.message();
}

TEST_F(HoldingsTest, AllImagesOfASession) {
  session_->modules.hold_image(wire::kMaxSessionImageBytes - 4);
  EXPECT_TRUE(load_text(1, "code").ok());
  EXPECT_EQ(load_text(2, "more").code(), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_TRUE(send(wire::ModuleUnload{1}).ok());
  EXPECT_TRUE(load_text(2, "more").ok());
  EXPECT_TRUE(is_violation(announce(5, wire::kMaxSessionImageBytes + 1)));
  session_->modules.drop_image(wire::kMaxSessionImageBytes - 4);
}

TEST_F(HoldingsTest, InputsOfALinkAreImagesUntilItIsDestroyed) {
  session_->modules.hold_image(wire::kMaxSessionImageBytes - 6);
  EXPECT_TRUE(send(wire::LinkCreate{1, 0, 0, 0}).ok());
  EXPECT_TRUE(announce(1, 4).ok());
  memcpy(session_->core.view.staging(), "code", 4);
  EXPECT_TRUE(send(wire::BlobData{1, 4, 0, kStaging}).ok());
  EXPECT_TRUE(send(wire::LinkAdd{1, 1, CU_JIT_INPUT_PTX, 0, 0}).ok());
  EXPECT_EQ(load_text(1, "code").code(), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_TRUE(send(wire::LinkDestroy{1}).ok());
  EXPECT_TRUE(load_text(1, "code").ok());
  session_->modules.drop_image(wire::kMaxSessionImageBytes - 6);
}

TEST_F(HoldingsTest, VariablesOfModulesAreDeviceMemory) {
  const std::string large = ".visible .global .align 4 .b8 big[67108865];";  // the limit and one
  EXPECT_EQ(load_text(1, large).code(), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(granted(), 0u);
  EXPECT_TRUE(load_text(1, ".global .v4 .f32 some[3][5];\n.global .u64 one = 7;").ok());
  EXPECT_EQ(granted(), 3u * 5 * 16 + 8);
  EXPECT_TRUE(send(wire::ModuleUnload{1}).ok());
  EXPECT_EQ(granted(), 0u);
  // Memory that the driver refuses is not charged.
  EXPECT_FALSE(load_text(1, "bad code .global .b8 some[4];").ok());
  EXPECT_EQ(granted(), 0u);
}

TEST_F(HoldingsTest, GreenContextsAreDeviceMemory) {
  EXPECT_TRUE(send(wire::DeviceResource{0, 0, CU_DEV_RESOURCE_TYPE_SM}).ok());
  const auto resource = reply<CUdevResource>();
  EXPECT_TRUE(send(wire::ResourceDescribe{1, 1}, text_of(resource)).ok());
  constexpr auto kFit = static_cast<wire::Id>(kLimit / wire::kGreenContextBytes);
  for (wire::Id id = 1; id <= kFit; ++id) {
    EXPECT_TRUE(send(wire::GreenCreate{id, 1, 0, 1}).ok());
  }
  const wire::GreenCreate more{kFit + 1, 1, 0, 1};
  EXPECT_EQ(send(more).code(), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_TRUE(send(wire::GreenDestroy{1}).ok());
  EXPECT_TRUE(send(more).ok());
}

TEST_F(HoldingsTest, BytesOfGraphs) {
  load_module();
  wire::Launch launch = launch_of(0);
  launch.parameter_bytes = wire::kMaxKernelParameterBytes;
  const std::string body = text_of(launch) + std::string(launch.parameter_bytes, '\0');
  const auto describe = [&](wire::Id exec, uint64_t nodes) {
    EXPECT_TRUE(send(wire::GraphBegin{exec, 0}).ok());
    const wire::GraphNode node{exec, wire::GraphNodeKind::kKernel, 0,
                               static_cast<uint32_t>(body.size())};
    for (uint64_t i = 0; i < nodes; ++i) {
      if (!send(node, body).ok()) break;
    }
    return send(wire::GraphInstantiate{0, exec});
  };
  const uint64_t fit = wire::kMaxGraphBytes / (sizeof(GraphStep) + body.size());
  EXPECT_TRUE(describe(1, fit).ok());
  EXPECT_EQ(describe(2, 1).code(), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_TRUE(send(wire::GraphExecDestroy{1}).ok());
  EXPECT_EQ(describe(2, fit + 1).code(), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_TRUE(describe(2, 8).ok()) << "what was described before is gone";
}

TEST_F(HoldingsTest, NodesOfGraphs) {
  const auto begin = [&](wire::Id exec, wire::Id graph) {
    EXPECT_TRUE(send(wire::GraphBegin{exec, 0, graph}).ok());
  };
  const auto describe = [&](wire::Id exec, wire::GraphNodeKind kind, const std::string& body) {
    const wire::GraphNode node{exec, kind, 0, static_cast<uint32_t>(body.size())};
    EXPECT_TRUE(send(node, body).ok());
  };
  const auto instantiate = [&](wire::Id exec) { return send(wire::GraphInstantiate{0, exec}); };
  const auto handle_of = [&](wire::Id graph) {
    EXPECT_TRUE(send(wire::ConditionCreate{graph, 0, 1, 1}).ok());
    return reply<wire::ConditionCreate::Reply>().handle;
  };
  // A node of a graph with handles is held twice, and a conditional one's bodies count as nodes:
  // these leave space for one.
  constexpr uint32_t kEach = wire::kMaxConditionalBodies + 2;
  constexpr uint32_t kRest = wire::kMaxGraphNodes % kEach - 2 - 1;
  std::vector<uint32_t> bodies(wire::kMaxGraphNodes / kEach, wire::kMaxConditionalBodies);
  bodies.push_back(kRest);
  std::vector<uint64_t> handles;
  while (handles.size() < bodies.size()) handles.push_back(handle_of(5));
  begin(1, 5);
  for (size_t i = 0; i < bodies.size(); ++i) {
    describe(1, wire::GraphNodeKind::kConditional,
             text_of(wire::GraphConditional{handles[i], CU_GRAPH_COND_TYPE_SWITCH, bodies[i]}));
  }
  EXPECT_TRUE(instantiate(1).ok());

  handle_of(6);
  begin(2, 6);
  describe(2, wire::GraphNodeKind::kEmpty, "");
  EXPECT_EQ(instantiate(2).code(), CUDA_ERROR_OUT_OF_MEMORY) << "needs room for two";
  const auto two_nodes = [&] {
    begin(3, 0);
    for (int i = 0; i < 2; ++i) describe(3, wire::GraphNodeKind::kEmpty, "");
    return instantiate(3);
  };
  EXPECT_EQ(two_nodes().code(), CUDA_ERROR_OUT_OF_MEMORY);
  begin(3, 0);
  describe(3, wire::GraphNodeKind::kEmpty, "");
  EXPECT_TRUE(instantiate(3).ok());
  EXPECT_TRUE(send(wire::GraphExecDestroy{1}).ok());
  EXPECT_TRUE(send(wire::GraphExecDestroy{3}).ok());
  EXPECT_TRUE(send(wire::GraphForget{5}).ok());
  EXPECT_TRUE(two_nodes().ok());
}

TEST_F(HoldingsTest, ConditionalHandles) {
  const auto add = [&](wire::Id graph) { return send(wire::ConditionCreate{graph, 0, 1, 1}); };
  for (uint32_t i = 1; i < wire::kMaxConditions; ++i) ASSERT_TRUE(add(5).ok()) << i;
  EXPECT_TRUE(add(6).ok());
  EXPECT_EQ(add(6).code(), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(add(7).code(), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_TRUE(send(wire::GraphForget{6}).ok());
  EXPECT_TRUE(add(5).ok());
}

TEST_F(HoldingsTest, Links) {
  const auto open = [&](wire::Id id) { return send(wire::LinkCreate{id, 0, 0, 0}); };
  for (wire::Id id = 1; id <= kMaxLinks; ++id) EXPECT_TRUE(open(id).ok());
  EXPECT_EQ(open(kMaxLinks + 1).code(), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_TRUE(send(wire::LinkDestroy{7}).ok());
  EXPECT_TRUE(open(kMaxLinks + 1).ok());
}

// Drivers refuse it; this one does not.
TEST_F(HoldingsTest, AnArrayOfNoTexelsIsDestroyedAsWell) {
  EXPECT_TRUE(send(wire::ArrayCreate{1, 0, 0, 0, 0, CU_AD_FORMAT_FLOAT, 0, 0, 0}).ok());
  EXPECT_NE(granted(), 0u);
  EXPECT_TRUE(send(wire::ArrayDestroy{1}).ok());
  EXPECT_EQ(granted(), 0u);
}

TEST_F(HoldingsTest, ReservedAddresses) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer leaves no such range of addresses";
#endif
  const auto reserve = [&](uint64_t bytes) {
    return send(wire::AddressReserve{bytes, wire::kMemoryGranularity});
  };
  const auto free = [&](uint64_t address, uint64_t bytes) {
    return send(wire::AddressFree{address, bytes});
  };
  EXPECT_TRUE(reserve(wire::kMaxExtentBytes).ok());
  const uint64_t largest = reply<wire::AddressReserve::Reply>().address;
  EXPECT_EQ(reserve(wire::kMemoryGranularity).code(), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_TRUE(free(largest, wire::kMaxExtentBytes).ok());

  for (uint32_t i = 0; i < wire::kMaxExtents; ++i) {
    EXPECT_TRUE(reserve(wire::kMemoryGranularity).ok()) << i;
  }
  const uint64_t last = reply<wire::AddressReserve::Reply>().address;
  EXPECT_EQ(reserve(wire::kMemoryGranularity).code(), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_TRUE(free(last, wire::kMemoryGranularity).ok());
  EXPECT_TRUE(reserve(wire::kMemoryGranularity).ok());
}

TEST_F(HoldingsTest, OffersToOtherProcesses) {
  EXPECT_TRUE(send(wire::EventCreate{1, CU_EVENT_INTERPROCESS, 0}).ok());
  const auto publish = [&] { return send(wire::EventPublish{1}); };
  for (uint32_t i = 0; i < kMaxOffers; ++i) ASSERT_TRUE(publish().ok()) << i;
  const auto last = reply<wire::ShareKey>();
  EXPECT_EQ(publish().code(), CUDA_ERROR_OUT_OF_MEMORY);
  map(kBase, wire::kMemoryGranularity);
  const wire::MemoryPublish memory{kBase, wire::kMemoryGranularity};
  EXPECT_EQ(send(memory).code(), CUDA_ERROR_OUT_OF_MEMORY);
  wire::ShareKey key;
  std::shared_ptr<DriverEvent> event = worker_parts_.exchange.event(last);
  ASSERT_NE(event, nullptr);
  EXPECT_TRUE(worker_parts_.exchange.publish(2, std::move(event), &key)) << "others have their own";
  worker_parts_.exchange.withdraw_all(2);
  EXPECT_TRUE(send(wire::MemoryWithdraw{last}).ok());
  EXPECT_TRUE(send(memory).ok());
}

TEST_F(HoldingsTest, ResourcesAndTheirDescriptors) {
  // Of a device whose resource is another at every look.
  DriverTable restless = driver_.table();
  restless.cuDeviceGetDevResource = [](CUdevice, CUdevResource* resource, CUdevResourceType type) {
    static uint32_t looks = 0;
    *resource = {};
    resource->type = type;
    ++looks;
    memcpy(resource->_internal_padding, &looks, sizeof(looks));
    return CUDA_SUCCESS;
  };
  WorkerParts worker_parts(clock_);
  SessionInfo info;
  info.id = 2;
  SessionParts other(restless, *devices_, gate_, worker_parts, info);
  const auto look = [&] {
    return send_to(other, wire::DeviceResource{0, 0, CU_DEV_RESOURCE_TYPE_SM});
  };
  for (uint32_t i = 0; i < wire::kMaxResources; ++i) ASSERT_TRUE(look().ok()) << i;
  const auto last = reply<CUdevResource>();
  EXPECT_EQ(look().code(), CUDA_ERROR_OUT_OF_MEMORY);

  const auto describe = [&](wire::Id id) {
    const std::string bytes(reinterpret_cast<const char*>(&last), sizeof(last));
    return send_to(other, wire::ResourceDescribe{id, 1}, bytes);
  };
  for (wire::Id id = 1; id <= wire::kMaxDescriptors; ++id) ASSERT_TRUE(describe(id).ok()) << id;
  EXPECT_EQ(describe(wire::kMaxDescriptors + 1).code(), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_TRUE(send_to(other, wire::GreenCreate{1, wire::kMaxDescriptors, 0, 1}).ok())
      << "the last is good";
  other.release();
}

TEST_F(HoldingsTest, IdsOfFunctionsArraysAndPhysicalMemory) {
  load_module();
  const auto function = [&](wire::Id id) {
    return send(wire::GetFunction{1, id, wire::ModuleKind::kModule, 4}, "kern");
  };
  EXPECT_TRUE(function(wire::kMaxObjects).ok());
  EXPECT_TRUE(is_violation(function(wire::kMaxObjects + 1)));
  const auto array = [&](wire::Id id) {
    return send(wire::ArrayCreate{id, 0, 64, 64, 0, CU_AD_FORMAT_FLOAT, 1, 0, 0});
  };
  EXPECT_TRUE(array(wire::kMaxObjects).ok());
  EXPECT_TRUE(is_violation(array(wire::kMaxObjects + 1)));
  const auto physical = [&](wire::Id id) {
    return send(wire::PhysicalCreate{id, 0, wire::kMemoryGranularity, 0});
  };
  EXPECT_TRUE(physical(wire::kMaxObjects).ok());
  EXPECT_TRUE(is_violation(physical(wire::kMaxObjects + 1)));
}

TEST_F(HoldingsTest, SlotsOfFencesAndHostFunctions) {
  create_stream(1, wire::StreamKind::kNonBlocking);
  EXPECT_TRUE(send(wire::Fence{1, wire::kFenceSlots - 1, 1}).ok());
  EXPECT_TRUE(is_violation(send(wire::Fence{1, wire::kFenceSlots, 1})));
  const wire::HostFunction last{1, wire::kCallbackSlots - 1};
  EXPECT_TRUE(send(last).ok());
  session_->core.view.callback(last.slot).done.store(1);
  EXPECT_TRUE(
      is_violation(send(wire::HostFunction{1, wire::kCallbackSlots, 0, wire::kNoFence, 0})));
}

TEST_F(HoldingsTest, DescriptorsOnTheirWay) {
  DescriptorInbox inbox;
  const auto put = [&](uint32_t ticket) {
    Result<UniqueFd> file = create_shared_file("passed", 4096);
    ASSERT_TRUE(file.ok());
    inbox.put(ticket, std::move(file).value());
  };
  for (uint32_t ticket = 1; ticket <= wire::kMaxPassing; ++ticket) put(ticket);
  EXPECT_TRUE(inbox.take(1).valid()) << "the first of as many as there may be";
  put(wire::kMaxPassing + 1);
  put(wire::kMaxPassing + 2);
  EXPECT_TRUE(inbox.take(3).valid());
  EXPECT_TRUE(inbox.take(wire::kMaxPassing + 2).valid());
}

TEST_F(HoldingsTest, Streams) {
  for (wire::Id id = 1; id <= wire::kMaxStreams; ++id) {
    create_stream(id, wire::StreamKind::kNonBlocking);
  }
  const auto kind = wire::StreamKind::kNonBlocking;
  const wire::StreamCreate more{wire::kMaxStreams + 1, 1, 0, kind, 0, 0};
  EXPECT_TRUE(is_violation(send(more)));
  EXPECT_TRUE(send(wire::StreamDestroy{1}).ok());
  EXPECT_TRUE(send(more).ok());
}

TEST_F(HoldingsTest, IdsOfEventsExecutableGraphsModulesAndImages) {
  EXPECT_TRUE(send(wire::EventCreate{wire::kMaxEvents, 0, 0}).ok());
  EXPECT_TRUE(is_violation(send(wire::EventCreate{wire::kMaxEvents + 1, 0, 0})));
  EXPECT_TRUE(send(wire::GraphBegin{wire::kMaxGraphExecs, 0}).ok());
  EXPECT_TRUE(is_violation(send(wire::GraphBegin{wire::kMaxGraphExecs + 1, 0})));
  EXPECT_TRUE(load_text(wire::kMaxModules, "code").ok());
  EXPECT_TRUE(is_violation(load_text(wire::kMaxModules + 1, "code")));
  EXPECT_TRUE(send(wire::ArrayCreate{1, 0, 64, 64, 0, CU_AD_FORMAT_FLOAT, 1, 0, 0}).ok());
  wire::ImageCreate image{};
  image.type = CU_RESOURCE_TYPE_ARRAY;
  image.array = 1;
  image.image = wire::kMaxImageObjects;
  EXPECT_TRUE(send(image).ok());
  image.image = wire::kMaxImageObjects + 1;
  EXPECT_TRUE(is_violation(send(image)));
}

TEST_F(HoldingsTest, MappingsAndRegistrations) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a window of ThreadSanitizer's has fewer pages";
#endif
  const auto page = [](uint64_t number) {
    return wire::HostRegister{kPinned + number * wire::kHostPageBytes, wire::kHostPageBytes};
  };
  // The channel is one, too.
  for (uint64_t i = 0; i + 1 < wire::kMaxMappings; ++i) {
    ASSERT_TRUE(send(page(i)).ok()) << i;
  }
  EXPECT_EQ(send(page(wire::kMaxMappings)).code(), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(send(wire::MemoryMap{kBase, wire::kMemoryGranularity, 0}).code(),
            CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(granted(), 0u);
  EXPECT_TRUE(send(wire::HostUnregister{page(7).address, page(7).bytes}).ok());
  map(kBase, wire::kMemoryGranularity);
}

// ---- The size of variables ----------------------------------------------------------------------

uint64_t variables_of(const std::string& image) {
  return read_image_facts({reinterpret_cast<const unsigned char*>(image.data()), image.size()}, 90)
      .variable_bytes;
}

TEST(VariableBytes, OfPtx) {
  EXPECT_EQ(variables_of(".version 7.0\n.target sm_70\n"), 0u);
  EXPECT_EQ(variables_of(".global .align 1 .b8 big[536870912];"), 536870912u);
  EXPECT_EQ(variables_of(".visible .global .u32 a;\n.weak .global .f64 b[2];"), 4u + 16);
  EXPECT_EQ(variables_of(".global .align 8 .b8 text[] = {72, 105, 0};"), 3u);
  EXPECT_EQ(variables_of(".extern .global .b8 elsewhere[4096];"), 0u);
  EXPECT_EQ(variables_of("ld.global.u32 %r1, [%rd1];\nst.global.v4.f32 [%rd2], {%f1};"), 0u);
  EXPECT_EQ(
      variables_of(".global .b8 huge[0xffffffffffffffff];\n.global .b64 more[0x7fffffffffffffff];"),
      ~0ull)
      << "more than there is";
}

}  // namespace
}  // namespace openmps::worker
