// SPDX-License-Identifier: Apache-2.0
// Images on disk: what was stored is read again, and nothing else is.
#include "worker/images/disk_store.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace openmps::worker {
namespace {

namespace fs = std::filesystem;
using Bytes = std::vector<unsigned char>;

Bytes image_of(size_t bytes, unsigned char seed) {
  Bytes image(bytes);
  for (size_t i = 0; i < bytes; ++i) image[i] = static_cast<unsigned char>(seed + i * 7);
  return image;
}

class DiskStoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char pattern[] = "/tmp/openmps-store-XXXXXX";
    ASSERT_NE(mkdtemp(pattern), nullptr);
    root_ = pattern;
    outer_ = root_ + "/store";
    place_ = outer_ + "/" + kStoreFolder;
  }
  void TearDown() override { fs::remove_all(root_); }

  DiskStore open(const std::string& key = "driver", uint64_t most_bytes = kStoredBytes) {
    Result<DiskStore> store = DiskStore::open(outer_, key, say(), most_bytes);
    EXPECT_TRUE(store.ok()) << store.status().message();
    return std::move(store).value();
  }
  // "": it is a place for a store.
  std::string why_not(const std::string& place) {
    const Result<DiskStore> store = DiskStore::open(place, "driver", say());
    return store.ok() ? "" : store.status().message();
  }
  DiskStore::Say say() {
    return [this](const std::string& line) { said_ += line + "\n"; };
  }
  static uint64_t put(DiskStore& store, const Bytes& image,
                      const UsedKernels& kernels = {{"mix", 1}}) {
    const uint64_t hash = hash_of(image);
    EXPECT_TRUE(store.write_image(hash, image).ok());
    EXPECT_TRUE(store.write_kernels(hash, kernels).ok());
    return hash;
  }
  // What reading it gives; said_ is what is said of it.
  CUresult read(DiskStore& store, uint64_t hash) {
    Bytes image;
    UsedKernels kernels;
    said_.clear();
    return store.read(hash, &image, &kernels).code();
  }
  [[nodiscard]] std::string path(const std::string& ending) const {
    for (const auto& file : fs::directory_iterator(place_)) {
      if (file.path().string().ends_with(ending)) return file.path().string();
    }
    return "";
  }
  [[nodiscard]] size_t lines() const {
    return static_cast<size_t>(std::count(said_.begin(), said_.end(), '\n'));
  }
  static void age(const std::string& file, int64_t seconds) {
    const timespec times[] = {{time(nullptr) - seconds, 0}, {time(nullptr) - seconds, 0}};
    EXPECT_EQ(utimensat(AT_FDCWD, file.c_str(), times, AT_SYMLINK_NOFOLLOW), 0);
  }

  std::string root_;
  std::string outer_;  // what is chosen
  std::string place_;  // where its files are
  std::string said_;
};

