// SPDX-License-Identifier: Apache-2.0
// Blobs, modules, functions, globals.
#include <elf.h>

#include <algorithm>

#include "session_fixture.h"

namespace openmps::worker {
namespace {

class ModuleTest : public SessionFixture {
 protected:
  void send_image(wire::Id blob, const std::string& image) {
    EXPECT_TRUE(send(wire::BlobBegin{image.size(), blob}).ok());
    memcpy(session_->core.view.staging(), image.data(), image.size());
    const auto bytes = static_cast<uint32_t>(image.size());
    EXPECT_TRUE(send(wire::BlobData{blob, bytes, 0, kStaging}).ok());
  }
};

TEST_F(ModuleTest, ImageTravelsInChunks) {
  EXPECT_TRUE(send(wire::BlobBegin{6, 7}).ok());
  memcpy(session_->core.view.staging(), "abcdef", 6);
  EXPECT_TRUE(send(wire::BlobData{7, 4, 0, kStaging}).ok());
  EXPECT_TRUE(send(wire::BlobData{7, 2, 4, kStaging + 4}).ok());
  EXPECT_TRUE(send(wire::ModuleLoad{1, 7, 0, wire::ModuleKind::kLibrary, 0, 0}).ok());
  EXPECT_EQ(driver_.live(), "libraries 1 registrations 1");
  EXPECT_TRUE(is_violation(send(wire::ModuleLoad{2, 7, 0, wire::ModuleKind::kLibrary, 0, 0})))
      << "the blob is consumed";
  EXPECT_TRUE(send(wire::ModuleSymbols{1}).ok());
  EXPECT_EQ(reply<wire::ModuleSymbols::Reply>().functions, 4u);
  EXPECT_EQ(gate_.calls(GatedCall::kLibraryLoad), 1u);
}

// Compared with what another program has loaded, as long as it is the same.
TEST_F(ModuleTest, AnImageIsTheSameOnlyIfAllOfItIs) {
  const auto load = [this](wire::Id id, const std::string& image) {
    EXPECT_TRUE(send(wire::BlobBegin{image.size(), id}).ok());
    memcpy(session_->core.view.staging(), image.data(), image.size());
    for (uint32_t at = 0; at < image.size(); at += 3) {
      const uint32_t bytes = std::min<uint32_t>(3, static_cast<uint32_t>(image.size()) - at);
      EXPECT_TRUE(send(wire::BlobData{id, bytes, at, kStaging + at}).ok());
    }
    EXPECT_TRUE(send(wire::ModuleLoad{id, id, 0, wire::ModuleKind::kLibrary, 0, 0}).ok());
    return session_->modules.modules().find(id)->image;
  };
  const auto first = load(1, "abcdefgh");
  EXPECT_EQ(load(2, "abcdefgh"), first);
  const auto late = load(3, "abcdefgx");
  EXPECT_NE(late, first);
  EXPECT_EQ(*late, ImageBytes({'a', 'b', 'c', 'd', 'e', 'f', 'g', 'x', 0}));
  EXPECT_EQ(*load(4, "abcxefgh"), ImageBytes({'a', 'b', 'c', 'x', 'e', 'f', 'g', 'h', 0}));
  EXPECT_EQ(*load(5, "abcdef"), ImageBytes({'a', 'b', 'c', 'd', 'e', 'f', 0}));
  EXPECT_EQ(driver_.live(), "libraries 4 registrations 1");
}

TEST_F(ModuleTest, ChunksOutOfPlaceAreViolations) {
  EXPECT_TRUE(send(wire::BlobBegin{6, 1}).ok());
  EXPECT_TRUE(is_violation(send(wire::BlobData{1, 4, 2, kStaging})));
  EXPECT_TRUE(is_violation(send(wire::BlobData{1, 7, 0, kStaging})));
  EXPECT_TRUE(is_violation(send(wire::BlobData{1, 4, 0, kHost})));
  EXPECT_TRUE(is_violation(send(wire::BlobData{1, 4, 0, kStaging + wire::kStagingBytes - 3})));
  EXPECT_TRUE(is_violation(send(wire::BlobData{2, 4, 0, kStaging})));
  EXPECT_TRUE(is_violation(send(wire::ModuleLoad{1, 1, 0, wire::ModuleKind::kModule, 0, 0})))
      << "not all of it has come";
  EXPECT_TRUE(is_violation(send(wire::BlobBegin{0, 3})));
  EXPECT_TRUE(is_violation(send(wire::BlobBegin{1ull << 33, 3})));
}

// The driver gets a bare pointer and believes what it finds there.
TEST_F(ModuleTest, ImagesWhoseHeadersLieDoNotReachTheDriver) {
  const auto load = [this](const std::string& image) {
    send_image(1, image);
    return send(wire::ModuleLoad{1, 1, 0, wire::ModuleKind::kModule, 0, 0}).code();
  };
  const auto word = [](uint64_t value, size_t bytes) {
    return std::string(reinterpret_cast<const char*>(&value), bytes);
  };
  const auto container = [&](uint64_t body) {
    return word(0xba55ed50, 4) + word(1, 2) + word(16, 2) + word(body, 8);
  };
  const auto entry = [&](uint64_t payload) {
    return word(2, 2) + word(0x101, 2) + word(64, 4) + word(payload, 8) + std::string(48, '\0');
  };
  const auto ptx_entry = [&](uint64_t options) {
    return word(1, 2) + word(0x101, 2) + word(80, 4) + word(8, 8) + word(0, 4) + word(options, 4) +
           std::string(56, '\0') + "// PTX\n";
  };
  const std::string payload(24, 'p');
  EXPECT_EQ(load(container(88) + entry(24) + payload), CUDA_SUCCESS);
  EXPECT_TRUE(send(wire::ModuleUnload{1}).ok());
  EXPECT_EQ(load(container(88) + ptx_entry(64) + '\0'), CUDA_SUCCESS);
  EXPECT_TRUE(send(wire::ModuleUnload{1}).ok());
  EXPECT_EQ(load(container(88) + ptx_entry(0) + '\0'), CUDA_ERROR_INVALID_IMAGE);
  EXPECT_EQ(load(container(89) + entry(24) + payload), CUDA_ERROR_INVALID_IMAGE);
  EXPECT_EQ(load(container(~0ull) + entry(24) + payload), CUDA_ERROR_INVALID_IMAGE);
  EXPECT_EQ(load(container(88) + entry(25) + payload), CUDA_ERROR_INVALID_IMAGE);
  EXPECT_EQ(load(container(88) + entry(~0ull) + payload), CUDA_ERROR_INVALID_IMAGE);
  EXPECT_EQ(load(container(0).substr(0, 12)), CUDA_ERROR_INVALID_IMAGE);
  EXPECT_EQ(load(word(0x466243b1, 4) + word(1, 4) + word(0x1000, 8) + word(0, 8)),
            CUDA_ERROR_INVALID_IMAGE)
      << "a wrapper's pointers are the client's";
  const auto elf = [&](uint64_t sections, uint64_t count) {
    return "\x7f"
           "ELF" +
           std::string(36, '\0') + word(sections, 8) + std::string(10, '\0') + word(64, 2) +
           word(count, 2) + std::string(2, '\0') + std::string(64, '\0');
  };
  EXPECT_EQ(load(elf(64, 1)), CUDA_SUCCESS);
  EXPECT_TRUE(send(wire::ModuleUnload{1}).ok());
  EXPECT_EQ(load(elf(65, 1)), CUDA_ERROR_INVALID_IMAGE);
  EXPECT_EQ(load(elf(64, 2)), CUDA_ERROR_INVALID_IMAGE);
  EXPECT_EQ(load(elf(~0ull, 1)), CUDA_ERROR_INVALID_IMAGE);
  const auto section = [&](uint64_t type) {  // of 4096 bytes that are not there
    std::string image = elf(64, 1);
    return image.replace(64, 64,
                         std::string(4, '\0') + word(type, 4) + std::string(24, '\0') +
                             word(4096, 8) + std::string(24, '\0'));
  };
  EXPECT_EQ(load(section(SHT_PROGBITS)), CUDA_ERROR_INVALID_IMAGE);
  for (const uint64_t variables : {0x7000'0007u, 0x7000'000au}) {
    EXPECT_EQ(load(section(variables)), CUDA_SUCCESS);
    EXPECT_TRUE(send(wire::ModuleUnload{1}).ok());
  }
  const auto packed = [&](const std::string& code) {
    return container(64 + code.size()) + entry(code.size()) + code;
  };
  EXPECT_EQ(load(packed(elf(64, 1))), CUDA_SUCCESS);
  EXPECT_TRUE(send(wire::ModuleUnload{1}).ok());
  EXPECT_EQ(load(packed(elf(65, 1))), CUDA_ERROR_INVALID_IMAGE);
}

// Programs of nvcc -rdc=true: the driver links anew what the linked code was made of.
TEST_F(ModuleTest, ContainersBehindTheFirstReachTheDriverAsAList) {
  const auto word = [](uint64_t value, size_t bytes) {
    return std::string(reinterpret_cast<const char*>(&value), bytes);
  };
  const auto container = [&](const std::string& payload) {
    return word(0xba55ed50, 4) + word(1, 2) + word(16, 2) + word(64 + payload.size(), 8) +
           word(2, 2) + word(0x101, 2) + word(64, 4) + word(payload.size(), 8) +
           std::string(48, '\0') + payload;
  };
  const auto load = [this](wire::Id id, const std::string& image, wire::ModuleKind kind) {
    send_image(id, image);
    return send(wire::ModuleLoad{id, id, 0, kind, 0, 0}).code();
  };
  const std::string linked = container("linked.."), one = container("one....."),
                    two = container("two");
  static_cast<void>(calls());
  EXPECT_EQ(load(1, linked, wire::ModuleKind::kModule), CUDA_SUCCESS);
  EXPECT_EQ(calls().front(), "load") << "one container is what the driver gets";
  EXPECT_EQ(load(2, linked + one + two, wire::ModuleKind::kModule), CUDA_SUCCESS);
  EXPECT_EQ(calls().front(), "load linked.. one..... two");
  EXPECT_EQ(load(3, linked + two + std::string(5, '\0') + one, wire::ModuleKind::kLibrary),
            CUDA_SUCCESS);
  EXPECT_EQ(calls(), (Calls{"load linked.. two one....."}));
  EXPECT_EQ(load(4, linked + two + one, wire::ModuleKind::kLibrary), CUDA_ERROR_INVALID_IMAGE)
      << "not at a multiple of 8";
  EXPECT_EQ(load(4, linked + one.substr(0, 20), wire::ModuleKind::kLibrary),
            CUDA_ERROR_INVALID_IMAGE);
  EXPECT_EQ(load(4, linked + "// PTX", wire::ModuleKind::kLibrary), CUDA_ERROR_INVALID_IMAGE);
  std::string many;
  for (uint32_t i = 0; i <= wire::kMaxContainers; ++i) many += one;
  EXPECT_EQ(load(4, many, wire::ModuleKind::kLibrary), CUDA_ERROR_INVALID_IMAGE);
  EXPECT_EQ(calls(), Calls{}) << "nothing of these reached the driver";
}

TEST_F(ModuleTest, FailedLoadGivesTheLog) {
  send_image(1, "bad code");
  const wire::JitOption option{32, CU_JIT_MAX_REGISTERS};
  EXPECT_EQ(send(wire::ModuleLoad{1, 1, 0, wire::ModuleKind::kModule, 1024, 1},
                 std::string(reinterpret_cast<const char*>(&option), sizeof(option)))
                .code(),
            CUDA_ERROR_INVALID_PTX);
  const auto answer = reply<wire::ModuleLoad::Reply>();
  EXPECT_EQ(answer.info_bytes, 0u);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(reply_.data()) + sizeof(answer),
                        answer.error_bytes),
            "line 1: bad");
  EXPECT_EQ(driver_.live(), "registrations 1");
}

