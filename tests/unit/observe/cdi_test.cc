// SPDX-License-Identifier: Apache-2.0
// The file for container engines: the daemon's list of namespaces, the text, the replacement.
#include "observe/cdi.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

namespace openmps::observe {
namespace {

// The answer to namespace list --format=csv,noheader. A limit of two devices has a comma.
constexpr const char* kList =
    "quarter,main,Ready,0=2G,25,0,/run/openmps/main/quarter\n"
    "half,main,Ready,\"0=4G,1=2G\",50,1,/run/openmps/main/half\n"
    "quarter,night,Stopped,N/A,N/A,N/A,/run/openmps/night/quarter\n";

constexpr const char* kLibrary = "/usr/lib/openmps/libcuda.so.1";

CdiSpec spec_of(std::vector<CdiDevice> devices) {
  CdiSpec spec;
  spec.libraries.client = kLibrary;
  spec.devices = std::move(devices);
  return spec;
}

TEST(ReadShares, NamesAndDirectories) {
  const std::vector<Share> read = read_shares(kList).value();
  ASSERT_EQ(read.size(), 3u);
  EXPECT_EQ(read[0].server + ":" + read[0].name, "main:quarter");
  EXPECT_EQ(read[0].directory, "/run/openmps/main/quarter");
  EXPECT_EQ(read[1].server + ":" + read[1].name, "main:half");
  EXPECT_EQ(read[1].directory, "/run/openmps/main/half");
  EXPECT_EQ(read[2].server + ":" + read[2].name, "night:quarter");
  EXPECT_TRUE(read_shares("").value().empty());
  EXPECT_TRUE(read_shares("\n").value().empty());
}

TEST(ReadShares, FieldsInQuotationMarks) {
  const std::vector<Share> read =
      read_shares("\"a\",b,,,,,\"/one, \"\"two\"\"\nthree\"\nc,d,,,,,/e").value();
  ASSERT_EQ(read.size(), 2u);
  EXPECT_EQ(read[0].name + read[0].server, "ab");
  EXPECT_EQ(read[0].directory, "/one, \"two\"\nthree");
  EXPECT_EQ(read[1].name + read[1].server, "cd");
}

TEST(ReadShares, WhatIsNoListIsAnError) {
  for (const char* text : {"Unknown command: namespace", "a,b,c,d,e,/f", "a,b,c,d,e,f,g",
                           "a,b,c,d,e,f,/g,h", "\"a,b,c,d,e,f,/g"}) {
    const Result<std::vector<Share>> read = read_shares(text);
    ASSERT_FALSE(read.ok()) << text;
    EXPECT_NE(read.status().message().find("has a line that is none"), std::string::npos);
  }
}

TEST(CdiText, HasADeviceForEachShare) {
  const CdiSpec described = spec_of({{"main:quarter", "/run/openmps/main/quarter"},
                                     {"0", "/run/openmps/main/half", {{"A", "1"}, {"B", "x y"}}}});
  const nlohmann::json spec = nlohmann::json::parse(cdi_text(described).value());
  EXPECT_EQ(spec.at("cdiVersion"), "0.5.0");
  EXPECT_EQ(spec.at("kind"), "openmps.org/share");
  const nlohmann::json& common = spec.at("containerEdits");
  EXPECT_EQ(common.at("env"),
            nlohmann::json({"CUDA_MPS_PIPE_DIRECTORY=/run/openmps", "OPENMPS_REQUIRED=1"}));
  ASSERT_EQ(common.at("mounts").size(), 2u);
  for (const nlohmann::json& mount : common.at("mounts")) {
    EXPECT_EQ(mount.at("hostPath"), kLibrary);
    EXPECT_EQ(mount.at("options"), nlohmann::json({"ro", "nosuid", "nodev", "bind"}));
  }
  EXPECT_EQ(common.at("mounts")[1].at("containerPath"), "/usr/lib64/libcuda.so.1");
  ASSERT_EQ(spec.at("devices").size(), described.devices.size());
  for (size_t i = 0; i < described.devices.size(); ++i) {
    const nlohmann::json& device = spec.at("devices")[i];
    EXPECT_EQ(device.at("name"), described.devices[i].name);
    const nlohmann::json& edits = device.at("containerEdits");
    EXPECT_EQ(edits.size(), 1u + i) << "no device files, no hooks: " << edits;
    ASSERT_EQ(edits.at("mounts").size(), 1u);
    EXPECT_EQ(edits.at("mounts")[0].at("hostPath"), described.devices[i].directory);
    EXPECT_EQ(edits.at("mounts")[0].at("containerPath"), "/run/openmps");
    EXPECT_EQ(edits.at("mounts")[0].at("options"),
              nlohmann::json({"ro", "nosuid", "nodev", "bind"}));
  }
  EXPECT_EQ(spec.at("devices")[1].at("containerEdits").at("env"), nlohmann::json({"A=1", "B=x y"}));
}

TEST(CdiText, TheNvmlLibraryIsBesideTheClientLibrary) {
  CdiSpec described = spec_of({{"a", "/d"}});
  described.libraries.nvml = "/usr/lib/openmps/nvml/libnvidia-ml.so.1";
  const nlohmann::json spec = nlohmann::json::parse(cdi_text(described).value());
  std::map<std::string, std::string> from;
  for (const nlohmann::json& mount : spec.at("containerEdits").at("mounts")) {
    from[mount.at("containerPath")] = mount.at("hostPath");
  }
  ASSERT_EQ(from.size(), 4u);
  EXPECT_EQ(from["/usr/lib64/libcuda.so.1"], kLibrary);
  EXPECT_EQ(from["/usr/lib64/libnvidia-ml.so.1"], described.libraries.nvml);
}

TEST(ContainerLibraries, TheNvmlLibraryIsMountedIfItIsThere) {
  std::string folder = "/tmp/openmps-libraries-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const std::string client = folder + "/libcuda.so.1";
  EXPECT_EQ(libraries_at(client).client, client);
  EXPECT_EQ(libraries_at(client).nvml, "");
  std::filesystem::create_directory(folder + "/nvml");
  const std::string nvml = folder + "/nvml/libnvidia-ml.so.1";
  std::ofstream(nvml) << "a library";
  EXPECT_EQ(libraries_at(client).nvml, nvml);
  std::filesystem::remove_all(folder);
}

TEST(CdiText, WhatTheFormatDoesNotAllowIsAnError) {
  for (const char* name : {"", "a b", "a/b", "a.", "_a"}) {
    EXPECT_FALSE(cdi_text(spec_of({{name, "/d"}})).ok()) << name;
  }
  for (const char* name : {"0", "a_b-c.d", "A9", "main:quarter"}) {
    EXPECT_TRUE(cdi_text(spec_of({{name, "/d"}})).ok()) << name;
  }
  for (const char* vendor : {"", "0.org", "open mps", "openmps.", "open/mps"}) {
    CdiSpec spec = spec_of({{"a", "/d"}});
    spec.vendor = vendor;
    EXPECT_FALSE(cdi_text(spec).ok()) << vendor;
  }
  for (const char* kind : {"", "0", "a.b", "a-", "a/b"}) {
    CdiSpec spec = spec_of({{"a", "/d"}});
    spec.device_class = kind;
    EXPECT_FALSE(cdi_text(spec).ok()) << kind;
  }
  CdiSpec spec = spec_of({{"a", "/d"}});
  spec.libraries.client = "libcuda.so.1";
  EXPECT_FALSE(cdi_text(spec).ok());
  EXPECT_FALSE(cdi_text(spec_of({{"a", "/\xff"}})).ok()) << "not UTF-8";
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
}  // namespace openmps::observe