TEST_F(DiskStoreTest, WhatWasStoredComesBack) {
  const Bytes image = image_of(100'001, 3);
  const UsedKernels used{{"mix", 1}, {"_Z4spinPjj", 5}};
  uint64_t hash = 0;
  {
    DiskStore store = open();
    hash = put(store, image, used);
  }
  DiskStore store = open();
  ASSERT_EQ(store.entries().size(), 1u);
  EXPECT_EQ(store.entries()[0].hash, hash);
  Bytes back;
  UsedKernels kernels;
  const Status status = store.read(hash, &back, &kernels);
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(back, image);
  EXPECT_EQ(kernels, used);
  EXPECT_TRUE(store.write_kernels(hash, {{"more", 2}}).ok());
  EXPECT_TRUE(store.read_kernels(hash, &kernels).ok());
  EXPECT_EQ(kernels, (UsedKernels{{"more", 2}})) << "in place of the old list";
  struct stat info {};
  ASSERT_EQ(stat(place_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  for (const auto& file : fs::directory_iterator(place_)) {
    ASSERT_EQ(stat(file.path().c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0600u) << file.path();
  }
}

TEST_F(DiskStoreTest, AnotherDriverFindsNothing) {
  DiskStore store = open("driver 1");
  const uint64_t hash = put(store, image_of(100, 1));
  DiskStore other = open("driver 2");
  EXPECT_TRUE(other.entries().empty());
  EXPECT_EQ(read(other, hash), CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(said_, "") << "that is nothing to speak of";
  EXPECT_EQ(read(store, hash), CUDA_SUCCESS);
}

TEST_F(DiskStoreTest, WhatIsNotWholeIsIgnoredOnceAndRemoved) {
  struct Damage {
    const char* what;
    const char* ending;
    void (*f)(const std::string& file);
    const char* says;
  };
  static const Damage kDamages[] = {
      {"cut off", ".image", [](const std::string& file) { fs::resize_file(file, 500); },
       "it has changed"},
      {"empty", ".image", [](const std::string& file) { fs::resize_file(file, 0); },
       "it has changed"},
      {"too long", ".image",
       [](const std::string& file) { fs::resize_file(file, kMostStoredImageBytes + 1); },
       "it is too large"},
      {"a bit of the image", ".image",
       [](const std::string& file) {
         std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
         stream.seekp(700).put('\x55');
       },
       "it has changed"},
      {"what devices the list says", ".kernels",
       [](const std::string& file) {
         std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
         stream.seekp(0).put('\x55');
       },
       "makes no sense"},
      {"a list that is too long", ".kernels",
       [](const std::string& file) { fs::resize_file(file, kMostKernelListBytes + 1); },
       "it is too large"},
  };
  for (const Damage& damage : kDamages) {
    DiskStore store = open();
    const uint64_t hash = put(store, image_of(1000, 9));
    damage.f(path(damage.ending));
    EXPECT_EQ(read(store, hash), CUDA_ERROR_NOT_FOUND) << damage.what;
    EXPECT_NE(said_.find("is ignored and removed: "), std::string::npos) << said_;
    EXPECT_NE(said_.find(damage.says), std::string::npos) << damage.what << ": " << said_;
    EXPECT_EQ(lines(), 1u) << said_;
    EXPECT_EQ(path(damage.ending), "") << damage.what;
    EXPECT_EQ(read(store, hash), CUDA_ERROR_NOT_FOUND);
    EXPECT_EQ(said_, "") << "it has been said";
    fs::remove_all(outer_);
  }
}

TEST_F(DiskStoreTest, AnImageUnderAnothersNameIsNotThatOne) {
  DiskStore store = open();
  const Bytes other = image_of(1000, 9);
  const uint64_t hash = put(store, image_of(1000, 8));
  EXPECT_TRUE(store.write_image(hash, other).ok());
  EXPECT_EQ(read(store, hash), CUDA_ERROR_NOT_FOUND);
  EXPECT_NE(said_.find("it has changed"), std::string::npos) << said_;
}

TEST_F(DiskStoreTest, WhatIsNoFileIsLeftAlone) {
  DiskStore store = open();
  const uint64_t hash = put(store, image_of(1000, 9));
  const std::string image = path(".image");
  fs::rename(image, root_ + "/elsewhere");
  fs::create_symlink(root_ + "/elsewhere", image);
  EXPECT_EQ(read(store, hash), CUDA_ERROR_NOT_FOUND);
  EXPECT_NE(said_.find("is ignored: "), std::string::npos) << said_;
  EXPECT_TRUE(fs::is_symlink(image));
  fs::remove(image);
  ASSERT_EQ(mkfifo(image.c_str(), 0600), 0);
  EXPECT_EQ(read(store, hash), CUDA_ERROR_NOT_FOUND) << "nobody writes into it, and we don't wait";
  EXPECT_NE(said_.find("it is no file"), std::string::npos) << said_;
}

TEST_F(DiskStoreTest, OthersFilesAreNotBelieved) {
  DiskStore store = open();
  const uint64_t hash = put(store, image_of(1000, 9));
  if (geteuid() != 0) GTEST_SKIP() << "only root can give files to others";
  constexpr uid_t kNobody = 65534;
  ASSERT_EQ(chown(path(".image").c_str(), kNobody, kNobody), 0);
  EXPECT_EQ(read(store, hash), CUDA_ERROR_NOT_FOUND);
  EXPECT_NE(said_.find("is ignored: it is no file of this user"), std::string::npos) << said_;
  EXPECT_EQ(lines(), 1u);
  EXPECT_NE(path(".image"), "") << "it is not ours to remove";
  ASSERT_EQ(chown(place_.c_str(), kNobody, kNobody), 0);
  EXPECT_EQ(why_not(outer_), "openmps-code in it: it is user 65534's");
  ASSERT_EQ(chown(outer_.c_str(), kNobody, kNobody), 0);
  EXPECT_EQ(why_not(outer_), "it is user 65534's");
}

TEST_F(DiskStoreTest, APlaceThatIsNoneIsRefused) {
  EXPECT_FALSE(DiskStore::open(root_ + "/not/there", "key", say()).ok());
  std::ofstream(root_ + "/file") << "x";
  EXPECT_FALSE(DiskStore::open(root_ + "/file", "key", say()).ok());
  fs::create_directory(root_ + "/real");
  fs::create_symlink(root_ + "/real", root_ + "/link");
  EXPECT_FALSE(DiskStore::open(root_ + "/link", "key", say()).ok());
  fs::create_directory(root_ + "/real/elsewhere");
  fs::create_directory_symlink(root_ + "/real/elsewhere", root_ + "/real/" + kStoreFolder);
  EXPECT_NE(why_not(root_ + "/real"), "") << "a link in the place of the store";
  EXPECT_TRUE(fs::is_empty(root_ + "/real/elsewhere"));
}

// A directory that a user names may be in use: its other files are not touched.
TEST_F(DiskStoreTest, WhatElseIsThereStays) {
  fs::create_directory(outer_);
  ASSERT_EQ(chmod(outer_.c_str(), 0755), 0);
  const auto is_as_it_was = [this](const std::string& folder) {
    struct stat info {};
    return stat(outer_.c_str(), &info) == 0 && (info.st_mode & 07777) == 0755 &&
           fs::file_size(folder + "/data.h5") == 2ull << 30 &&
           fs::file_size(folder + "/0123456789abcdef-0123456789abcde.image") == 7 &&
           fs::file_size(folder + "/.x-1.new") == 7;
  };
  const auto fill = [](const std::string& folder) {
    std::ofstream(folder + "/data.h5") << "data";
    fs::resize_file(folder + "/data.h5", 2ull << 30);
    for (const char* name : {"/0123456789abcdef-0123456789abcde.image", "/.x-1.new"}) {
      std::ofstream(folder + name) << "foreign";
    }
    for (const auto& file : fs::directory_iterator(folder)) age(file.path(), 100'000);
  };
  fill(outer_);
  DiskStore store = open("driver", 3000);
  fill(place_);  // not even there
  for (const unsigned char seed : {1, 2, 3, 4}) put(store, image_of(1000, seed));
  EXPECT_LT(store.entries().size(), 4u) << "some had to make room";
  EXPECT_TRUE(is_as_it_was(outer_));
  EXPECT_TRUE(is_as_it_was(place_));
}

TEST_F(DiskStoreTest, AFolderThatOthersMayEnterIsRefused) {
  fs::create_directories(place_);
  ASSERT_EQ(chmod(place_.c_str(), 0750), 0);
  EXPECT_EQ(why_not(outer_), "openmps-code in it: others may enter it");
  struct stat info {};
  ASSERT_EQ(stat(place_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0750u);
  EXPECT_FALSE(fs::exists(place_ + "/CACHEDIR.TAG"));
  ASSERT_EQ(chmod(place_.c_str(), 0700), 0);
  EXPECT_EQ(why_not(outer_), "");
  EXPECT_TRUE(fs::exists(place_ + "/CACHEDIR.TAG"));
  EXPECT_EQ(why_not(outer_), "") << "nor if it is there already";
}

TEST_F(DiskStoreTest, WhatWasUsedLongestAgoGoesFirst) {
  const Bytes images[] = {image_of(1000, 1), image_of(1000, 2), image_of(1000, 3)};
  // Room for three images with their lists, and no more.
  DiskStore store = open("driver", 3 * (1000 + 6));
  const uint64_t old = put(store, images[0]);
  age(path(".image"), 100);
  age(path(".kernels"), 100);
  DiskStore past = open("another driver", 3 * (1000 + 6));
  put(past, images[1]);
  for (const auto& file : fs::directory_iterator(place_)) age(file.path(), 50);
  const uint64_t touched = put(store, images[2]);
  for (const auto& file : fs::directory_iterator(place_)) age(file.path(), 200);
  store.touch(old);
  EXPECT_EQ(store.entries().front().hash, old) << "the last used first";
  const uint64_t fourth = put(store, image_of(1000, 4));
  EXPECT_EQ(read(store, old), CUDA_SUCCESS);
  EXPECT_EQ(read(store, fourth), CUDA_SUCCESS);
  const size_t left = store.entries().size() + past.entries().size();
  EXPECT_EQ(left, 3u) << "one made room, of whichever key";
  put(store, image_of(1000, 5));
  EXPECT_EQ(read(store, touched), CUDA_ERROR_NOT_FOUND);
  EXPECT_TRUE(past.entries().empty());
  EXPECT_EQ(read(store, old), CUDA_SUCCESS);
  size_t files = 0;
  for ([[maybe_unused]] const auto& file : fs::directory_iterator(place_)) ++files;
  EXPECT_EQ(files, 7u) << "three images with their lists, and the store's tag";
  uint64_t bytes = 0;
  for (const auto& file : fs::directory_iterator(place_)) {
    if (file.path().filename() != "CACHEDIR.TAG") bytes += file.file_size();
  }
  EXPECT_LE(bytes, 3u * (1000 + 6));
  const Bytes large = image_of(4000, 1);
  EXPECT_EQ(store.write_image(hash_of(large), large).code(), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(read(store, old), CUDA_SUCCESS) << "nothing made room in vain";
}

TEST_F(DiskStoreTest, FilesOfWhoDiedWritingGoLikeOthers) {
  DiskStore store = open("driver", 2000);
  const std::string dead = place_ + "/0000000000000011-0000000000000001.new";
  const std::string live = place_ + "/0000000000000012-0000000000000001.new";
  for (const std::string& file : {dead, live}) {
    std::ofstream(file) << "half";
    fs::resize_file(file, 700);
  }
  age(dead, 100);
  put(store, image_of(1000, 1));
  EXPECT_FALSE(fs::exists(dead));
  EXPECT_TRUE(fs::exists(live)) << "under way";
  fs::remove(live);
  EXPECT_EQ(path(".new"), "") << "nothing of ours is left";
}

TEST(ContentHashTest, EachWordCounts) {
  Bytes bytes = image_of(100, 1);
  const uint64_t first = hash_of(bytes);
  EXPECT_EQ(hash_of(bytes), first);
  for (size_t i = 0; i < bytes.size(); ++i) {
    for (const int bit : {1, 128}) {
      bytes[i] = static_cast<unsigned char>(bytes[i] ^ bit);
      EXPECT_NE(hash_of(bytes), first) << i;
      bytes[i] = static_cast<unsigned char>(bytes[i] ^ bit);
    }
  }
  bytes.push_back(0);
  EXPECT_NE(hash_of(bytes), first) << "so do bytes of nothing";
  EXPECT_NE(hash_of(Bytes(7)), hash_of(Bytes(8)));
  std::swap(bytes[0], bytes[16]);
  EXPECT_NE(hash_of(bytes), first);
}

}  // namespace
}  // namespace openmps::worker
