// SPDX-License-Identifier: Apache-2.0
// The file of `openmps cdi generate`: the daemon's list of namespaces, the text, the replacement.
#include "cli/cdi.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

namespace openmps::cli {
namespace {

// The answer to namespace list --format=csv,noheader. A limit of two devices has a comma.
constexpr const char* kList =
    "quarter,main,Ready,0=2G,25,0,/run/openmps/main/quarter\n"
    "half,main,Ready,\"0=4G,1=2G\",50,1,/run/openmps/main/half\n"
    "quarter,night,Stopped,N/A,N/A,N/A,/run/openmps/night/quarter\n";

std::vector<Share> shares() { return read_shares(kList).value(); }

CdiOptions with_library() {
  CdiOptions options;
  options.library = "/usr/lib/openmps/libcuda.so.1";
  return options;
}

TEST(ReadShares, NamesAndDirectories) {
  const std::vector<Share> read = shares();
  ASSERT_EQ(read.size(), 3u);
  EXPECT_EQ(device_name(read[0]), "main:quarter");
  EXPECT_EQ(read[0].directory, "/run/openmps/main/quarter");
  EXPECT_EQ(device_name(read[1]), "main:half");
  EXPECT_EQ(read[1].directory, "/run/openmps/main/half");
  EXPECT_EQ(device_name(read[2]), "night:quarter");
  EXPECT_TRUE(read_shares("").value().empty());
  EXPECT_TRUE(read_shares("\n").value().empty());
}

TEST(ReadShares, FieldsInQuotationMarks) {
  const std::vector<Share> read =
      read_shares("\"a\",b,,,,,\"/one, \"\"two\"\"\nthree\"\nc,d,,,,,/e").value();
  ASSERT_EQ(read.size(), 2u);
  EXPECT_EQ(device_name(read[0]), "b:a");
  EXPECT_EQ(read[0].directory, "/one, \"two\"\nthree");
  EXPECT_EQ(device_name(read[1]), "d:c");
}

TEST(ReadShares, WhatIsNoListIsAnError) {
  for (const char* text : {"Unknown command: namespace", "a,b,c,d,e,/f", "a,b,c,d,e,f,g",
                           "a,b,c,d,e,f,/g,h", "\"a,b,c,d,e,f,/g"}) {
    const Result<std::vector<Share>> read = read_shares(text);
    ASSERT_FALSE(read.ok()) << text;
    EXPECT_NE(read.status().message().find("has a line that is none"), std::string::npos);
  }
}

TEST(ChooseShares, ByName) {
  EXPECT_EQ(choose_shares(shares(), {}).value().size(), 3u);
  const std::vector<Share> chosen =
      choose_shares(shares(), {"night/quarter", "main/half", "night/quarter"}).value();
  ASSERT_EQ(chosen.size(), 2u);
  EXPECT_EQ(device_name(chosen[0]), "night:quarter");
  EXPECT_EQ(device_name(chosen[1]), "main:half");
  const Result<std::vector<Share>> unknown = choose_shares(shares(), {"main/third"});
  EXPECT_EQ(unknown.status().code(), CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(unknown.status().message(),
            "there is no namespace main/third; there are: main/quarter, main/half, night/quarter");
  EXPECT_EQ(choose_shares({}, {"a/b"}).status().message(),
            "there is no namespace a/b, nor any other");
}

TEST(CdiText, HasADeviceForEachShare) {
  CdiOptions options = with_library();
  options.all = true;
  const nlohmann::json spec =
      nlohmann::json::parse(cdi_text(shares(), options, "/run/openmps").value());
  EXPECT_EQ(spec.at("cdiVersion"), "0.5.0");
  EXPECT_EQ(spec.at("kind"), "openmps.org/share");
  const nlohmann::json& common = spec.at("containerEdits");
  EXPECT_EQ(common.at("env"),
            nlohmann::json({"CUDA_MPS_PIPE_DIRECTORY=/run/openmps", "OPENMPS_REQUIRED=1"}));
  ASSERT_EQ(common.at("mounts").size(), 2u);
  for (const nlohmann::json& mount : common.at("mounts")) {
    EXPECT_EQ(mount.at("hostPath"), "/usr/lib/openmps/libcuda.so.1");
    EXPECT_EQ(mount.at("options"), nlohmann::json({"ro", "nosuid", "nodev", "bind"}));
  }
  EXPECT_EQ(common.at("mounts")[1].at("containerPath"), "/usr/lib64/libcuda.so.1");
  const std::pair<const char*, const char*> wanted[] = {
      {"main:quarter", "/run/openmps/main/quarter"},
      {"main:half", "/run/openmps/main/half"},
      {"night:quarter", "/run/openmps/night/quarter"},
      {"all", "/run/openmps"}};
  ASSERT_EQ(spec.at("devices").size(), std::size(wanted));
  for (size_t i = 0; i < std::size(wanted); ++i) {
    const nlohmann::json& device = spec.at("devices")[i];
    EXPECT_EQ(device.at("name"), wanted[i].first);
    const nlohmann::json& edits = device.at("containerEdits");
    EXPECT_EQ(edits.size(), 1u) << "no device files, no hooks: " << edits;
    ASSERT_EQ(edits.at("mounts").size(), 1u);
    EXPECT_EQ(edits.at("mounts")[0].at("hostPath"), wanted[i].second);
    EXPECT_EQ(edits.at("mounts")[0].at("containerPath"), "/run/openmps");
    EXPECT_EQ(edits.at("mounts")[0].at("options"),
              nlohmann::json({"ro", "nosuid", "nodev", "bind"}));
  }
}

TEST(CdiText, WhatTheFormatDoesNotAllowIsAnError) {
  EXPECT_FALSE(cdi_text({}, with_library(), "/run/openmps").ok()) << "no device";
  for (const char* name : {"", "a b", "a/b", "a."}) {
    EXPECT_FALSE(cdi_text({{"main", name, "/d"}}, with_library(), "/run").ok()) << name;
  }
  EXPECT_FALSE(cdi_text({{"_main", "a", "/d"}}, with_library(), "/run").ok());
  for (const char* name : {"0", "a_b-c.d", "A9"}) {
    EXPECT_TRUE(cdi_text({{"0", name, "/d"}}, with_library(), "/run").ok()) << name;
  }
  for (const char* vendor : {"", "0.org", "open mps", "openmps.", "open/mps"}) {
    CdiOptions options = with_library();
    options.vendor = vendor;
    EXPECT_FALSE(cdi_text(shares(), options, "/run").ok()) << vendor;
  }
  for (const char* kind : {"", "0", "a.b", "a-", "a/b"}) {
    CdiOptions options = with_library();
    options.device_class = kind;
    EXPECT_FALSE(cdi_text(shares(), options, "/run").ok()) << kind;
  }
  CdiOptions options = with_library();
  options.library = "libcuda.so.1";
  EXPECT_FALSE(cdi_text(shares(), options, "/run").ok());
  EXPECT_FALSE(cdi_text({{"main", "a", "/\xff"}}, with_library(), "/run").ok()) << "not UTF-8";
}

class ReplaceFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char pattern[] = "/tmp/openmps-test-XXXXXX";
    ASSERT_NE(mkdtemp(pattern), nullptr);
    directory_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }
  static std::string content(const std::string& path) {
    std::stringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }
  size_t files(const std::string& folder) const {
    size_t count = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder)) ++count;
    return count;
  }
  std::string directory_;
};

