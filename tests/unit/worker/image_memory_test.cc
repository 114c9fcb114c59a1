// SPDX-License-Identifier: Apache-2.0
// Code that programs have used is loaded when the next worker starts, without holding others' work.
#include "worker/images/image_memory.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "session_fixture.h"
#include "test_cubin.h"

namespace openmps::worker {
namespace {

namespace fs = std::filesystem;
using wire::UsageCount;

class ImageMemoryTest : public SessionFixture {
 protected:
  void prepare() override {
    char pattern[] = "/tmp/openmps-memory-XXXXXX";
    ASSERT_NE(mkdtemp(pattern), nullptr);
    root_ = pattern;
    worker_parts_.images.keep(wire::kMiB);
    worker_parts_.memory = std::make_unique<ImageMemory>(driver_.table(), *devices_, gate_, nullptr,
                                                         worker_parts_.images, disk());
  }
  void SetUp() override {
    SessionFixture::SetUp();
    create_stream(1, wire::StreamKind::kNonBlocking);
  }
  void TearDown() override {
    worker_parts_.memory.reset();
    session_->drain();
    session_->release();
    worker_parts_.images.keep(0);
    SessionFixture::TearDown();
    fs::remove_all(root_);
  }
  DiskStore disk() {
    Result<DiskStore> disk = DiskStore::open(
        root_ + "/store", "here", [](const std::string& line) { ADD_FAILURE() << line; });
    EXPECT_TRUE(disk.ok()) << disk.status().message();
    return std::move(disk).value();
  }
  // As the worker keeps it: with a NUL behind it.
  static ImageBytes image_of(const std::string& text) {
    ImageBytes image(text.begin(), text.end());
    image.push_back(0);
    return image;
  }
  void remember(const ImageBytes& image, const UsedKernels& kernels) {
    DiskStore store = disk();
    EXPECT_TRUE(store.write_image(hash_of(image), image).ok());
    EXPECT_TRUE(store.write_kernels(hash_of(image), kernels).ok());
  }
  UsedKernels remembered(const std::string& text) {
    UsedKernels kernels;
    static_cast<void>(disk().read_kernels(hash_of(image_of(text)), &kernels).ok());
    return kernels;
  }
  void load(wire::Id id, const std::string& image, const std::string& options = "") {
    EXPECT_TRUE(send(wire::BlobBegin{image.size(), id}).ok());
    memcpy(session_->core.view.staging(), image.data(), image.size());
    const auto bytes = static_cast<uint32_t>(image.size());
    EXPECT_TRUE(send(wire::BlobData{id, bytes, 0, kStaging}).ok());
    EXPECT_TRUE(
        send(wire::ModuleLoad{id, id, 0, wire::ModuleKind::kLibrary, 0,
                              static_cast<uint32_t>(options.size() / sizeof(wire::JitOption))},
             options)
            .ok());
  }
  void get(wire::Id module, wire::Id function, const std::string& name) {
    EXPECT_TRUE(send(wire::GetFunction{module, function, wire::ModuleKind::kLibrary,
                                       static_cast<uint32_t>(name.size())},
                     name)
                    .ok());
  }
  void launch_function(wire::Id function) {
    wire::Launch command = launch_of(1);
    command.function = function;
    EXPECT_TRUE(send(command, std::string(16, '\0')).ok());
  }
  size_t loaded_functions() {
    const Calls made = calls();
    return static_cast<size_t>(std::count_if(made.begin(), made.end(), [](const auto& call) {
      return call.rfind("load function", 0) == 0;
    }));
  }
  uint64_t count(UsageCount what) {
    return session_->core.usage.row().counts[static_cast<size_t>(what)];
  }

