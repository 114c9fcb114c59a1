// SPDX-License-Identifier: Apache-2.0
// `openmps advise`: whether sharing the GPU helps a program, how much of the SMs it should have,
// and why, from what it has been seen to do (docs/decisions/0021).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/snapshot.h"

namespace openmps::cli {

struct AdviseOptions {
  std::string name;  // name_of(Client)
  double for_s = 0;  // so long from now on; 0: since the program began
  bool json = false;
};

// What a program did on the device that it used most. Shares are parts of 1.
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
  uint64_t half_shorter_ns = 0;  // half of the kernels and graphs are shorter than that, alone
  uint64_t most_shorter_ns = 0;  // likewise nine tenths
  double kernel_share = 0;       // of the time something of it ran
  double idle_share = 0;         // of the time it had nothing to run
  double sm_share = 0;           // of the device's SM-time it had
  double wanted = 0;             // the same if it had the device to itself
  double fill = 0;               // of the SMs, while something of it ran
  double most_fill = 0;          // for nine tenths of that time no more than this
  uint64_t gap_shorter_ns = 0;   // half of the time between kernels is in gaps shorter than that
  double slowdown = 0;           // what its work took, by what it takes alone; 0: not known
  double percentage = 100;       // that it is limited to
  uint32_t clients = 1;          // on that device, with it
  double others_share = 0;       // of the device's SM-time, for the others in the same time
};
// `before` null: since the session began.
Figures figures_of(const Client* before, const Client& now, const std::vector<Device>& devices);
// What the other clients of the device did meanwhile: `before` and `now` are of the same time.
void add_others(const Snapshot& before, const Snapshot& now, Figures* figures);

enum class Verdict { kUnknown, kHelps, kHelpsLittle, kDoesNotHelp };
struct Advice {
  Verdict verdict = Verdict::kUnknown;
  // Active thread percentages; all 100 if nothing is known.
  double recommended = 100;
  double by_load = 100;          // what its kernels fill
  double equal_parts = 100;      // 100/n of n programs
  double double_parts = 100;     // 100/(0.5 n)
  std::vector<std::string> why;  // sentences
};
Advice advise(const Figures& figures);

std::string format_advice(const Figures& figures, const Advice& advice);
std::string format_advice_json(const Figures& figures, const Advice& advice);

// Exit status: 0, or 1 if there is no such program or no answer, which it has said.
int run_advise(const AdviseOptions& options);

}  // namespace openmps::cli
