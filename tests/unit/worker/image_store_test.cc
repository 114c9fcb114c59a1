// SPDX-License-Identifier: Apache-2.0
// Images and libraries that are held once: by whom, for how long, and what happens while they load.
#include "worker/images/image_store.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <future>
#include <map>
#include <string>
#include <vector>

#include "base/shared_memory.h"
#include "fake_driver.h"
#include "session_fixture.h"
#include "test_cubin.h"

namespace openmps::worker {
namespace {

using namespace std::chrono_literals;

ImageBytes bytes_of(const std::string& text) { return ImageBytes(text.begin(), text.end()); }

constexpr uint32_t kDevice90 = 90;

class ImageStoreTest : public ::testing::Test {
 protected:
  // A library of the fake driver, made of any image.
  Status load(std::shared_ptr<LoadedLibrary>* library) {
    ++loads_;
    CUlibrary handle = nullptr;
    OPENMPS_RETURN_IF_ERROR(check(driver_.table().cuLibraryLoadData(
                                      &handle, "code", nullptr, nullptr, 0, nullptr, nullptr, 0),
                                  "cuLibraryLoadData"));
    *library =
        std::make_shared<LoadedLibrary>(driver_.table(), gate_, nullptr, handle, ImageFacts{});
    return Status();
  }
  std::shared_ptr<LoadedLibrary> library(const std::shared_ptr<const StoredImage>& image) {
    std::shared_ptr<LoadedLibrary> made;
    const Status status = store_.library(
        image, [this](auto* out) { return load(out); }, &made);
    EXPECT_TRUE(status.ok()) << status.message();
    return made;
  }

