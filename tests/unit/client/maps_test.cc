// SPDX-License-Identifier: Apache-2.0
// What /proc/self/maps says, and the files behind shared mappings.
#include "client/memory/maps.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string>

namespace openmps::client {
namespace {

bool parse(const std::string& line, MappedRegion* region) {
  return parse_maps_line(line.data(), line.size(), region);
}

TEST(MapsTest, LinesAreRead) {
  MappedRegion region;
  ASSERT_TRUE(
      parse("7f12a000-7f12c000 rw-s 00003000 fd:01 1234567    /dev/shm/a b (deleted)", &region));
  EXPECT_EQ(region.begin, 0x7f12a000u);
  EXPECT_EQ(region.end, 0x7f12c000u);
  EXPECT_EQ(region.kind.protection, PROT_READ | PROT_WRITE);
  EXPECT_TRUE(region.kind.shared);
  EXPECT_EQ(region.offset, 0x3000u);
  EXPECT_EQ(region.kind.device, (0xfdull << 32) | 1);
  EXPECT_EQ(region.kind.inode, 1234567u);
  EXPECT_EQ(std::string(region.path, region.path_length), "/dev/shm/a b (deleted)");

  ASSERT_TRUE(parse("ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0 ", &region));
  EXPECT_EQ(region.begin, 0xffffffffff600000u);
  EXPECT_EQ(region.kind.protection, PROT_EXEC);
  EXPECT_FALSE(region.kind.shared);
  EXPECT_EQ(region.kind.inode, 0u);
  EXPECT_EQ(region.path_length, 0u);
}

TEST(MapsTest, OtherLinesAreRefused) {
  MappedRegion region;
  const std::string good = "1000-2000 rw-p 00000000 00:00 0";
  ASSERT_TRUE(parse(good, &region));
  for (size_t length = 0; length < good.size(); ++length) {
    EXPECT_FALSE(parse(good.substr(0, length), &region)) << length;
  }
  EXPECT_FALSE(parse("2000-1000 rw-p 00000000 00:00 0", &region));
  EXPECT_FALSE(parse("Size:                  4 kB", &region));
}

TEST(MapsTest, RangesAreCoveredOrNot) {
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  void* memory = mmap(nullptr, 4 * page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const auto begin = reinterpret_cast<uint64_t>(memory);
  mprotect(reinterpret_cast<void*>(begin + page), page, PROT_READ | PROT_WRITE);
  const std::vector<Region> all = regions_of(begin, begin + 3 * page);
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[1].begin, begin + page);
  EXPECT_EQ(all[1].kind.protection, PROT_READ | PROT_WRITE);
  EXPECT_NE(all[0].kind, all[1].kind);
  munmap(reinterpret_cast<void*>(begin + 2 * page), page);
  EXPECT_TRUE(regions_of(begin, begin + 3 * page).empty()) << "a hole";
  EXPECT_EQ(regions_of(begin, begin + 2 * page).size(), 2u);
  munmap(memory, 4 * page);
}

class MappedFileTest : public ::testing::Test {
 protected:
  // A shared mapping of the file, which has `word` at its third page.
  Region map(int file, int protection = PROT_READ | PROT_WRITE) {
    const std::string text(3 * page_, 'x');
    EXPECT_EQ(pwrite(file, text.data(), text.size(), 0), static_cast<ssize_t>(text.size()));
    EXPECT_EQ(pwrite(file, &word_, sizeof(word_), 2 * static_cast<off_t>(page_)), 4);
    memory_ = mmap(nullptr, 2 * page_, protection, MAP_SHARED, file, static_cast<off_t>(page_));
    const auto begin = reinterpret_cast<uint64_t>(memory_);
    std::vector<Region> found = regions_of(begin, begin + 2 * page_);
    EXPECT_EQ(found.size(), 1u);
    return found.at(0);
  }
  ~MappedFileTest() override { munmap(memory_, 2 * page_); }

  static bool has_word(const UniqueFd& file, const Region& region, size_t page) {
    int word = 0;
    const auto at = static_cast<off_t>(region.offset + page);
    return pread(file.get(), &word, sizeof(word), at) == 4 && word == word_;
  }

  const size_t page_ = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  static constexpr int word_ = 4711;
  void* memory_ = nullptr;
};

TEST_F(MappedFileTest, IsFoundByADescriptor) {
  const UniqueFd other(memfd_create("the same name", MFD_CLOEXEC));
  const UniqueFd made(memfd_create("the same name", MFD_CLOEXEC));
  const Region region = map(made.get());
  const char* why = "";
  const UniqueFd file = file_of(region, true, &why);
  ASSERT_TRUE(file.valid()) << why;
  EXPECT_TRUE(has_word(file, region, page_));
  EXPECT_EQ(fcntl(file.get(), F_GETFL) & O_ACCMODE, O_RDWR);
}

TEST_F(MappedFileTest, IsFoundByItsPathAndNotByAnothersName) {
  char path[] = "/tmp/openmps-maps-XXXXXX";
  UniqueFd made(mkstemp(path));
  const Region region = map(made.get(), PROT_READ);
  made.reset();
  const char* why = "";
  UniqueFd file = file_of(region, false, &why);
  ASSERT_TRUE(file.valid()) << why;
  EXPECT_TRUE(has_word(file, region, page_));
  file.reset();
  // Another file has the name: it is none of the mapping's.
  unlink(path);
  const UniqueFd another(open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  Region renamed = region;
  renamed.name = path;
  renamed.begin = renamed.end;  // no way by /proc/self/map_files
  EXPECT_FALSE(file_of(renamed, false, &why).valid());
  unlink(path);
}

}  // namespace
}  // namespace openmps::client
