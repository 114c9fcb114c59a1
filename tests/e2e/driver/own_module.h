// SPDX-License-Identifier: Apache-2.0
// A session with a module of the test's own and a stream that does not wait for the default one.
#pragma once

#include "driver.h"

namespace e2e {

struct OwnModule : Session {
  CUmodule own = nullptr;
  CUstream stream = nullptr;

  explicit OwnModule(const char* text) {
    CHECK_CU(cuModuleLoadData(&own, text));
    CHECK_CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  }
  ~OwnModule() {
    CHECK_CU(cuStreamDestroy_v2(stream));
    CHECK_CU(cuModuleUnload(own));
  }
  OwnModule(const OwnModule&) = delete;
  OwnModule& operator=(const OwnModule&) = delete;

  [[nodiscard]] CUfunction kernel(const char* name) const {
    CUfunction found = nullptr;
    CHECK_CU(cuModuleGetFunction(&found, own, name));
    return found;
  }
};

}  // namespace e2e
