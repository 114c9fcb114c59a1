// SPDX-License-Identifier: Apache-2.0
// `openmps advise`: whether sharing the GPU helps a program, how much of the SMs it should have,
// and why, from its counters (docs/decisions/0021).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "observe/snapshot.h"

namespace openmps::observe {

// The use of the device that a program used most. Shares are parts of 1.
struct Figures {
  std::string name;  // name_of(Client)
  uint64_t pid = 0;
  std::string command;
  Device device;
  bool timed = false;
  double seconds = 0;
  uint64_t kernels = 0;
  double blocks = 0;             // of a kernel, on average
  double threads = 0;            // of a block
  uint64_t half_shorter_ns = 0;  // the median length of kernels and graphs, alone
  uint64_t most_shorter_ns = 0;  // the ninth decile of that length
  double kernel_share = 0;       // of the time: a kernel of it ran
  double idle_share = 0;         // of the time: it had no work
  double sm_time_share = 0;      // of the device's SM-time: what it had
  double wanted = 0;             // of the device's SM-time: what it would have had alone
  double fill = 0;               // of the SMs: what was busy while a kernel of it ran
  double most_fill = 0;          // of the SMs: the ninth decile of that over time
  uint64_t gap_shorter_ns = 0;   // the time-weighted median of gaps between kernels
  double slowdown = 0;           // length of its work divided by the length alone; 0: not known
  double percentage = 100;       // its limit
  uint32_t clients = 1;          // on that device, itself included
  double others_share = 0;       // of the device's SM-time: what the other programs had meanwhile
};
// `before` null: since the session began.
Figures figures_of(const Client* before, const Client& now, const std::vector<Device>& devices);
// The share of the other clients of the device between the snapshots `before` and `now`.
void add_others(const Snapshot& before, const Snapshot& now, Figures* figures);

enum class Verdict { kUnknown, kHelps, kHelpsLittle, kDoesNotHelp };
struct Advice {
  Verdict verdict = Verdict::kUnknown;
  // Active thread percentages; all 100 if nothing is known.
  double recommended = 100;
  double by_load = 100;          // as much as its kernels fill
  double equal_parts = 100;      // 100/n of n programs
  double double_parts = 100;     // 100/(0.5 n)
  std::vector<std::string> why;  // sentences
};
Advice advise(const Figures& figures);

std::string format_advice(const Figures& figures, const Advice& advice);
std::string format_advice_json(const Figures& figures, const Advice& advice);

}  // namespace openmps::observe
