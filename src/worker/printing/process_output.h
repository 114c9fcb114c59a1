// SPDX-License-Identifier: Apache-2.0
// Standard output and standard error of this process, turned into pipes: the driver writes there
// what kernels print. A thread empties the pipes, so that the driver never waits. What comes on
// standard error goes on to where it led before (the log). One per worker; any thread.
#pragma once

#include <mutex>
#include <string>
#include <thread>

#include "base/unique_fd.h"
#include "cuda/status.h"

namespace openmps::worker {

class ProcessOutput {
 public:
  ProcessOutput() = default;
  // Leaves the descriptors as they were.
  ~ProcessOutput();
  ProcessOutput(const ProcessOutput&) = delete;
  ProcessOutput& operator=(const ProcessOutput&) = delete;

  // From now on. The log must have begun: it keeps a descriptor of its own.
  Status capture();

  // Everything that has been written by calls that have returned, since the last take.
  struct Text {
    std::string output;
    std::string error;
  };
  [[nodiscard]] Text take();

 private:
  // One of the two descriptors.
  struct Stream {
    UniqueFd former;   // where it led
    UniqueFd reading;  // end of the pipe
    std::string text;
  };
  Status redirect(int descriptor, Stream* stream);
  bool read_some(Stream& stream, bool forward);
  void run();

  std::mutex mutex_;
  Stream output_;  // guarded by mutex_
  Stream error_;   // guarded by mutex_
  UniqueFd stop_;  // eventfd
  std::thread thread_;
};

}  // namespace openmps::worker
