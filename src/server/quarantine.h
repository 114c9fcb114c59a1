// SPDX-License-Identifier: Apache-2.0
// Which programs are kept apart because they have faulted (docs/decisions/0045): a program whose
// kernel has ended a worker runs in a worker of such programs for a while, so that its next fault
// ends nobody else's work. A program is what its clients state as their command. Used by Server on
// the loop's thread; the caller gives the times, in nanoseconds of any monotonic clock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

namespace openmps::server {

class Quarantine {
 public:
  // How long a program is kept apart after a fault that was its own.
  static constexpr uint64_t kGuiltyNs = 600'000'000'000;
  // How long one that has been the first of several suspects kSuspicions times within kGuiltyNs.
  static constexpr uint64_t kSuspectNs = 60'000'000'000;
  static constexpr uint32_t kSuspicions = 2;
  // The programs that are remembered; the one that is due first is forgotten for another one.
  static constexpr size_t kMost = 256;

  // A fault was the program's own.
  void note_guilty(const std::string& program, uint64_t now_ns);
  // A fault may have been the program's. True: it is kept apart from now on.
  bool note_suspect(const std::string& program, uint64_t now_ns);
  [[nodiscard]] bool holds(const std::string& program, uint64_t now_ns) const;

 private:
  struct Entry {
    uint64_t until_ns = 0;       // kept apart
    uint64_t remembered_ns = 0;  // forgotten then
    uint32_t suspicions = 0;
  };
  Entry& entry(const std::string& program, uint64_t now_ns);

  std::map<std::string, Entry> entries_;
};

}  // namespace openmps::server
