// SPDX-License-Identifier: Apache-2.0
// A lost worker and what becomes of its sessions (docs/decisions/0042): data of Server, which makes
// the steps, on the loop's thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/event_loop.h"
#include "wire/handshake.h"

namespace openmps::server {

struct Worker;

// How long a session of a lost worker may take to be handed over before the others go on: some
// milliseconds. A thread that is in the driver may have to wait for the driver's report of the
// fault, up to 13 s after a trap (an H200, driver 580).
inline constexpr uint64_t kHandOverMs = 20;
// After that again so long, in which the others are made again, the worker is killed, and its late
// sessions are taken as they are: its end delays the driver calls of others by 1 to 2 s. A worker
// that is stopped instead leaves the GPU to nobody after a trap.
inline constexpr uint64_t kLateMs = 40;
// The worker is not killed as long as one of them is exporting memory, up to so many times kLateMs:
// 0.9 ms for each allocation of the last 50 ms. While the GPU stands still the export may take as
// long as that, and everybody waits.
inline constexpr uint32_t kMostWaits = 250;
inline constexpr uint32_t kMostWaitsAtStandstill = 3;
// Between the signal and the last instruction of a thread that was running.
inline constexpr uint64_t kKilledMs = 2;
// How long a worker may take to make a session again, beside others: code may have to be compiled,
// and cores may be short.
inline constexpr uint64_t kAdoptionMs = 30'000;
// How many sessions a worker makes again at once; of those whose clients don't wait.
inline constexpr size_t kMostAtOnce = 32;
inline constexpr size_t kMostIdleAtOnce = 2;
// The server itself may have been stopped for so long: it reads what has come meanwhile before it
// takes a session for late.
inline constexpr uint64_t kReadFirstMs = 200;
// How many workers may try, if the first one is lost meanwhile.
inline constexpr uint32_t kMostTries = 2;
// How long the work of a session may go on that is to leave a worker which is well; the session
// takes no new work meanwhile. One that stays is asked again after the pause, at most so often.
inline constexpr uint32_t kLetGoMs = 2'000;
inline constexpr uint64_t kLetGoAgainMs = 300;
inline constexpr uint32_t kMostLetGoTries = 4;
// One that has not said ServerOptions::drain_ms after that whether it leaves hangs in the driver
// with what it releases: its worker is killed, and all of its sessions are taken from it.
// If more workers are lost in this time, sessions are not made again: the device is broken, or each
// of them loses its worker.
inline constexpr size_t kMostTakeovers = 16;
inline constexpr uint64_t kTakeoverPeriodMs = 10'000;
// Between the second client's connection and the start of a spare: the client's own start goes
// first. And between a lost worker's end and the next spare.
inline constexpr uint64_t kSpareDelayMs = 2'000;
inline constexpr uint64_t kNextSpareDelayMs = 300;

// What has become of the sessions of one lost worker.
struct Recovery {
  uint64_t began_ns = 0;
  CUresult result = CUDA_SUCCESS;  // the fault's
  std::string culprit;             // a sentence for the clients
  uint32_t moved = 0;
  uint32_t told = 0;
  uint32_t lost = 0;
  uint32_t open = 0;  // sessions of which it is not decided yet
};

// A lost worker, until it ends.
struct Takeover {
  Worker* worker = nullptr;
  std::string reason;                 // how the worker has noticed
  std::set<uint32_t> awaited;         // sessions that have not been handed over yet
  std::vector<uint32_t> handed_over;  // sessions; their HandedOver is in Session::over
  size_t sessions = 0;                // that the worker had, those that were ending among them
  bool is_judged = false;             // it has been decided who is guilty
  bool stands_still = false;          // wire::WorkerLost
  uint32_t guilty = 0;                // session; 0: nobody is known to be
  EventLoop::TimerId timer = 0;
  std::set<uint32_t> coming;  // of those awaited: they export memory
  uint32_t waits = 0;         // for these
  std::shared_ptr<Recovery> recovery;
};

}  // namespace openmps::server
