// SPDX-License-Identifier: Apache-2.0
// Which library the loader takes, on folders with libraries that look like drivers.
#include "driver/loader.h"

#include <gtest/gtest.h>

#include <string>

namespace openmps {
namespace {

std::string folder(const std::string& name) { return std::string(FAKES "/") + name; }
std::string library(const std::string& name) { return folder(name) + "/libcuda.so.1"; }

DriverSearch search(std::vector<std::string> nvidia, std::vector<std::string> softgpu,
                    bool gpu_present = true) {
  DriverSearch result;
  for (const std::string& name : nvidia) result.nvidia_directories.push_back(folder(name));
  for (const std::string& name : softgpu) result.softgpu_paths.push_back(library(name));
  result.gpu_present = gpu_present;
  return result;
}

std::string loaded_path(const Result<std::unique_ptr<Driver>>& result) {
  return result.ok() ? result.value()->path() : "error: " + result.status().message();
}

constexpr auto kInitialise = DriverProbe::kInitialise;
constexpr auto kPassive = DriverProbe::kPassive;

TEST(Loader, AutoTakesAWorkingGpu) {
  auto driver = load_driver("auto", kInitialise, search({"absent", "nvidia"}, {"softgpu"}));
  ASSERT_EQ(loaded_path(driver), library("nvidia"));
  EXPECT_EQ(driver.value()->kind(), DriverKind::kNvidia);
  const DriverTable& table = driver.value()->table();
  int version = 0;
  ASSERT_NE(table.cuDriverGetVersion, nullptr);
  EXPECT_EQ(table.cuDriverGetVersion(&version), CUDA_SUCCESS);
  EXPECT_EQ(version, 13000);
  EXPECT_EQ(table.cuMemAlloc_v2, nullptr) << "a symbol that the library lacks";
}

TEST(Loader, AutoFallsBackToSoftgpu) {
  for (const char* broken : {"absent", "no_device", "no_init", "other", "client"}) {
    auto driver = load_driver("", kInitialise, search({broken}, {"softgpu"}));
    EXPECT_EQ(loaded_path(driver), library("softgpu")) << broken;
  }
}

TEST(Loader, OurClientLibraryIsNeverADriver) {
  // As with LD_LIBRARY_PATH set for a program: the client is found first and passed over.
  auto driver = load_driver("auto", kInitialise, search({"client", "nvidia"}, {"softgpu"}));
  EXPECT_EQ(loaded_path(driver), library("nvidia"));
  driver = load_driver(library("client"), kInitialise, search({}, {}));
  ASSERT_FALSE(driver.ok());
  EXPECT_EQ(driver.status().code(), CUDA_ERROR_SHARED_OBJECT_INIT_FAILED);
  EXPECT_NE(driver.status().message().find("own client library"), std::string::npos);
}

TEST(Loader, PassiveProbeAsksTheDeviceNodesOnly) {
  // no_init would fail cuInit, but must not be called.
  EXPECT_EQ(loaded_path(load_driver("auto", kPassive, search({"no_init"}, {"softgpu"}, true))),
            library("no_init"));
  EXPECT_EQ(loaded_path(load_driver("auto", kPassive, search({"nvidia"}, {"softgpu"}, false))),
            library("softgpu"));
}

TEST(Loader, WordsSelectOneKind) {
  EXPECT_EQ(loaded_path(load_driver("nvidia", kInitialise, search({"nvidia"}, {"softgpu"}))),
            library("nvidia"));
  auto driver = load_driver("softgpu", kInitialise, search({"nvidia"}, {"absent", "softgpu"}));
  ASSERT_EQ(loaded_path(driver), library("softgpu"));
  EXPECT_EQ(driver.value()->kind(), DriverKind::kSoftgpu);
  EXPECT_FALSE(load_driver("nvidia", kInitialise, search({"softgpu"}, {"softgpu"})).ok());
  EXPECT_FALSE(load_driver("softgpu", kInitialise, search({"nvidia"}, {"nvidia"})).ok());
}

TEST(Loader, PathIsTakenAsItIs) {
  EXPECT_EQ(loaded_path(load_driver(library("softgpu"), kInitialise, search({"nvidia"}, {}))),
            library("softgpu"));
  auto missing = load_driver("/nonexistent/libcuda.so.1", kInitialise, search({}, {}));
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(
      missing.status().message(),
      "the driver that OPENMPS_DRIVER names is unusable: /nonexistent/libcuda.so.1: not found");
  auto other = load_driver(library("other"), kInitialise, search({}, {}));
  ASSERT_FALSE(other.ok());
  EXPECT_NE(other.status().message().find("not a CUDA driver"), std::string::npos);
  auto broken = load_driver(library("no_init"), kInitialise, search({}, {}));
  ASSERT_FALSE(broken.ok());
  EXPECT_NE(broken.status().message().find("cuInit failed with 999"), std::string::npos);
}

TEST(Loader, ErrorsNameEveryPath) {
  auto driver = load_driver("auto", kInitialise, search({"no_device", "client"}, {"absent"}));
  ASSERT_FALSE(driver.ok());
  EXPECT_EQ(driver.status().code(), CUDA_ERROR_NO_DEVICE);
  for (const std::string& part :
       {library("no_device") + ": no device", library("client") + ": OpenMPS' own client library",
        library("absent") + ": not found"}) {
    EXPECT_NE(driver.status().message().find(part), std::string::npos) << part;
  }
}

TEST(Loader, UnknownWordIsRefused) {
  auto driver = load_driver("amd", kInitialise, search({"nvidia"}, {"softgpu"}));
  ASSERT_FALSE(driver.ok());
  EXPECT_EQ(driver.status().code(), CUDA_ERROR_INVALID_VALUE);
}

TEST(Search, DefaultsCoverTheDocumentedPlaces) {
  const char* old = getenv("LD_LIBRARY_PATH");
  const std::string saved = old != nullptr ? old : "";
  setenv("LD_LIBRARY_PATH", "/first/place::/second", 1);
  const DriverSearch found = default_driver_search();
  if (old != nullptr) {
    setenv("LD_LIBRARY_PATH", saved.c_str(), 1);
  } else {
    unsetenv("LD_LIBRARY_PATH");
  }
  const auto& directories = found.nvidia_directories;
  ASSERT_GE(directories.size(), 2u);
  EXPECT_EQ(directories[0], "/first/place");
  EXPECT_EQ(directories[1], "/second");
  for (const char* usual : {"/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/local/nvidia/lib64",
                            "/usr/local/cuda/compat"}) {
    EXPECT_EQ(std::count(directories.begin(), directories.end(), usual), 1) << usual;
  }
  ASSERT_EQ(found.softgpu_paths.size(), 2u);
  EXPECT_EQ(found.softgpu_paths[0].front(), '/') << "relative to the program, not to the cwd";
}

}  // namespace
}  // namespace openmps
