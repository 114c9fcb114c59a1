// SPDX-License-Identifier: Apache-2.0
// What OPENMPS_TRACE=FILE asks of a client or a worker: each command with its fields, those of its
// reply, result and time. A line for each, or, if the file's name ends in .json, events for the
// viewers of Chrome and Perfetto, with a lane for each stream and one for each executor or thread.
// Every event is written at once when it ends, so a file is complete up to a crash, and several
// processes may share it. Any thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>

#include "base/unique_fd.h"
#include "cuda/abi.h"
#include "cuda/status.h"
#include "wire/command_info.h"

namespace openmps::wire {

class Trace {
 public:
  // Null: OPENMPS_TRACE is not set. Error: its file can't be opened.
  static Result<std::unique_ptr<Trace>> from_environment();
  explicit Trace(UniqueFd file, bool json) : file_(std::move(file)), json_(json) {}

  // Who executes or sends: "session 3" or "thread 4711", and what its streams' lanes begin with.
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

 private:
  struct Event;
  void write(const Actor& actor, const Event& event);
  // One event of the viewers' format, on the lane of this name.
  std::string event_on(const std::string& lane, const Event& event);
  void append(const std::string& text);

  const UniqueFd file_;
  const bool json_;
  std::mutex lock_;
  std::map<std::string, uint32_t> lanes_;  // guarded by lock_
};

}  // namespace openmps::wire