TEST_F(ModuleTest, PointersAmongJitOptionsAreViolations) {
  send_image(1, "code");
  const wire::JitOption option{0x1000, CU_JIT_INFO_LOG_BUFFER};
  EXPECT_TRUE(
      is_violation(send(wire::ModuleLoad{1, 1, 0, wire::ModuleKind::kModule, 0, 1},
                        std::string(reinterpret_cast<const char*>(&option), sizeof(option)))));
}

TEST_F(ModuleTest, FunctionComesWithLayoutAndAttributes) {
  load_module();
  EXPECT_TRUE(send(wire::GetFunction{1, 2, wire::ModuleKind::kModule, 4}, "kern").ok());
  const auto facts = reply<wire::GetFunction::Reply>();
  EXPECT_EQ(facts.parameter_count, 2u);
  EXPECT_EQ(facts.parameter_bytes, 16u);
  EXPECT_EQ(facts.attributes[4], 104);
  EXPECT_EQ(reply<wire::ParameterLayout>(sizeof(facts) + sizeof(wire::ParameterLayout)).offset, 8u);
  EXPECT_EQ(send(wire::GetFunction{1, 3, wire::ModuleKind::kModule, 7}, "missing").code(),
            CUDA_ERROR_NOT_FOUND);
  EXPECT_TRUE(is_violation(send(wire::GetFunction{1, 2, wire::ModuleKind::kModule, 4}, "kern")))
      << "the id is taken";
  EXPECT_TRUE(is_violation(send(wire::GetFunction{1, 3, wire::ModuleKind::kLibrary, 4}, "kern")))
      << "a module, not a library";
}

