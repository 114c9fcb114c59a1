// SPDX-License-Identifier: Apache-2.0
// What sessions have used of the GPU, and what held their work back: the layout of the table that a
// worker keeps in shared memory, and one session's figures as a value (decision 21). Whoever has
// the file reads it whenever he likes, and asks nobody (usage_table.h).
//
// Each row has one writer, its session's thread, and any number of readers. All of it is relaxed
// counters, each of which is right by itself; together they are of about the same moment.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "wire/layout.h"

namespace openmps::wire {

inline constexpr uint32_t kUsageMagic = 0x55504d4f;  // "OMPU"
inline constexpr uint32_t kUsageVersion = 4;
inline constexpr uint32_t kUsageDevices = kMaxDevices;

// What is counted as the driver has been given it. Bytes are those of copies, also in graphs.
enum class UsageCount : uint32_t {
  kLaunches = 0,      // of kernels
  kBatched = 1,       // of them, those that went as part of a batch
  kGraphs = 2,        // launches of executable graphs
  kGraphKernels = 3,  // kernels in these, without bodies of conditional nodes
  kCopies = 4,
  kFills = 5,
  kImagesMade = 6,    // images that had to be loaded
  kImagesFound = 7,   // that another session, or the worker itself, had loaded
  kHostToDevice = 8,  // bytes, up to kFilled
  kDeviceToHost = 9,
  kDeviceToDevice = 10,
  kHostToHost = 11,
  kFilled = 12,
  kBlocks = 13,   // of the kernels' grids, also in graphs
  kThreads = 14,  // of these blocks
  // Launches that may use SMs which the client's limit leaves it not (docs/decisions/0028, 0032),
  // of kernels and of executable graphs; kernel nodes of that kind as they are made, too.
  kBeyondLimit = 15,
  kNumber = 16,
};
inline constexpr size_t kUsageCounts = static_cast<size_t>(UsageCount::kNumber);

// Why work that the program has given is not with the driver, or its executor stands still.
enum class HeldFor : uint32_t {
  kValue = 0,         // a stream waits for a value in host memory that has not come
  kEvent = 1,         // the event that it waits for is recorded behind held work
  kStreams = 2,       // another stream of the program comes first, by the legacy stream's order
  kWindow = 3,        // its stream has what the driver is to have of it: the program is ahead
  kConnection = 4,    // behind long work it would take one of the context's hardware queues
  kQuietMoment = 5,   // a command that needs a moment in which no session's work runs, or somebody
                      // else's such command
  kPrintTurn = 6,     // a kernel that may print waits for its turn
  kMemory = 7,        // memory that has been given up has to come back first
  kShare = 8,         // the session has had its part of the device, others come first
  kHostFunction = 9,  // a stream waits for a host function that the program has to run
  kStreamSlot = 10,   // the driver has no room for its stream before a quiet moment
  kNumber = 11,
  kNothing = 11,
};
inline constexpr size_t kHeldReasons = static_cast<size_t>(HeldFor::kNumber);

// Of work on a device. A mark is seen unreached at one time and reached at another, so how long
// work took is known between two bounds; `ns` is the best guess.
enum class DeviceUse : uint32_t {
  kNs = 0,
  kLeastNs = 1,
  kMostNs = 2,
  kSmNs = 3,  // times the SMs that a kernel's grid keeps busy, on average over its waves
  // Of work of which it has been seen how long it takes with the device to itself: what it took
  // with its waits for SMs, and that. The difference is what neighbours cost.
  kComparedNs = 4,
  kAloneNs = 5,
  kNumber = 6,
};
inline constexpr size_t kDeviceUses = static_cast<size_t>(DeviceUse::kNumber);

// Times by their length: below 512 ns, then twice as much each, from 2.1 s on all together.
inline constexpr size_t kTimeBins = 24;
inline constexpr uint64_t kFirstTimeNs = 512;
constexpr size_t time_bin(uint64_t ns) {
  return std::min(static_cast<size_t>(std::bit_width(ns / kFirstTimeNs)), kTimeBins - 1);
}
// The shortest that is in it.
constexpr uint64_t time_bin_ns(size_t bin) { return bin == 0 ? 0 : kFirstTimeNs << (bin - 1); }

// Times of a device by the part of its SMs that were kept busy: up to an eighth, and so on.
inline constexpr size_t kPartBins = 8;
constexpr size_t part_bin(double sms, uint32_t of_sms) {
  const double eighths = of_sms == 0 ? 0 : sms * kPartBins / of_sms;
  const auto above = static_cast<size_t>(std::clamp(eighths, 0.0, double{kPartBins}));
  return above != 0 && static_cast<double>(above) == eighths ? above - 1
                                                             : std::min(above, kPartBins - 1);
}

template <typename Cell, size_t count>
using UsageCells = std::array<Cell, count>;

// A session's row.
struct alignas(64) UsageRow {
  using Cell = std::atomic<uint64_t>;
  std::atomic<uint32_t> session;  // 0: the row is nobody's
  std::atomic<uint32_t> pid;      // of its client
  Cell opened_ns;                 // by now_ns()
  UsageCells<Cell, kUsageCounts> counts;
  UsageCells<Cell, kHeldReasons> held_times;  // how often
  UsageCells<Cell, kHeldReasons> held_ns;     // streams that stood, and the executor, together
  UsageCells<Cell, kHeldReasons> standing;    // how many do now
  UsageCells<Cell, kTimeBins> lengths;        // kernels and graph launches, as it has been learnt
  UsageCells<Cell, kTimeBins> gap_ns;         // time between its kernels in which none is under way
  UsageCells<Cell, kPartBins> part_ns;        // kNs, by the part of the SMs
  UsageCells<Cell, kUsageDevices> memory;     // bytes that it holds of each device
  std::array<UsageCells<Cell, kDeviceUses>, kUsageDevices> devices;
};

// In front of the rows; all of it is constant once the file has been given away.
struct UsageHeader {
  uint32_t magic;
  uint32_t version;
  uint32_t row_bytes;
  uint32_t rows;  // one for each address window
  uint32_t worker_pid;
  uint32_t is_timed;  // 0: there are no windows, and so no times on devices
  uint32_t device_count;
  uint32_t reserved;
  uint32_t sms[kUsageDevices];
};
inline constexpr uint64_t kUsageRowsOffset = 4 * kKiB;
inline constexpr uint64_t kUsageBytes = kUsageRowsOffset + kMaxWindows * sizeof(UsageRow);
static_assert(sizeof(UsageHeader) <= kUsageRowsOffset);
static_assert(sizeof(std::atomic<uint64_t>) == sizeof(uint64_t));

// One session's figures.
struct Usage {
  uint32_t is_known = 0;  // 0: there are none, and all is 0
  uint32_t is_timed = 0;
  uint64_t age_ns = 0;  // of the session
  UsageCells<uint64_t, kUsageCounts> counts{};
  UsageCells<uint64_t, kHeldReasons> held_times{};
  UsageCells<uint64_t, kHeldReasons> held_ns{};
  UsageCells<uint64_t, kHeldReasons> standing{};
  UsageCells<uint64_t, kTimeBins> lengths{};
  UsageCells<uint64_t, kTimeBins> gap_ns{};
  UsageCells<uint64_t, kPartBins> part_ns{};
  UsageCells<uint64_t, kUsageDevices> memory{};
  std::array<UsageCells<uint64_t, kDeviceUses>, kUsageDevices> devices{};

  [[nodiscard]] uint64_t count(UsageCount what) const { return counts[static_cast<size_t>(what)]; }
  [[nodiscard]] uint64_t use(uint32_t device, DeviceUse what) const {
    return devices[device][static_cast<size_t>(what)];
  }
  // Of all devices.
  [[nodiscard]] uint64_t use(DeviceUse what) const {
    uint64_t sum = 0;
    for (uint32_t device = 0; device < kUsageDevices; ++device) sum += use(device, what);
    return sum;
  }
};

}  // namespace openmps::wire