  std::string root_;
};

TEST_F(ImageMemoryTest, WhatIsLaunchedIsRemembered) {
  load(1, "code");
  get(1, 1, "ker1");
  get(1, 3, "ker3");
  EXPECT_EQ(count(UsageCount::kImagesMade), 1u);
  worker_parts_.memory->finish();
  EXPECT_TRUE(disk().entries().empty()) << "nothing has been used";
  for (int i = 0; i < 3; ++i) launch_function(3);
  worker_parts_.memory->finish();
  ASSERT_EQ(disk().entries().size(), 1u);
  const UsedKernels kernels = remembered("code");
  ASSERT_EQ(kernels.size(), 1u) << "one of four has been launched";
  EXPECT_EQ(kernels.begin()->second, 1u);
  EXPECT_EQ(session_->modules.functions().find(3)->remembered, 1u) << "it is told once";
  launch_function(1);
  worker_parts_.memory->finish();
  EXPECT_EQ(remembered("code").size(), 2u);
}

TEST_F(ImageMemoryTest, WhatIsASessionsOwnIsNot) {
  load(1, ".global .b32 x;");
  get(1, 1, "kern");
  launch_function(1);
  const wire::JitOption option{32, CU_JIT_MAX_REGISTERS};
  load(2, "code", std::string(reinterpret_cast<const char*>(&option), sizeof(option)));
  get(2, 2, "kern");
  launch_function(2);
  worker_parts_.memory->finish();
  EXPECT_TRUE(disk().entries().empty());
}

TEST_F(ImageMemoryTest, ANewWorkerHasItBeforeAnybodyAsks) {
  load(1, "other");
  get(1, 1, "ker2");
  launch_function(1);
  worker_parts_.memory->finish();
  UsedKernels kernels = remembered("other");
  kernels["d"] = 1;
  remember(image_of("code"), kernels);
  worker_parts_.memory = std::make_unique<ImageMemory>(driver_.table(), *devices_, gate_, nullptr,
                                                       worker_parts_.images, disk());
  open_session();
  create_stream(1, wire::StreamKind::kNonBlocking);
  const uint64_t before = gate_.calls(GatedCall::kLibraryLoad);
  calls();
  worker_parts_.memory->begin();
  worker_parts_.memory->wait();
  EXPECT_EQ(gate_.calls(GatedCall::kLibraryLoad), before + 1) << "the other one is there";
  EXPECT_EQ(loaded_functions(), 2u);
  load(2, "code");
  get(2, 2, "ker2");
  launch_function(2);
  EXPECT_EQ(gate_.calls(GatedCall::kLibraryLoad), before + 1);
  EXPECT_EQ(loaded_functions(), 0u) << "the program loads nothing";
  EXPECT_EQ(count(UsageCount::kImagesFound), 1u);
  EXPECT_EQ(count(UsageCount::kImagesMade), 0u);
  get(2, 3, "ker3");
  launch_function(3);
  worker_parts_.memory->finish();
  EXPECT_EQ(remembered("code").size(), 3u) << "beside what was known, and not used now";
}

TEST_F(ImageMemoryTest, WhatIsRememberedIsNotMadeOnceMore) {
  const std::string code = TestCubin().without_variables().image();
  remember(image_of(code), {{"kern", 1}});
  worker_parts_.memory->begin();
  worker_parts_.memory->wait();
  const uint64_t before = gate_.calls(GatedCall::kLibraryLoad);
  load(1, code);
  EXPECT_EQ(gate_.calls(GatedCall::kLibraryLoad), before);
  EXPECT_EQ(count(UsageCount::kImagesFound), 1u);
}

TEST_F(ImageMemoryTest, WhatNoClientCouldHaveSentIsNotLoaded) {
  remember(image_of(".global .b32 x;"), {{"kern", 1}});
  ImageBytes bare = image_of("bare");
  bare.pop_back();
  remember(bare, {{"kern", 1}});
  remember(image_of("elsewhere"), {{"kern", 2}});  // a device that is not there
  // A container that says that it is longer than it is.
  const uint64_t lying[] = {0x0010'0001'ba55'ed50, 1ull << 40, 0};
  std::string text(reinterpret_cast<const char*>(lying), sizeof(lying));
  remember(image_of(text), {{"kern", 1}});
  remember(image_of("missing"), {{"missing", 1}});
  const uint64_t before = gate_.calls(GatedCall::kLibraryLoad);
  worker_parts_.memory->begin();
  worker_parts_.memory->wait();
  EXPECT_EQ(gate_.calls(GatedCall::kLibraryLoad), before + 1) << "the last, in vain";
  EXPECT_EQ(loaded_functions(), 0u);
}

// Loading waits for running work; the fixture checks in the end that no call had to wait.
TEST_F(ImageMemoryTest, NobodyIsHeldUp) {
  load(1, "other");
  get(1, 1, "kern");
  launch_function(1);
  driver_.hold(1, true);
  launch_function(1);
  remember(image_of("code"), {{"ker2", 1}, {"ker3", 1}});
  calls();
  worker_parts_.memory->begin();
  for (int i = 0; i < 100; ++i) {
    launch_function(1);
    session_->service();
  }
  EXPECT_EQ(loaded_functions(), 0u) << "work runs";
  driver_.hold(1, false);
  while (gate_.calls(GatedCall::kFunctionLoad) == 0 || loaded_functions() == 0) {
    session_->service();
    std::this_thread::yield();
  }
  worker_parts_.memory->wait();
}

TEST_F(ImageMemoryTest, AnEndIsNotWaitedFor) {
  load(1, "other");
  get(1, 1, "kern");
  driver_.hold(1, true);
  launch_function(1);
  remember(image_of("code"), {{"ker2", 1}});
  worker_parts_.memory->begin();
  while (!gate_.has_deferred()) std::this_thread::yield();
  worker_parts_.memory.reset();  // though no moment has come
  driver_.hold(1, false);
}

class StorePlaceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char pattern[] = "/tmp/openmps-place-XXXXXX";
    ASSERT_NE(mkdtemp(pattern), nullptr);
    root_ = pattern;
    for (const char* name : {"OPENMPS_CACHE_DIRECTORY", "XDG_CACHE_HOME", "HOME"}) unsetenv(name);
    setenv("HOME", root_.c_str(), 1);
  }
  void TearDown() override {
    for (const char* name : {"OPENMPS_CACHE_DIRECTORY", "XDG_CACHE_HOME"}) unsetenv(name);
    setenv("HOME", "/", 1);
    fs::remove_all(root_);
  }
  std::string root_;
  std::string why_;
};

TEST_F(StorePlaceTest, TheFirstThatIsThisUsersOwn) {
  EXPECT_EQ(store_place(&why_), root_ + "/.cache/openmps");
  EXPECT_TRUE(fs::is_directory(root_ + "/.cache"));
  fs::create_directory(root_ + "/xdg");
  setenv("XDG_CACHE_HOME", (root_ + "/xdg").c_str(), 1);
  EXPECT_EQ(store_place(&why_), root_ + "/xdg/openmps");
  setenv("XDG_CACHE_HOME", "xdg", 1);
  EXPECT_EQ(store_place(&why_), root_ + "/.cache/openmps") << "a path of nobody knows where";
  setenv("XDG_CACHE_HOME", (root_ + "/none").c_str(), 1);
  EXPECT_EQ(store_place(&why_), root_ + "/.cache/openmps");
  if (geteuid() == 0) {
    ASSERT_EQ(chown((root_ + "/xdg").c_str(), 65534, 65534), 0);
    setenv("XDG_CACHE_HOME", (root_ + "/xdg").c_str(), 1);
    EXPECT_EQ(store_place(&why_), root_ + "/.cache/openmps") << "another user's";
  }
  EXPECT_EQ(why_, "");
}

TEST_F(StorePlaceTest, TheEnvironmentChooses) {
  setenv("OPENMPS_CACHE_DIRECTORY", "/chosen", 1);
  EXPECT_EQ(store_place(&why_), "/chosen");
  setenv("OPENMPS_CACHE_DIRECTORY", "", 1);
  EXPECT_EQ(store_place(&why_), "");
  EXPECT_EQ(why_, "") << "as was wished";
  setenv("OPENMPS_CACHE_DIRECTORY", "here", 1);
  EXPECT_EQ(store_place(&why_), "");
  EXPECT_NE(why_.find("is no path from the root"), std::string::npos);
}

}  // namespace
}  // namespace openmps::worker