// Quiescence holds all sessions' work, so all functions of a small image are loaded in one.
TEST_F(ModuleTest, FunctionsAreLoadedInOnePassage) {
  const auto moments = [this] {
    return gate_.calls(GatedCall::kModuleLoad) + gate_.calls(GatedCall::kFunctionLoad);
  };
  send_image(1, "code");
  EXPECT_TRUE(send(wire::ModuleLoad{1, 1, 0, wire::ModuleKind::kModule, 0, 0}).ok());
  for (const wire::Id id : {1u, 2u, 3u}) {
    EXPECT_TRUE(send(wire::GetFunction{1, id, wire::ModuleKind::kModule, 4}, "kern").ok());
  }
  EXPECT_TRUE(send(wire::GetGlobal{1, wire::ModuleKind::kModule, 4}, "glob").ok());
  EXPECT_EQ(moments(), 1u);
  send_image(2, "other code");
  EXPECT_TRUE(send(wire::ModuleLoad{2, 2, 0, wire::ModuleKind::kLibrary, 0, 0}).ok());
  EXPECT_EQ(moments(), 1u) << "a library's code is loaded with its first function";
  for (const wire::Id id : {4u, 5u, 6u}) {
    EXPECT_TRUE(send(wire::GetFunction{2, id, wire::ModuleKind::kLibrary, 4}, "kern").ok());
  }
  EXPECT_TRUE(send(wire::GetGlobal{2, wire::ModuleKind::kLibrary, 4}, "glob").ok());
  EXPECT_EQ(moments(), 2u);
}

