// SPDX-License-Identifier: Apache-2.0
// The rates of clients and devices between two snapshots (snapshot.h), and their order and
// selection on the screen. Pure functions, for `openmps top` and `stat`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "observe/snapshot.h"

namespace openmps::observe {

// Why a client's work was held.
struct Held {
  std::string why;  // empty: no work was held
  uint64_t ns = 0;
  bool now = false;  // work is held for it now
};
// The reason for which work is held now, else the one for which it was held longest since `before`.
Held most_held(const Use& use, const Use& before);
// "value now, 4.0 ms"; "-": no work was held.
std::string held_text(const Held& held);

// kOnHost: idle, and memory of it is on the host; kSuspended: until `openmps resume`.
enum class State { kIdle, kActive, kWaiting, kOnHost, kSuspended, kEnding };
const char* name_of(State state);

// The rates of one client. Shares are parts of 1.
struct Rates {
  Client client;
  State state = State::kIdle;
  double seconds = 0;  // length of the interval
  bool timed = false;  // false: the next three are not known
  // Its part of the SM-time of the devices that it uses.
  double sm_time_share = 0;
  double sms = 0;           // that part as a number of SMs
  double kernel_share = 0;  // of the time: work of it ran or could have run; streams that
                            // work at the same time add up
  double launches = 0;      // per second, like copies and bytes
  double copies = 0;
  double to_device = 0;
  double from_device = 0;
  uint64_t memory_bytes = 0;  // on its devices
  uint64_t host_bytes = 0;    // on the host
  Held held;
};

struct DeviceRates {
  Device device;
  double sm_time_share = 0;  // the used part of its SM-time, at most 1
  double kernel_share = 0;   // the sum over its clients; above 1 if kernels overlapped
  uint64_t memory_bytes = 0;
  uint32_t clients = 0;  // that have used it or hold memory of it
};

struct View {
  double seconds = 0;
  std::vector<DeviceRates> devices;
  std::vector<Rates> clients;
};

// A client that is not in `before` has come since: its rates are over its whole life.
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
  kOnHost,
  kLaunches,
  kToDevice,
  kFromDevice,
  kHeld,
  kCommand,
};
inline constexpr size_t kColumns = 14;
// The column of a heading in lower case, "sm%". Nothing: there is none.
const char* heading_of(Column column);
std::optional<Column> column_of(std::string_view name);

struct Order {
  Column by = Column::kSms;
  bool ascending = false;
};
// Equal ones are ordered by PID.
void sort_clients(std::vector<Rates>* clients, const Order& order);
// Whether the column is ascending by default: words and PIDs are, numbers are not.
bool ascends_by_nature(Column column);

// Whether the PID is `text`, or command or group contain it; true for "".
bool matches(const Client& client, std::string_view text);
// Only clients that match, in that order; devices show the use of all clients.
View select(View view, const Order& order, std::string_view text);

}  // namespace openmps::observe
