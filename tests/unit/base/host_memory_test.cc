// SPDX-License-Identifier: Apache-2.0
// How much memory a process may still use.
#include "base/host_memory.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace openmps {
namespace {

class Cgroups : public ::testing::Test {
 protected:
  void SetUp() override {
    char path[] = "/tmp/host_memory_XXXXXX";
    ASSERT_NE(mkdtemp(path), nullptr);
    root_ = path;
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void write(const std::string& group, const std::string& file, const std::string& text) {
    std::filesystem::create_directories(root_ + group);
    std::ofstream(root_ + group + "/" + file) << text;
  }
  void limit(const std::string& group, const std::string& most, const std::string& used) {
    write(group, "memory.max", most + "\n");
    write(group, "memory.current", used + "\n");
  }
  std::string root_;
};

TEST(HostMemory, WhatTheSystemHas) {
  EXPECT_EQ(available_in_meminfo("MemTotal: 8 kB\nMemAvailable:       3 kB\nBuffers: 1 kB\n"),
            3072u);
  EXPECT_EQ(available_in_meminfo("MemTotal: 8 kB\n"), ~uint64_t{0});
  EXPECT_GT(available_host_memory(), 0u);
}

TEST_F(Cgroups, TheTightestOfAllAbove) {
  EXPECT_EQ(left_by_cgroups(root_, ""), ~uint64_t{0});
  limit("/a", "1000", "300");
  limit("/a/b", "max", "200");
  EXPECT_EQ(left_by_cgroups(root_, "/a/b"), 700u);
  limit("/a/b", "500", "200");
  EXPECT_EQ(left_by_cgroups(root_, "/a/b"), 300u);
  EXPECT_EQ(left_by_cgroups(root_, "/a"), 700u);
  EXPECT_EQ(left_by_cgroups(root_, "/other"), ~uint64_t{0});
}

TEST_F(Cgroups, WhatIsOnlyCachedCanBeHad) {
  limit("/a", "1000", "900");
  write("/a", "memory.stat", "anon 100\ninactive_file 600\nactive_file 200\n");
  EXPECT_EQ(left_by_cgroups(root_, "/a"), 700u);
  limit("/a", "500", "900");
  EXPECT_EQ(left_by_cgroups(root_, "/a"), 200u);
  write("/a", "memory.stat", "inactive_file 0\n");
  EXPECT_EQ(left_by_cgroups(root_, "/a"), 0u);
}

}  // namespace
}  // namespace openmps