// Thousands of functions, of which a program uses few, are loaded one by one.
TEST_F(ModuleTest, FunctionsOfALargeImageAreLoadedOneByOne) {
  const std::string large(kMostBytesLoadedTogether, 'c');
  EXPECT_TRUE(send(wire::BlobBegin{large.size(), 2}).ok());
  for (uint64_t at = 0; at < large.size(); at += wire::kStagingBytes) {
    const auto bytes = static_cast<uint32_t>(std::min(large.size() - at, wire::kStagingBytes));
    memcpy(session_->core.view.staging(), large.data() + at, bytes);
    EXPECT_TRUE(send(wire::BlobData{2, bytes, at, kStaging}).ok());
  }
  EXPECT_TRUE(send(wire::ModuleLoad{2, 2, 0, wire::ModuleKind::kLibrary, 0, 0}).ok());
  for (const wire::Id id : {1u, 2u, 3u}) {
    const std::string name = "ker" + std::to_string(id);
    EXPECT_TRUE(send(wire::GetFunction{2, id, wire::ModuleKind::kLibrary, 4}, name).ok());
  }
  EXPECT_EQ(gate_.calls(GatedCall::kFunctionLoad), 3u);
  EXPECT_TRUE(send(wire::GetFunction{2, 4, wire::ModuleKind::kLibrary, 4}, "ker2").ok());
  EXPECT_EQ(gate_.calls(GatedCall::kFunctionLoad), 3u) << "it is there";
}

