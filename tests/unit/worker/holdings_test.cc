// SPDX-License-Identifier: Apache-2.0
// What one session may make a worker hold (wire/limits.h, docs/limits.md): each limit is kept, what
// comes beyond it is refused, and what is given back is free again.
#include <gtest/gtest.h>
#include <string.h>

#include <string>

#include "session_fixture.h"
#include "wire/array_commands.h"
#include "wire/graph_commands.h"
#include "wire/green_commands.h"
#include "worker/image_facts.h"

namespace openmps::worker {
namespace {

using wire::Opcode;

template <typename T>
std::string text_of(const T& value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof(value));
}

class HoldingsTest : public SessionFixture {
 protected:
  Status announce(wire::Id blob, uint64_t bytes) {
    return send(Opcode::kBlobBegin, wire::BlobBegin{blob, 0, bytes});
  }
  Status load(wire::Id module, wire::Id blob) {
    return send(Opcode::kModuleLoad, wire::ModuleLoad{module, blob, 0, 0, 0, 0});
  }
  Status load_text(wire::Id module, const std::string& image) {
    EXPECT_TRUE(announce(9, image.size()).ok());
    memcpy(session_->core.view.staging(), image.data(), image.size());
    const auto bytes = static_cast<uint32_t>(image.size());
    EXPECT_TRUE(send(Opcode::kBlobData, wire::BlobData{9, bytes, 0, kStaging}).ok());
    return load(module, 9);
  }
  uint64_t granted() { return session_->memory.granted(0); }
};

TEST_F(HoldingsTest, ImagesThatAreAnnouncedAndNotLoaded) {
  EXPECT_TRUE(announce(1, wire::kMaxAnnouncedBytes - 4).ok());
  EXPECT_TRUE(load_text(1, "code").ok()) << "all but what was announced before is left";
  EXPECT_TRUE(announce(2, 4).ok());
  EXPECT_TRUE(announce(3, 1).ok()) << "the load that uses it is told";
  EXPECT_TRUE(send(Opcode::kBlobData, wire::BlobData{3, 1, 0, kStaging}).ok());
  const Status refused = load(2, 3);
  EXPECT_EQ(refused.code(), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_NE(refused.message().find("not loaded yet"), std::string::npos) << refused.message();
}

TEST_F(HoldingsTest, AllImagesOfASession) {
  session_->modules.hold_image(wire::kMaxSessionImageBytes - 4);
  EXPECT_TRUE(load_text(1, "code").ok());
  EXPECT_EQ(load_text(2, "more").code(), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_TRUE(send(Opcode::kModuleUnload, wire::ObjectOnly{1, 0}).ok());
  EXPECT_TRUE(load_text(2, "more").ok());
  EXPECT_TRUE(is_violation(announce(5, wire::kMaxSessionImageBytes + 1)));
  session_->modules.drop_image(wire::kMaxSessionImageBytes - 4);
}

TEST_F(HoldingsTest, InputsOfALinkAreImagesUntilItIsDestroyed) {
  session_->modules.hold_image(wire::kMaxSessionImageBytes - 6);
  EXPECT_TRUE(send(Opcode::kLinkCreate, wire::LinkCreate{1, 0, 0, 0}).ok());
  EXPECT_TRUE(announce(1, 4).ok());
  memcpy(session_->core.view.staging(), "code", 4);
  EXPECT_TRUE(send(Opcode::kBlobData, wire::BlobData{1, 4, 0, kStaging}).ok());
  EXPECT_TRUE(send(Opcode::kLinkAdd, wire::LinkAdd{1, 1, CU_JIT_INPUT_PTX, 0, 0, 0}).ok());
  EXPECT_EQ(load_text(1, "code").code(), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_TRUE(send(Opcode::kLinkDestroy, wire::ObjectOnly{1, 0}).ok());
  EXPECT_TRUE(load_text(1, "code").ok());
  session_->modules.drop_image(wire::kMaxSessionImageBytes - 6);
}

TEST_F(HoldingsTest, VariablesOfModulesAreDeviceMemory) {
  const std::string large = ".visible .global .align 4 .b8 big[67108865];";  // the limit and one
  EXPECT_EQ(load_text(1, large).code(), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(granted(), 0u);
  EXPECT_TRUE(load_text(1, ".global .v4 .f32 some[3][5];\n.global .u64 one = 7;").ok());
  EXPECT_EQ(granted(), 3u * 5 * 16 + 8);
  EXPECT_TRUE(send(Opcode::kModuleUnload, wire::ObjectOnly{1, 0}).ok());
  EXPECT_EQ(granted(), 0u);
  // What the driver refuses is charged to nobody.
  EXPECT_FALSE(load_text(1, "bad code .global .b8 some[4];").ok());
  EXPECT_EQ(granted(), 0u);
}

TEST_F(HoldingsTest, GreenContextsAreDeviceMemory) {
  EXPECT_TRUE(
      send(Opcode::kDeviceResource, wire::DeviceResource{0, 0, CU_DEV_RESOURCE_TYPE_SM, 0}).ok());
  const auto resource = reply<CUdevResource>();
  EXPECT_TRUE(
      send(Opcode::kResourceDescribe, wire::ResourceDescribe{1, 1}, text_of(resource)).ok());
  constexpr auto kFit = static_cast<wire::Id>(kLimit / wire::kGreenContextBytes);
  for (wire::Id id = 1; id <= kFit; ++id) {
    EXPECT_TRUE(send(Opcode::kGreenCreate, wire::GreenCreate{id, 1, 0, 1}).ok());
  }
  const wire::GreenCreate more{kFit + 1, 1, 0, 1};
  EXPECT_EQ(send(Opcode::kGreenCreate, more).code(), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_TRUE(send(Opcode::kGreenDestroy, wire::ObjectOnly{1, 0}).ok());
  EXPECT_TRUE(send(Opcode::kGreenCreate, more).ok());
}

TEST_F(HoldingsTest, BytesOfGraphs) {
  load_module();
  wire::Launch launch = launch_of(0);
  launch.parameter_bytes = wire::kMaxKernelParameterBytes;
  const std::string body = text_of(launch) + std::string(launch.parameter_bytes, '\0');
  const wire::GraphNode node{1, static_cast<uint32_t>(wire::GraphNodeKind::kKernel),
                             0, static_cast<uint32_t>(body.size()),
                             0, 0};
  const auto describe = [&](uint64_t nodes) {
    EXPECT_TRUE(send(Opcode::kGraphBegin, wire::GraphBegin{1, 0}).ok());
    for (uint64_t i = 0; i < nodes; ++i) {
      if (!send(Opcode::kGraphNode, node, body).ok()) return false;
    }
    return true;
  };
  constexpr uint64_t kFit = wire::kMaxGraphBytes / (wire::kMaxKernelParameterBytes + 1024);
  ASSERT_TRUE(describe(kFit + kFit / 16));
  EXPECT_EQ(send(Opcode::kGraphInstantiate, wire::GraphInstantiate{1, 0, 0}).code(),
            CUDA_ERROR_OUT_OF_MEMORY);
  ASSERT_TRUE(describe(8)) << "what was described before is gone";
  EXPECT_TRUE(send(Opcode::kGraphInstantiate, wire::GraphInstantiate{1, 0, 0}).ok());
}

TEST_F(HoldingsTest, Streams) {
  for (wire::Id id = 1; id <= wire::kMaxStreams; ++id) {
    create_stream(id, wire::StreamKind::kNonBlocking);
  }
  const auto kind = static_cast<uint32_t>(wire::StreamKind::kNonBlocking);
  const wire::StreamCreate more{wire::kMaxStreams + 1, 1, 0, kind, 0, 0};
  EXPECT_TRUE(is_violation(send(Opcode::kStreamCreate, more)));
  EXPECT_TRUE(send(Opcode::kStreamDestroy, wire::ObjectOnly{1, 0}).ok());
  EXPECT_TRUE(send(Opcode::kStreamCreate, more).ok());
}

TEST_F(HoldingsTest, IdsOfEventsExecutableGraphsModulesAndImages) {
  EXPECT_TRUE(send(Opcode::kEventCreate, wire::EventCreate{wire::kMaxEvents, 0, 0, 0}).ok());
  EXPECT_TRUE(
      is_violation(send(Opcode::kEventCreate, wire::EventCreate{wire::kMaxEvents + 1, 0, 0, 0})));
  EXPECT_TRUE(send(Opcode::kGraphBegin, wire::GraphBegin{wire::kMaxGraphExecs, 0}).ok());
  EXPECT_TRUE(
      is_violation(send(Opcode::kGraphBegin, wire::GraphBegin{wire::kMaxGraphExecs + 1, 0})));
  EXPECT_TRUE(load_text(wire::kMaxModules, "code").ok());
  EXPECT_TRUE(is_violation(load_text(wire::kMaxModules + 1, "code")));
  wire::ImageCreate image{};
  image.image = wire::kMaxImageObjects + 1;
  EXPECT_TRUE(is_violation(send(Opcode::kImageCreate, image)));
}

TEST_F(HoldingsTest, MappingsAndRegistrations) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a window of ThreadSanitizer's has fewer pages";
#endif
  const auto page = [](uint64_t number) {
    return wire::MemoryRange{kPinned + number * wire::kHostPageBytes, wire::kHostPageBytes, 0, 0};
  };
  // The channel is one, too.
  for (uint64_t i = 0; i + 1 < wire::kMaxMappings; ++i) {
    ASSERT_TRUE(send(Opcode::kHostRegister, page(i)).ok()) << i;
  }
  EXPECT_EQ(send(Opcode::kHostRegister, page(wire::kMaxMappings)).code(), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(
      send(Opcode::kMemoryMap, wire::MemoryRange{kBase, wire::kMemoryGranularity, 0, 0}).code(),
      CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(granted(), 0u);
  EXPECT_TRUE(send(Opcode::kHostUnregister, page(7)).ok());
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
