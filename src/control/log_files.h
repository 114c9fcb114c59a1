// SPDX-License-Identifier: Apache-2.0
// control.log and server.log: opened by the daemon's start, kept below a size by the daemon.
// Servers and workers write through inherited descriptors and can't rename the daemon's files, so
// the daemon copies a full log to NAME.1 and truncates it. Used on the loop's thread.
#pragma once

#include <sys/types.h>

#include <array>
#include <string>

#include "base/event_loop.h"
#include "base/unique_fd.h"

namespace openmps::control {

// A log of this size rotates. 150,000 lines: months of a quiet machine, a day of a busy one.
inline constexpr off_t kLogBytes = off_t{16} << 20;
// NAME.1 (the newest) to NAME.3: after a failure, lines of the last few days are wanted.
inline constexpr int kKeptLogs = 3;

class LogFiles {
 public:
  // Make the directory if it is missing and open the logs in it for appending. Errors:
  // CUDA_ERROR_OPERATING_SYSTEM.
  Status open(const std::string& directory);
  // Rotate each log that is full, from now on. Errors: CUDA_ERROR_OPERATING_SYSTEM.
  Status watch(EventLoop& loop);

  [[nodiscard]] UniqueFd control() const;  // a new descriptor, for the caller
  [[nodiscard]] UniqueFd server() const;

 private:
  struct File {
    std::string name;
    UniqueFd fd;
  };
  void on_written();
  void rotate(const File& file) const;
  void shift(const std::string& name) const;

  UniqueFd directory_;
  std::array<File, 2> files_;
  UniqueFd notices_;  // inotify
};

}  // namespace openmps::control