TEST_F(ModuleTest, FunctionsAndGlobalsGoWithTheirModule) {
  load_module();
  create_stream(1, wire::StreamKind::kNonBlocking);
  EXPECT_TRUE(send(wire::GetGlobal{1, wire::ModuleKind::kModule, 4}, "glob").ok());
  EXPECT_EQ(reply<wire::GetGlobal::Reply>().address, kFakeGlobal);
  EXPECT_TRUE(send(wire::GetGlobal{1, wire::ModuleKind::kModule, 4}, "glob").ok());
  const wire::Memcpy copy{1, 0, kFakeGlobal, kStaging, kFakeGlobalBytes};
  EXPECT_TRUE(send(copy).ok());
  EXPECT_TRUE(is_violation(send(wire::Memcpy{1, 0, kFakeGlobal + 1, kStaging, kFakeGlobalBytes})));
  EXPECT_TRUE(send(wire::ModuleUnload{1}).ok());
  EXPECT_TRUE(is_violation(send(copy)));
  EXPECT_TRUE(is_violation(send(launch_of(1), std::string(16, '\0'))));
  EXPECT_EQ(gate_.calls(GatedCall::kLibraryUnload), 1u);
  load_module();  // the ids are free again
}

TEST_F(ModuleTest, AGlobalSaysWhetherItIsManaged) {
  load_module();
  EXPECT_TRUE(send(wire::GetGlobal{1, wire::ModuleKind::kModule, 4}, "glob").ok());
  EXPECT_EQ(reply<wire::GetGlobal::Reply>().managed, 0u);
  EXPECT_TRUE(send(wire::GetGlobal{1, wire::ModuleKind::kModule, 7}, "managed").ok());
  EXPECT_EQ(reply<wire::GetGlobal::Reply>().managed, 1u);
}