  FakeDriver driver_;
  ContextGate gate_{driver_.table()};
  ImageStore store_;
  std::atomic<int> loads_{0};
};

TEST_F(ImageStoreTest, EqualBytesAreHeldOnce) {
  const auto one = store_.intern(bytes_of("kernel one"));
  EXPECT_EQ(store_.intern(bytes_of("kernel one")), one);
  EXPECT_NE(store_.intern(bytes_of("kernel two")), one);
  EXPECT_NE(store_.intern(bytes_of("kernel on")), one);
  EXPECT_NE(store_.intern(bytes_of("kernel one ")), one);
  EXPECT_EQ(*one, bytes_of("kernel one"));
}

TEST_F(ImageStoreTest, LargeImagesThatDifferInTheirMiddleAreTwo) {
  const std::string large(wire::kMiB, 'x');
  std::string other = large;
  other[other.size() / 2] = 'y';
  const auto one = store_.intern(bytes_of(large));
  EXPECT_NE(store_.intern(bytes_of(other)), one);
  EXPECT_EQ(store_.intern(bytes_of(large)), one);
}

TEST_F(ImageStoreTest, ACandidateHasThatSizeAndBeginsSo) {
  const auto image = store_.intern(bytes_of("kernel one"));
  EXPECT_EQ(store_.candidate(10, bytes_of("kernel on")), image);
  EXPECT_EQ(store_.candidate(11, bytes_of("kernel one")), nullptr);
  EXPECT_EQ(store_.candidate(10, bytes_of("Kernel on")), nullptr);
  EXPECT_EQ(store_.candidate(10, bytes_of("kernel one ")), nullptr) << "more than it has";
  EXPECT_EQ(store_.candidate(10, bytes_of("kern")), nullptr) << "too little to tell";
}

TEST_F(ImageStoreTest, OfALargeCandidateTheFirstBytesAreEnough) {
  const std::string text = std::string(ImageStore::kBeginBytes, 'x') + "and so on";
  auto image = store_.intern(bytes_of(text));
  const ImageBytes begin = bytes_of(text.substr(0, ImageStore::kBeginBytes));
  EXPECT_EQ(store_.candidate(text.size(), begin), image);
  EXPECT_EQ(store_.candidate(text.size() + 1, begin), nullptr);
  EXPECT_EQ(store_.candidate(text.size(), bytes_of("xxx")), nullptr);
  image.reset();
  EXPECT_EQ(store_.candidate(text.size(), begin), nullptr) << "nobody holds it any more";
}

// Each look-up compares with one image at most, however many there are of its size, of its
// beginning and of its end.
TEST_F(ImageStoreTest, ALookUpDoesNotGoThroughTheOthers) {
  constexpr int kImages = 2000;
  const auto text = [](int number) {
    return std::string(2 * ImageStore::kBeginBytes, 'x') + std::to_string(100'000 + number) +
           std::string(100, 'y');
  };
  std::vector<std::shared_ptr<const StoredImage>> images;
  for (int i = 0; i < kImages; ++i) images.push_back(store_.intern(bytes_of(text(i))));
  EXPECT_EQ(store_.comparisons(), 0u);
  for (const int i : {0, kImages / 2, kImages - 1}) {
    const uint64_t before = store_.comparisons();
    EXPECT_EQ(store_.intern(bytes_of(text(i))), images[static_cast<size_t>(i)]);
    EXPECT_EQ(store_.comparisons(), before + 1);
    const ImageBytes begin = bytes_of(text(i).substr(0, ImageStore::kBeginBytes));
    EXPECT_NE(store_.candidate(text(i).size(), begin), nullptr);
    EXPECT_LE(store_.comparisons(), before + 2);
  }
}

TEST_F(ImageStoreTest, WhatIsUnloadedAndComesAgainIsFoundAgain) {
  for (int round = 0; round < 3; ++round) {
    const auto one = store_.intern(bytes_of("kernel one"));
    const auto two = store_.intern(bytes_of("kernel two"));
    EXPECT_NE(one, two);
    EXPECT_EQ(store_.intern(bytes_of("kernel one")), one);
    EXPECT_EQ(store_.candidate(10, bytes_of("kernel tw")), two);
  }
}

TEST_F(ImageStoreTest, ImagesMayOutliveTheStore) {
  std::shared_ptr<const StoredImage> image;
  {
    ImageStore store;
    image = store.intern(bytes_of("code"));
  }
  EXPECT_EQ(*image, bytes_of("code"));
}

// Under ThreadSanitizer, too: equal images that come at once are one.
TEST_F(ImageStoreTest, EqualImagesThatComeAtOnceAreOne) {
  constexpr int kThreads = 8;
  std::promise<void> go;
  const std::shared_future<void> start = go.get_future().share();
  std::vector<std::future<std::shared_ptr<const StoredImage>>> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.push_back(std::async(std::launch::async, [&, start] {
      start.wait();
      return store_.intern(ImageBytes(wire::kMiB, 'x'));
    }));
  }
  go.set_value();
  const auto first = threads[0].get();
  for (int i = 1; i < kThreads; ++i) EXPECT_EQ(threads[static_cast<size_t>(i)].get(), first);
}

TEST_F(ImageStoreTest, WhatWasWantedLastStaysLoaded) {
  store_.keep(10);
  const auto use = [this](const std::string& text) {
    library(store_.intern(bytes_of(text)));  // and no session holds it any more
  };
  use("one.");
  use("two.");
  EXPECT_EQ(loads_, 2);
  use("one.");
  EXPECT_EQ(loads_, 2) << "it has stayed";
  use("three");  // is too much together with both: the one that was wanted first goes
  EXPECT_EQ(loads_, 3);
  use("one.");
  EXPECT_EQ(loads_, 3);
  use("two.");
  EXPECT_EQ(loads_, 4);
  use("more than ten bytes");
  use("more than ten bytes");
  EXPECT_EQ(loads_, 6);
  store_.keep(0);
  EXPECT_EQ(driver_.live(), "");
}

TEST_F(ImageStoreTest, BytesLiveAsLongAsSomebodyHoldsThem) {
  auto image = store_.intern(bytes_of("code"));
  const std::weak_ptr<const StoredImage> watch = image;
  auto second = store_.intern(bytes_of("code"));
  image.reset();
  EXPECT_FALSE(watch.expired());
  second.reset();
  EXPECT_TRUE(watch.expired());
  EXPECT_EQ(*store_.intern(bytes_of("code")), bytes_of("code"));
}

TEST_F(ImageStoreTest, ALibraryIsLoadedOnceAndUnloadedWithItsLastHolder) {
  const auto image = store_.intern(bytes_of("code"));
  auto first = library(image);
  auto second = library(store_.intern(bytes_of("code")));
  EXPECT_EQ(first, second);
  EXPECT_EQ(loads_.load(), 1);
  first.reset();
  EXPECT_EQ(driver_.live(), "libraries 1");
  second.reset();
  EXPECT_EQ(driver_.live(), "");
  const auto third = library(image);
  EXPECT_EQ(loads_.load(), 2);
  EXPECT_EQ(driver_.live(), "libraries 1");
}

TEST_F(ImageStoreTest, OtherBytesAreAnotherLibrary) {
  const auto one_image = store_.intern(bytes_of("one")), two_image = store_.intern(bytes_of("two"));
  const auto one = library(one_image), two = library(two_image);
  EXPECT_NE(one, two);
  EXPECT_EQ(driver_.live(), "libraries 2");
}

TEST_F(ImageStoreTest, AFailedLoadIsToldAndNotRemembered) {
  const auto image = store_.intern(bytes_of("code"));
  driver_.fail("load", CUDA_ERROR_OUT_OF_MEMORY);
  std::shared_ptr<LoadedLibrary> none;
  EXPECT_EQ(store_
                .library(
                    image, [this](auto* out) { return load(out); }, &none)
                .code(),
            CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(none, nullptr);
  driver_.fail("load", CUDA_SUCCESS);
  EXPECT_NE(library(image), nullptr);
  EXPECT_EQ(loads_.load(), 2);
}

TEST_F(ImageStoreTest, FactsOfAnImageAreKept) {
  const std::string code = TestCubin().without_variables().image();
  const auto held = store_.intern(bytes_of(code + '\0'));
  const auto own = std::make_shared<const StoredImage>(bytes_of(code + '\0'));
  for (const auto& image : {held, held, own}) {
    ImageFacts facts;
    EXPECT_TRUE(store_.read_facts(image, kDevice90, &facts).ok());
    EXPECT_FALSE(facts.binds() || facts.compiles || facts.prints);
  }
}

TEST_F(ImageStoreTest, WhatLeavesTheImageHasNoFacts) {
  const std::string code = TestCubin().image();
  ImageFacts facts;
  EXPECT_EQ(
      store_.read_facts(store_.intern(bytes_of(code.substr(0, 200))), kDevice90, &facts).code(),
      CUDA_ERROR_INVALID_IMAGE);
}

// Bytes that were not interned are not shared.
TEST_F(ImageStoreTest, AnImageFromElsewhereIsNotShared) {
  const auto image = std::make_shared<const StoredImage>(bytes_of("code"));
  EXPECT_NE(library(image), library(image));
  EXPECT_EQ(loads_.load(), 2);
}

// The first load does not end before the second session has asked, and had time to load itself.
TEST_F(ImageStoreTest, LoadsOfOneImageAtOnceAreOne) {
  const auto image = store_.intern(bytes_of("code"));
  std::promise<void> loading, asked, second_load;
  std::future<void> second_loads = second_load.get_future();
  auto first = std::async(std::launch::async, [&] {
    std::shared_ptr<LoadedLibrary> made;
    EXPECT_TRUE(store_
                    .library(
                        image,
                        [&](auto* out) {
                          loading.set_value();
                          asked.get_future().wait();
                          // Waits that long only if the test passes: then no thread arrives.
                          EXPECT_EQ(second_loads.wait_for(50ms), std::future_status::timeout);
                          return load(out);
                        },
                        &made)
                    .ok());
    return made;
  });
  loading.get_future().wait();
  asked.set_value();
  std::shared_ptr<LoadedLibrary> second;
  EXPECT_TRUE(store_
                  .library(
                      image,
                      [&](auto* out) {
                        second_load.set_value();
                        return load(out);
                      },
                      &second)
                  .ok());
  EXPECT_EQ(second, first.get());
  EXPECT_EQ(loads_.load(), 1);
}

// Deadlocks if the store is locked meanwhile.
TEST_F(ImageStoreTest, ALoadDoesNotHoldUpOtherImages) {
  const auto slow = store_.intern(bytes_of("slow")), fast = store_.intern(bytes_of("fast"));
  std::promise<void> loading, go_on;
  auto first = std::async(std::launch::async, [&] {
    std::shared_ptr<LoadedLibrary> made;
    EXPECT_TRUE(store_
                    .library(
                        slow,
                        [&](auto* out) {
                          loading.set_value();
                          go_on.get_future().wait();
                          return load(out);
                        },
                        &made)
                    .ok());
    return made;
  });
  loading.get_future().wait();
  const auto other = library(fast);
  EXPECT_EQ(store_.intern(bytes_of("fast")), fast);
  EXPECT_EQ(loads_.load(), 1);
  go_on.set_value();
  EXPECT_NE(first.get(), other);
}

TEST_F(ImageStoreTest, KernelsKeepTheirFirstAttributesAndTheLargestThatWasAskedFor) {
  const auto image = store_.intern(bytes_of("code"));
  const auto made = library(image);
  CUkernel kernel = reinterpret_cast<CUkernel>(uint64_t{1});
  CUkernel other = reinterpret_cast<CUkernel>(uint64_t{2});
  int32_t attributes[wire::kFunctionAttributes] = {1, 2, 3};
  made->pristine(kernel, attributes);
  int32_t changed[wire::kFunctionAttributes] = {9, 9, 9};
  made->pristine(kernel, changed);
  EXPECT_EQ(changed[0], 1);
  EXPECT_EQ(changed[2], 3);
  int32_t others[wire::kFunctionAttributes] = {7};
  made->pristine(other, others);
  EXPECT_EQ(others[0], 7);

  constexpr auto kShared = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
  CUfunction function = nullptr;
  EXPECT_EQ(made->set(kernel, 0, {wire::FunctionSetting::kAttribute, kShared}, 4096),
            CUDA_ERROR_INVALID_HANDLE)
      << "it is loaded nowhere";
  for (CUkernel each : {kernel, other}) {
    for (const uint32_t device : {0u, 1u}) {
      EXPECT_EQ(made->load(each, {device}, &function), CUDA_SUCCESS);
    }
  }
  const auto set = [&](CUkernel each, uint32_t device, CUfunction_attribute name, int value) {
    driver_.take_calls();
    EXPECT_EQ(made->set(each, device, {wire::FunctionSetting::kAttribute, name}, value),
              CUDA_SUCCESS);
    return driver_.take_calls().back();
  };
  EXPECT_EQ(set(kernel, 0, kShared, 4096), "attribute 8=4096");
  EXPECT_EQ(set(kernel, 0, kShared, 1024), "attribute 8=4096") << "the other was allowed more";
  EXPECT_EQ(set(kernel, 0, kShared, 8192), "attribute 8=8192");
  EXPECT_EQ(set(kernel, 1, kShared, 16), "attribute 8=16") << "another device";
  EXPECT_EQ(set(other, 0, kShared, 16), "attribute 8=16") << "another kernel";
  EXPECT_EQ(set(kernel, 0, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 16),
            "attribute 9=16");
}

TEST(ImageStoreSwitch, TheEnvironmentSwitchesSharingOff) {
  setenv("OPENMPS_SHARE_MODULES", "0", 1);
  ImageStore store;
  setenv("OPENMPS_SHARE_MODULES", "1", 1);
  const ImageStore other;
  unsetenv("OPENMPS_SHARE_MODULES");
  EXPECT_FALSE(store.shares());
  EXPECT_TRUE(other.shares());
  EXPECT_TRUE(ImageStore().shares());
  EXPECT_NE(store.intern(bytes_of("code")), store.intern(bytes_of("code")));
  int loads = 0;
  const auto image = store.intern(bytes_of("code"));
  std::shared_ptr<LoadedLibrary> none;
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(store
                    .library(
                        image, [&](auto*) { return ++loads, Status(); }, &none)
                    .ok());
  }
  EXPECT_EQ(loads, 2);
}

// Which loads of sessions share.
class SharedLibraries : public SessionFixture {
 protected:
  Status load(wire::Id id, const std::string& image,
              wire::ModuleKind kind = wire::ModuleKind::kLibrary, uint32_t options = 0) {
    EXPECT_TRUE(send(wire::BlobBegin{image.size(), id}).ok());
    memcpy(session_->core.view.staging(), image.data(), image.size());
    const auto bytes = static_cast<uint32_t>(image.size());
    EXPECT_TRUE(send(wire::BlobData{id, bytes, 0, kStaging}).ok());
    const wire::JitOption option{32, CU_JIT_MAX_REGISTERS};
    return send(
        wire::ModuleLoad{id, id, 0, kind, 0, options},
        options == 0 ? "" : std::string(reinterpret_cast<const char*>(&option), sizeof(option)));
  }
  uint64_t loaded() { return gate_.calls(GatedCall::kLibraryLoad); }
};

TEST_F(SharedLibraries, TheSameImageIsOneLibraryUntilItsLastUnload) {
  ASSERT_TRUE(load(1, "code").ok());
  ASSERT_TRUE(load(2, "code").ok());
  EXPECT_EQ(loaded(), 1u);
  EXPECT_EQ(driver_.live(), "libraries 1 registrations 1");
  EXPECT_TRUE(send(wire::ModuleUnload{1}).ok());
  EXPECT_EQ(driver_.live(), "libraries 1 registrations 1");
  EXPECT_TRUE(send(wire::GetFunction{2, 1, wire::ModuleKind::kLibrary, 4}, "kern").ok());
  EXPECT_TRUE(send(wire::ModuleUnload{2}).ok());
  EXPECT_EQ(driver_.live(), "registrations 1");
}

TEST_F(SharedLibraries, OptionsVariablesAndModulesAreASessionsOwn) {
  ASSERT_TRUE(load(1, "code").ok());
  ASSERT_TRUE(load(2, "code", wire::ModuleKind::kLibrary, 1).ok());
  EXPECT_EQ(loaded(), 2u) << "options change the code";
  ASSERT_TRUE(load(3, ".global .b32 x;").ok());
  ASSERT_TRUE(load(4, ".global .b32 x;").ok());
  EXPECT_EQ(loaded(), 4u) << "variables are a session's own";
  ASSERT_TRUE(load(5, "code", wire::ModuleKind::kModule).ok());
  EXPECT_EQ(driver_.live(), "libraries 4 registrations 1");
}

TEST_F(SharedLibraries, MachineCodeWithoutVariablesIsShared) {
  const std::string shared = TestCubin().without_variables().image();
  ASSERT_TRUE(load(1, shared).ok());
  ASSERT_TRUE(load(2, shared).ok());
  EXPECT_EQ(loaded(), 1u);
  TestCubin cubin;
  cubin.add("x", TestCubin::kGlobal);
  const std::string own = cubin.image();
  ASSERT_TRUE(load(3, own).ok());
  ASSERT_TRUE(load(4, own).ok());
  EXPECT_EQ(loaded(), 3u);
  EXPECT_EQ(driver_.live(), "libraries 3 registrations 1");
  for (const wire::Id id : {1, 2, 3, 4}) EXPECT_TRUE(send(wire::ModuleUnload{id}).ok());
  EXPECT_EQ(driver_.live(), "registrations 1");
}

TEST_F(SharedLibraries, WhatTheDriverRefusesIsAskedForOnce) {
  const std::string code = TestCubin().without_variables().image();
  driver_.fail("load", CUDA_ERROR_NO_BINARY_FOR_GPU);
  EXPECT_EQ(load(1, code).code(), CUDA_ERROR_NO_BINARY_FOR_GPU);
  EXPECT_EQ(loaded(), 1u);
  driver_.fail("load", CUDA_SUCCESS);
  EXPECT_TRUE(load(2, code).ok());
  EXPECT_EQ(driver_.live(), "libraries 1 registrations 1");
}

TEST_F(SharedLibraries, VariablesBeyondTheLimitAreNotLoaded) {
  TestCubin cubin;
  cubin.add("x", TestCubin::kGlobal);
  std::string code = cubin.image();
  const uint64_t bytes = limit() + 1;
  memcpy(code.data() + sizeof(Elf64_Ehdr) + TestCubin::kGlobal * sizeof(Elf64_Shdr) +
             offsetof(Elf64_Shdr, sh_size),
         &bytes, sizeof(bytes));
  EXPECT_EQ(load(1, code).code(), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(loaded(), 0u);
  EXPECT_EQ(driver_.live(), "registrations 1");
}

// ---- Images that another worker is to have ------------------------------------------------------

// What the server keeps for a store, and gives to another.
class KeptImagesTest : public ImageStoreTest {
 protected:
  KeptImagesTest() {
    connect(store_, one_);
    connect(other_, two_);
  }
  struct AtServer {
    std::map<uint64_t, int> counts;
    std::map<uint64_t, std::pair<uint64_t, UniqueFd>> files;
    bool works = true;
  };
  static void connect(ImageStore& store, AtServer& server) {
    store.set_keeping({[&server](uint64_t hash, uint64_t bytes, int file) {
                         if (!server.works) return false;
                         ++server.counts[hash];
                         server.files[hash] = {bytes, UniqueFd(fcntl(file, F_DUPFD_CLOEXEC, 0))};
                         return true;
                       },
                       [&server](uint64_t hash) { --server.counts[hash]; }});
  }
  // To the other worker.
  void give(uint64_t hash) {
    const auto& [bytes, file] = one_.files.at(hash);
    other_.give(hash, bytes, UniqueFd(fcntl(file.get(), F_DUPFD_CLOEXEC, 0)));
  }
  AtServer one_;
  AtServer two_;
  ImageStore other_;
};

TEST_F(KeptImagesTest, AnImageIsKeptWhileItIsHeld) {
  auto image = store_.intern(bytes_of("kernel one"));
  auto same = store_.intern(bytes_of("kernel one"));
  const uint64_t hash = store_.kept_hash(image);
  ASSERT_NE(hash, 0u);
  EXPECT_EQ(one_.counts[hash], 1) << "it is one image";
  EXPECT_EQ(store_.find_kept(hash), image);
  image.reset();
  EXPECT_EQ(one_.counts[hash], 1);
  same.reset();
  EXPECT_EQ(one_.counts[hash], 0);
  EXPECT_EQ(store_.find_kept(hash), nullptr);
}

TEST_F(KeptImagesTest, AnotherWorkerFindsItByItsHash) {
  const std::string text(3 * 4096 + 5, 'x');
  auto image = store_.intern(bytes_of(text));
  const uint64_t hash = store_.kept_hash(image);
  EXPECT_EQ(other_.find_kept(hash), nullptr);
  give(hash);
  EXPECT_EQ(two_.counts[hash], 0) << "nobody uses it there";
  auto there = other_.find_kept(hash);
  ASSERT_NE(there, nullptr);
  EXPECT_EQ(*there, bytes_of(text));
  EXPECT_EQ(two_.counts[hash], 1);
  EXPECT_EQ(other_.kept_hash(there), hash);
  image.reset();
  EXPECT_EQ(one_.counts[hash], 0);
  other_.drop_given(hash);
  EXPECT_EQ(*there, bytes_of(text)) << "its user has it";
  EXPECT_EQ(other_.find_kept(hash), there);
  there.reset();
  EXPECT_EQ(two_.counts[hash], 0);
  EXPECT_EQ(other_.find_kept(hash), nullptr);
}

TEST_F(KeptImagesTest, AGivenImageIsTheSameAsOneThatAClientSends) {
  const auto image = store_.intern(bytes_of("kernel one"));
  const uint64_t hash = store_.kept_hash(image);
  give(hash);
  const auto guess = other_.candidate(10, bytes_of("kernel on"));
  ASSERT_NE(guess, nullptr);
  const auto sent = other_.intern(bytes_of("kernel one"));
  EXPECT_EQ(sent, guess);
  EXPECT_EQ(other_.find_kept(hash), sent);
  EXPECT_EQ(two_.counts[hash], 1);
  const auto made = library(image);
  EXPECT_EQ(library(image), made);
}

TEST_F(KeptImagesTest, AnImageThatIsThereAlreadyIsNotTakenTwice) {
  const auto image = store_.intern(bytes_of("kernel one"));
  const auto own = other_.intern(bytes_of("kernel one"));
  const uint64_t hash = store_.kept_hash(image);
  give(hash);
  EXPECT_EQ(other_.find_kept(hash), own);
  other_.drop_given(hash);
  EXPECT_EQ(other_.find_kept(hash), own);
}

// Two images of one hash: neither is mistaken for the other.
TEST_F(KeptImagesTest, AHashThatTwoImagesHaveNamesNone) {
  const auto image = store_.intern(bytes_of("kernel one"));
  const auto different = other_.intern(bytes_of("kernel two"));
  const uint64_t hash = other_.kept_hash(different);
  one_.files[hash] = {
      10, UniqueFd(fcntl(one_.files.at(store_.kept_hash(image)).second.get(), F_DUPFD_CLOEXEC, 0))};
  give(hash);
  EXPECT_EQ(other_.find_kept(hash), nullptr);
  EXPECT_EQ(other_.intern(bytes_of("kernel two")), different);
}

TEST_F(KeptImagesTest, AnImageThatTheServerDoesNotTakeIsNotKept) {
  one_.works = false;
  const auto image = store_.intern(bytes_of("kernel one"));
  EXPECT_EQ(*image, bytes_of("kernel one"));
  EXPECT_EQ(store_.kept_hash(image), 0u);
}

TEST_F(KeptImagesTest, AFileThatCanChangeIsNoImage) {
  Result<UniqueFd> file = create_shared_file("test", 4096);
  ASSERT_TRUE(file.ok());
  other_.give(5, 4096, std::move(file).value());
  EXPECT_EQ(other_.find_kept(5), nullptr);
  Result<UniqueFd> sealed = create_sealed_file("test", bytes_of("code"));
  ASSERT_TRUE(sealed.ok());
  other_.give(6, 4096, std::move(sealed).value());
  EXPECT_EQ(other_.find_kept(6), nullptr) << "it is shorter";
}

}  // namespace
}  // namespace openmps::worker
