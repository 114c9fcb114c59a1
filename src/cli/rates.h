// SPDX-License-Identifier: Apache-2.0
// What clients and devices did between two looks (snapshot.h), in which order they are shown, and
// which of them. Pure functions, for `openmps top` and `stat`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/snapshot.h"

namespace openmps::cli {

// What held a client's work back.
struct Held {
  std::string why;  // empty: nothing did
  uint64_t ns = 0;
  bool now = false;  // still does
};
// What does now, else what did for longest since `before`.
Held most_held(const Use& use, const Use& before);
// "value now, 4.0 ms"; "-": nothing did.
std::string held_text(const Held& held);

enum class State { kIdle, kActive, kWaiting, kEnding };
const char* name_of(State state);

// Of one client. Shares are parts of 1.
struct Rates {
  Client client;
  State state = State::kIdle;
  double seconds = 0;  // that these are of
  bool timed = false;  // else the next three are not known
  // Of the SM-time of the devices that it uses: what it had of it.
  double sm_share = 0;
  double sms = 0;           // the same in SMs
  double kernel_share = 0;  // of the time, in which something of it ran or could have; streams that
                            // work at once count each
  double launches = 0;      // a second, also copies and bytes
  double copies = 0;
  double to_device = 0;
  double from_device = 0;
  uint64_t memory_bytes = 0;
  Held held;
};

struct DeviceRates {
  Device device;
  double sm_share = 0;      // of its SM-time that was used, all clients together, at most 1
  double kernel_share = 0;  // the sum of its clients': above 1, kernels have overlapped
  uint64_t memory_bytes = 0;
  uint32_t clients = 0;  // that have used it, or hold memory of it
};

struct View {
  double seconds = 0;
  std::vector<DeviceRates> devices;
  std::vector<Rates> clients;
};

// A client that is not in `before` has come since: what it did is of its whole life.
View compare(const Snapshot& before, const Snapshot& now);

enum class Column {
  kPid,
  kPercentage,
  kQuality,
  kGroup,
  kState,
  kSms,
  kKernels,
  kMemory,
  kLaunches,
  kToDevice,
  kFromDevice,
  kHeld,
  kCommand,
};
inline constexpr size_t kColumns = 13;
// As in the heading, in lower case: "sm%". Nothing: there is no such column.
const char* heading_of(Column column);
std::optional<Column> column_of(std::string_view name);

struct Order {
  Column by = Column::kSms;
  bool ascending = false;
};
// Those that are equal by PID.
void sort_clients(std::vector<Rates>* clients, const Order& order);
// Numbers are shown from large to small, words and PIDs the other way.
bool ascends_by_nature(Column column);

// Its PID is `text`, or its command or its group contains it; all, if it is empty.
bool matches(const Client& client, std::string_view text);
// Only such clients, in that order; devices show what all have done.
View select(View view, const Order& order, std::string_view text);

}  // namespace openmps::cli
