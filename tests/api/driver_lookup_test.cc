// SPDX-License-Identifier: Apache-2.0
// find_proc against NVIDIA's own driver, where there is one with a GPU: for every name, every
// version at which CUDA's interface changed and every default stream, the driver must hand out the
// symbol that we would, or refuse for the reason that we would. Skipped without a driver.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "api/proc_address.h"
#include "driver/loader.h"

namespace openmps {
namespace {

// Versions of the CUDA releases, and one before the first.
constexpr int kAskedVersions[] = {1000,  2000,  2010,  2020,  2030,  3000,  3010,  3020,  4000,
                                  4010,  4020,  5000,  5050,  6000,  6050,  7000,  7050,  8000,
                                  9000,  9010,  9020,  10000, 10010, 10020, 11000, 11010, 11020,
                                  11030, 11040, 11050, 11060, 11070, 11080, 12000, 12010, 12020,
                                  12030, 12040, 12050, 12060, 12080, 12090, 13000};

std::set<std::string> public_names() {
  std::set<std::string> names;
  for (const char* symbol : kDriverSymbolNames) {
    const std::string text = symbol;
    const std::string base = text.substr(0, text.find("_pt"));
    names.insert(base.substr(0, base.find("_v")));
  }
  return names;
}

TEST(DriverLookUp, AgreesWithNvidiasDriver) {
  auto driver = load_driver("nvidia", DriverProbe::kInitialise);
  if (!driver.ok()) GTEST_SKIP() << driver.status().message();
  const DriverTable& table = driver.value()->table();
  int driver_version = 0;
  ASSERT_EQ(table.cuDriverGetVersion(&driver_version), CUDA_SUCCESS);
  void* library = dlopen(driver.value()->path().c_str(), RTLD_NOW | RTLD_NOLOAD);
  ASSERT_NE(library, nullptr);
  for (const std::string& name : public_names()) {
    for (int version : kAskedVersions) {
      if (version > driver_version) continue;
      for (uint64_t flags : {0, 1, 2, 3}) {
        SCOPED_TRACE(name + " " + std::to_string(version) + " " + std::to_string(flags));
        CUdriverProcAddressQueryResult ours, theirs;
        uint16_t symbol = 0;
        const bool found = find_proc(name, version, flags, &symbol, &ours);
        void* function = nullptr;
        ASSERT_EQ(table.cuGetProcAddress_v2(name.c_str(), &function, version, flags, &theirs),
                  CUDA_SUCCESS);
        EXPECT_EQ(ours, theirs);
        EXPECT_EQ(function, found ? dlsym(library, kDriverSymbolNames[symbol]) : nullptr);
      }
    }
  }
}

}  // namespace
}  // namespace openmps
