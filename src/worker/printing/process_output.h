// SPDX-License-Identifier: Apache-2.0
// Standard output and standard error of this process as pipes: the driver writes text that kernels
// print to them. A thread empties the pipes, so that the driver never waits. Text on standard error
// is passed on to where it went before (the log). One per worker; any thread.
#pragma once

#include <string>
#include <thread>

#include "base/mutex.h"
#include "base/unique_fd.h"
#include "cuda/status.h"

namespace openmps::worker {

class ProcessOutput {
 public:
  ProcessOutput() = default;
  // Restores the descriptors.
  ~ProcessOutput();
  ProcessOutput(const ProcessOutput&) = delete;
  ProcessOutput& operator=(const ProcessOutput&) = delete;

  // Begin. The log has been opened before: it keeps a descriptor of its own.
  Status capture();

  // Everything that calls which have returned have written since the last take.
  struct Text {
    std::string output;
    std::string error;
  };
  [[nodiscard]] Text take();

 private:
  // One of the two descriptors.
  struct Stream {
    UniqueFd former;   // the file it was before
    UniqueFd reading;  // the reading end of the pipe
    std::string text;
  };
  Status redirect(int descriptor, Stream* stream);
  bool read_some(Stream& stream, bool forward) REQUIRES(mutex_);
  void read_all() REQUIRES(mutex_);
  void run();

  Mutex mutex_{LockRank::kProcessOutput};
  Stream output_ GUARDED_BY(mutex_);
  Stream error_ GUARDED_BY(mutex_);
  UniqueFd stop_;  // eventfd
  std::thread thread_;
};

}  // namespace openmps::worker
