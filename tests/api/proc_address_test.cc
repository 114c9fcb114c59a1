// SPDX-License-Identifier: Apache-2.0
// find_proc against the look-ups that libcudart 13.0 makes and against the rules of
// cuGetProcAddress for versions and default streams.
#include "api/proc_address.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>

#include "api/driver_table.h"

namespace openmps {
namespace {

constexpr uint64_t kDefault = CU_GET_PROC_ADDRESS_DEFAULT;
constexpr uint64_t kLegacy = CU_GET_PROC_ADDRESS_LEGACY_STREAM;
constexpr uint64_t kPerThread = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;

// The symbol's name, or "-" with the status checked by the caller.
std::string find(const std::string& name, int version, uint64_t flags,
                 CUdriverProcAddressQueryResult* status = nullptr) {
  uint16_t symbol = 0xFFFF;
  CUdriverProcAddressQueryResult result;
  const bool found = find_proc(name, version, flags, &symbol, &result);
  EXPECT_EQ(found, result == CU_GET_PROC_ADDRESS_SUCCESS);
  EXPECT_EQ(found, symbol < kDriverSymbolCount) << "untouched unless found";
  if (status != nullptr) *status = result;
  return found ? kDriverSymbolNames[symbol] : "-";
}

TEST(ProcAddress, AnswersEveryLookUpOfCudart) {
  std::ifstream file(LOOKUPS_FILE);
  std::string line;
  int lines = 0;
  while (std::getline(file, line)) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream fields(line);
    std::string name, symbol;
    int version = 0;
    uint64_t flags = 0;
    fields >> name >> version >> flags >> symbol;
    EXPECT_EQ(find(name, version, flags), symbol) << line;
    ++lines;
  }
  EXPECT_EQ(lines, 439);  // 440 look-ups, one of them with an empty name
}

TEST(ProcAddress, EverySymbolIsReachedByItsOwnVersion) {
  // 637 symbols of cuda.h and 34 for displays; none may be shadowed by another.
  size_t reached = 0;
  for (size_t i = 0; i < kDriverSymbolCount; ++i) {
    const std::string symbol = kDriverSymbolNames[i];
    for (int version : {2000,  2010,  2020,  2030,  3000,  3010,  3020,  4000,  4010,  4020,
                        5000,  5050,  6000,  6050,  7000,  8000,  9000,  9020,  10000, 10010,
                        10020, 11000, 11010, 11020, 11030, 11040, 11060, 11070, 11080, 12000,
                        12010, 12020, 12030, 12040, 12050, 12060, 12080, 12090, 13000}) {
      const std::string base = symbol.substr(0, symbol.find("_pt"));
      const std::string name = base.substr(0, base.find("_v"));
      const bool per_thread = base != symbol;
      if (find(name, version, per_thread ? kPerThread : kDefault) == symbol) {
        ++reached;
        break;
      }
    }
  }
  EXPECT_EQ(reached, kDriverSymbolCount);
  EXPECT_EQ(kDriverSymbolCount, 637u + 34u);
}

TEST(ProcAddress, VersionSelectsTheNewestThatIsOldEnough) {
  EXPECT_EQ(find("cuCtxGetDevice", 12090, kDefault), "cuCtxGetDevice");
  EXPECT_EQ(find("cuCtxGetDevice", 13000, kDefault), "cuCtxGetDevice_v2");
  EXPECT_EQ(find("cuStreamGetCaptureInfo", 11020, kDefault), "cuStreamGetCaptureInfo");
  EXPECT_EQ(find("cuStreamGetCaptureInfo", 11030, kDefault), "cuStreamGetCaptureInfo_v2");
  EXPECT_EQ(find("cuStreamGetCaptureInfo", 99999, kDefault), "cuStreamGetCaptureInfo_v3");
  EXPECT_EQ(find("cuMemAlloc", 3010, kDefault), "cuMemAlloc");
  EXPECT_EQ(find("cuMemAlloc", 3020, kDefault), "cuMemAlloc_v2");
}

TEST(ProcAddress, FlagsSelectTheDefaultStream) {
  EXPECT_EQ(find("cuMemcpyHtoD", 13000, kDefault), "cuMemcpyHtoD_v2");
  EXPECT_EQ(find("cuMemcpyHtoD", 13000, kLegacy), "cuMemcpyHtoD_v2");
  EXPECT_EQ(find("cuMemcpyHtoD", 13000, kPerThread), "cuMemcpyHtoD_v2_ptds");
  EXPECT_EQ(find("cuLaunchKernel", 13000, kPerThread), "cuLaunchKernel_ptsz");
  EXPECT_EQ(find("cuLaunchKernel", 13000, kLegacy | kPerThread), "cuLaunchKernel_ptsz");
  // A function without a default stream is the same in every mode.
  EXPECT_EQ(find("cuMemAlloc", 13000, kPerThread), "cuMemAlloc_v2");
}

TEST(ProcAddress, SaysWhyThereIsNoSymbol) {
  CUdriverProcAddressQueryResult status;
  EXPECT_EQ(find("cuNoSuchFunction", 13000, kDefault, &status), "-");
  EXPECT_EQ(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
  EXPECT_EQ(find("", 0, kDefault, &status), "-");
  EXPECT_EQ(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
  EXPECT_EQ(find("cuMemAlloc_v2", 13000, kDefault, &status), "-") << "names carry no version";
  EXPECT_EQ(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
  EXPECT_EQ(find("cuLibraryLoadData", 11080, kDefault, &status), "-");
  EXPECT_EQ(status, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
  // Per-thread variants exist since CUDA 7.0.
  EXPECT_EQ(find("cuMemcpy", 6050, kPerThread, &status), "-");
  EXPECT_EQ(status, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
}

}  // namespace
}  // namespace openmps
