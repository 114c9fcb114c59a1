// SPDX-License-Identifier: Apache-2.0
// What has changed between two versions of a memory, and both sides' changes brought together.
#include "client/versions.h"

#include <gtest/gtest.h>

#include <string>

namespace openmps::client {
namespace {

constexpr size_t kPage = 4096;

class VersionsTest : public ::testing::Test {
 protected:
  explicit VersionsTest(size_t bytes = 3 * kPage + 10) : now(bytes), known(bytes), fresh(bytes) {
    for (size_t i = 0; i < bytes; ++i) now[i] = known[i] = fresh[i] = std::byte(i * 7);
  }
  // "4-8 20-24"
  [[nodiscard]] std::string changed() const {
    std::string text;
    for (const ChangedRun& run : changed_runs(now.data(), known.data(), now.size())) {
      text += (text.empty() ? "" : " ") + std::to_string(run.first) + "-" + std::to_string(run.end);
    }
    return text;
  }
  void write(size_t first, size_t end) {
    for (size_t i = first; i < end; ++i) now[i] ^= std::byte{0x55};
  }

  std::vector<std::byte> now;
  std::vector<std::byte> known;
  std::vector<std::byte> fresh;
};

TEST_F(VersionsTest, RunsAreOfWholeWords) {
  EXPECT_EQ(changed(), "");
  write(5, 6);
  write(12, 20);
  EXPECT_EQ(changed(), "4-8 12-20");
  write(8, 9);
  EXPECT_EQ(changed(), "4-20");
}

TEST_F(VersionsTest, RunsGoOnInTheNextPage) {
  write(kPage - 4, kPage + 4);
  write(3 * kPage + 9, 3 * kPage + 10);
  EXPECT_EQ(changed(), "4092-4100 12296-12298") << "the last word is short";
}

TEST_F(VersionsTest, APageWithManyRunsIsOne) {
  for (size_t i = 0; i < 8; ++i) write(100 + 8 * i, 101 + 8 * i);
  EXPECT_EQ(changed(), "100-104 108-112 116-120 124-128 132-136 140-144 148-152 156-160");
  write(2000, 2001);
  EXPECT_EQ(changed(), "100-2004");
  // As when all of an array is written: in each word the low byte has changed.
  for (size_t i = 0; i < now.size(); i += 4) now[i] = known[i] ^ std::byte{1};
  EXPECT_EQ(changed(), "0-12298");
}

TEST_F(VersionsTest, BothSidesChangesComeTogether) {
  const std::byte one = now[8] ^ std::byte{0x55};
  write(8, 9);               // here only
  fresh[9] = std::byte{77};  // there only
  fresh[kPage] = std::byte{78};
  write(kPage + 1, kPage + 2);  // on both sides
  fresh[kPage + 1] = std::byte{79};
  take_over(now.data(), known.data(), fresh.data(), now.size());
  EXPECT_EQ(now[8], one);
  EXPECT_EQ(now[9], std::byte{77});
  EXPECT_EQ(now[kPage], std::byte{78});
  EXPECT_NE(now[kPage + 1], std::byte{79}) << "what the program has written stays";
  EXPECT_EQ(known, fresh);
  EXPECT_EQ(changed(), "8-12 4096-4100") << "and goes to the other side";
}

}  // namespace
}  // namespace openmps::client