TEST_F(ModuleTest, AttributesAndOccupancy) {
  load_module();
  EXPECT_TRUE(send(wire::FunctionGetAttribute{1, 3}).ok());
  EXPECT_EQ(reply<int32_t>(), 103);
  EXPECT_TRUE(send(wire::FunctionSetAttribute{1, wire::FunctionSetting::kAttribute, 8, 9}).ok());
  EXPECT_TRUE(
      send(wire::FunctionSetAttribute{1, wire::FunctionSetting::kCacheConfiguration, 0, 1}).ok());
  EXPECT_TRUE(send(wire::FunctionSetAttribute{1, wire::FunctionSetting::kBankSize, 0, 1}).ok());
  EXPECT_EQ(calls(), (Calls{"attribute 8=9", "cache", "banks"}));
  EXPECT_EQ(send(wire::FunctionSetAttribute{1, static_cast<wire::FunctionSetting>(9), 0, 1}).code(),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_TRUE(send(wire::Occupancy{1, 128, 0, 0}).ok());
  EXPECT_EQ(reply<wire::Occupancy::Reply>().value, 5u);
}

TEST_F(ModuleTest, ClusterOccupancyTakesAttributesThatAreNumbers) {
  load_module();
  const auto text = [](CUlaunchAttributeID id, uint32_t value) {
    CUlaunchAttribute attribute{};
    attribute.id = id;
    attribute.value.clusterDim.x = value;
    return std::string(reinterpret_cast<const char*>(&attribute), sizeof(attribute));
  };
  wire::ClusterOccupancy query{1, wire::ClusterQuery::kMaxActive, {64, 1, 1}, {32, 1, 1}, 0, 1};
  EXPECT_TRUE(send(query, text(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, 4)).ok());
  EXPECT_EQ(reply<wire::ClusterOccupancy::Reply>().value, 16u);
  query.query = wire::ClusterQuery::kMaxPotentialSize;
  EXPECT_TRUE(send(query, text(CU_LAUNCH_ATTRIBUTE_PRIORITY, 0)).ok());
  EXPECT_EQ(reply<wire::ClusterOccupancy::Reply>().value, 16u);
  // One that names an object is left out: its value would be a handle of the client's choice.
  EXPECT_TRUE(send(query, text(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT, 7)).ok());
  EXPECT_EQ(reply<wire::ClusterOccupancy::Reply>().value, 8u);
  EXPECT_TRUE(is_violation(send(query))) << "the attribute is missing";
  query.attribute_count = 0;
  EXPECT_TRUE(send(query).ok());
  EXPECT_EQ(reply<wire::ClusterOccupancy::Reply>().value, 8u);
  query.query = static_cast<wire::ClusterQuery>(2);
  EXPECT_EQ(send(query).code(), CUDA_ERROR_INVALID_VALUE);
  query.function = 9;
  EXPECT_TRUE(is_violation(send(query)));
}

TEST_F(ModuleTest, FunctionNamesComeInPages) {
  load_module();
  EXPECT_TRUE(send(wire::ModuleFunctions{1, 0}).ok());
  auto head = reply<wire::ModuleFunctions::Reply>();
  EXPECT_EQ(head.functions, 4u);
  EXPECT_EQ(head.names, 2u) << "the third does not fit";
  EXPECT_TRUE(send(wire::ModuleFunctions{1, 2}).ok());
  head = reply<wire::ModuleFunctions::Reply>();
  EXPECT_EQ(head.names, 2u);
  EXPECT_STREQ(reinterpret_cast<const char*>(reply_.data()) + sizeof(head), "c");
  EXPECT_TRUE(send(wire::ModuleFunctions{1, 0xffff'ffff}).ok());
  EXPECT_EQ(reply<wire::ModuleFunctions::Reply>().names, 0u);
  EXPECT_TRUE(is_violation(send(wire::ModuleFunctions{2, 0})));
}

TEST_F(ModuleTest, RoomForSharedMemoryIsAskedOnTheDeviceOfTheContext) {
  send_image(1, "code");
  EXPECT_TRUE(send(wire::ModuleLoad{1, 1, 0, wire::ModuleKind::kLibrary, 0, 0}).ok());
  EXPECT_TRUE(send(wire::GetFunction{1, 1, wire::ModuleKind::kLibrary, 4}, "kern").ok());
  EXPECT_TRUE(is_violation(send(wire::SharedMemoryRoom{99, 1, 64, 0}))) << "no function 99";
  EXPECT_TRUE(is_violation(send(wire::SharedMemoryRoom{1, 1, 64, 9}))) << "no device 9";
}

}  // namespace
}  // namespace openmps::worker
