// SPDX-License-Identifier: Apache-2.0
// What OPENMPS_TRACE=FILE asks of a client or a worker: each command with its fields, those of its
// reply, result and time. A line for each, or, if the file's name ends in .json, events for the
// viewers of Chrome and Perfetto, with a lane for each stream and one for each executor or thread.
// A worker's has calls of the driver as well that took long, on lanes of the threads that made
// them. OPENMPS_TRACE_MIN_US leaves out what took less. Every event is written at once when it
// ends, so a file is complete up to a crash, and several processes may share it. Any thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "base/kept_fd.h"
#include "base/mutex.h"
#include "base/unique_fd.h"
#include "cuda/abi.h"
#include "cuda/status.h"
#include "wire/command_info.h"

namespace openmps::wire {

class Trace {
 public:
  // Null: OPENMPS_TRACE is not set. Error: its file can't be opened, or OPENMPS_TRACE_MIN_US is no
  // number.
  static Result<std::unique_ptr<Trace>> from_environment();
  // Events of less than `min_ns` are left out.
  explicit Trace(UniqueFd file, bool json, uint64_t min_ns = 0)
      : file_(std::move(file)), json_(json), min_ns_(min_ns) {}

  // The name of what executes or sends, "session 3" or "thread 4711"; names of its streams' lanes
  // begin with it.
  struct Actor {
    std::string name;
    std::string streams;
  };
  // The calling thread, as a client's actor.
  static Actor this_thread();

  // From `begin_ns` until now, by now_ns(). `reply`: empty for what is not answered, or was not.
  void command(const Actor& actor, Opcode opcode, std::span<const unsigned char> payload,
               CUresult result, std::span<const unsigned char> reply, uint64_t begin_ns);
  // The actor waited for a stream.
  void wait(const Actor& actor, Id stream, CUresult result, uint64_t begin_ns);
  // Work has run on a device, on the lane of that name. `title` and `fields` have no character that
  // JSON would have to escape.
  void device_work(const std::string& lane, const std::string& title, const Fields& fields,
                   uint64_t begin_ns, uint64_t end_ns);
  // The calling thread has called this function of the driver. Left out if it took less than 0.1
  // ms.
  void driver_call(const char* function, CUresult result, uint64_t begin_ns, uint64_t end_ns);

 private:
  struct Event;
  void write(const Actor& actor, const Event& event);
  // One event of the viewers' format, on the lane of this name.
  std::string event_on(const std::string& lane, const Event& event) REQUIRES(lock_);
  void append(const std::string& text);

  const KeptFd file_;
  const bool json_;
  const uint64_t min_ns_;
  Mutex lock_{LockRank::kTrace};
  std::map<std::string, uint32_t> lanes_ GUARDED_BY(lock_);
};

}  // namespace openmps::wire