TEST_F(ReplaceFileTest, MakesItsFolderAndAFileForAllToRead) {
  const std::string path = directory_ + "/etc/cdi/openmps.json";
  const mode_t before = umask(077);
  EXPECT_TRUE(replace_file(path, "one").ok());
  umask(before);
  EXPECT_EQ(content(path), "one");
  struct stat info {};
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0644u);
  EXPECT_EQ(files(directory_ + "/etc/cdi"), 1u);
}

TEST_F(ReplaceFileTest, WhoHasOpenedItReadsTheOldText) {
  const std::string path = directory_ + "/openmps.json";
  ASSERT_TRUE(replace_file(path, "one").ok());
  std::ifstream open(path);
  ASSERT_TRUE(replace_file(path, "another").ok());
  std::stringstream text;
  text << open.rdbuf();
  EXPECT_EQ(text.str(), "one");
  EXPECT_EQ(content(path), "another");
  EXPECT_EQ(files(directory_), 1u);
}

TEST_F(ReplaceFileTest, ALinkIsReplacedAndNotFollowed) {
  const std::string other = directory_ + "/other";
  std::ofstream(other) << "untouched";
  std::filesystem::create_symlink(other, directory_ + "/openmps.json");
  ASSERT_TRUE(replace_file(directory_ + "/openmps.json", "one").ok());
  EXPECT_EQ(content(other), "untouched");
  EXPECT_EQ(content(directory_ + "/openmps.json"), "one");
}

TEST_F(ReplaceFileTest, WhatCantBeReplacedLeavesNothing) {
  std::filesystem::create_directories(directory_ + "/openmps.json/x");
  const Status refused = replace_file(directory_ + "/openmps.json", "one");
  EXPECT_FALSE(refused.ok());
  EXPECT_NE(refused.message().find(directory_ + "/openmps.json"), std::string::npos)
      << refused.message();
  EXPECT_EQ(files(directory_), 1u);
  std::ofstream(directory_ + "/file") << "";
  EXPECT_FALSE(replace_file(directory_ + "/file/openmps.json", "one").ok());
}

}  // namespace
}  // namespace openmps::cli
