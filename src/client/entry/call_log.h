// SPDX-License-Identifier: Apache-2.0
// The log of failed calls that cuLogs* serve and CUDA_LOG_FILE asks for: the last hundred lines, in
// the format of CUDA's documentation. Constant-initialised; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/mutex.h"
#include "cuda/abi.h"

namespace openmps::client {

class CallLog {
 public:
  // CUDA's: 25600 bytes for a hundred lines.
  static constexpr uint32_t kLines = 100;
  static constexpr size_t kLineBytes = 256;  // with its NUL; longer ones are cut
  static constexpr size_t kMostBytes = kLines * kLineBytes;
  // Programs register one or two; an array, so that nothing runs when the library is unloaded.
  static constexpr size_t kCallbacks = 64;

  // "[time][thread][CUDA][E] function: NAME: message", to the log and CUDA_LOG_FILE; callbacks get
  // what follows the brackets, as on NVIDIA's driver (measured, 580).
  void add(const char* function, const char* name, const char* message);

  // The number that the next line gets.
  [[nodiscard]] uint32_t end() const;
  // The lines from number `*from` on (null: all there are), each with a newline; `*from` is then
  // the end. Older ones that do not fit `most` bytes, or that are gone, are one line that says so.
  // Empty: there are none, `*fits` is true then, or not even the last one fits.
  std::string lines(uint32_t* from, size_t most, bool* fits) const;

  // Null: there are kCallbacks.
  CUlogsCallbackHandle add_callback(CUlogsCallback function, void* data);
  // Errors: CUDA_ERROR_INVALID_VALUE: no such callback.
  CUresult remove_callback(CUlogsCallbackHandle handle);

 private:
  struct Callback {
    uint64_t number = 0;  // 0: free
    CUlogsCallback function = nullptr;
    void* data = nullptr;
  };

  mutable Mutex lock_{LockRank::kClientCallLog};
  char lines_[kLines][kLineBytes] GUARDED_BY(lock_) = {};
  uint32_t end_ GUARDED_BY(lock_) = 0;
  uint64_t callbacks_made_ GUARDED_BY(lock_) = 0;
  std::array<Callback, kCallbacks> callbacks_ GUARDED_BY(lock_){};
};

}  // namespace openmps::client
