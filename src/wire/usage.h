// SPDX-License-Identifier: Apache-2.0
// What sessions have used of the GPU, and why their work was held: the layout of the table that a
// worker keeps in shared memory, and one session's figures as a value (decision 21). A process that
// has the file can read it at any time (usage_table.h).
//
// Each row has one writer, the thread of a session, and any number of readers. All of it is relaxed
// counters: each is exact, and all that are read at one time are of about one moment.
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
inline constexpr uint32_t kUsageVersion = 5;
inline constexpr uint32_t kUsageDevices = kMaxDevices;

// Counted when work is submitted. Bytes are those of copies, also in graphs.
enum class UsageCount : uint32_t {
  kLaunches = 0,      // of kernels
  kBatched = 1,       // those launches that were submitted in a batch
  kGraphs = 2,        // launches of executable graphs
  kGraphKernels = 3,  // kernels in these, without bodies of conditional nodes
  kCopies = 4,
  kFills = 5,
  kImagesMade = 6,    // images that had to be loaded
  kImagesFound = 7,   // images that another session, or the worker itself, had loaded
  kHostToDevice = 8,  // bytes, up to kFilled
  kDeviceToHost = 9,
  kDeviceToDevice = 10,
  kHostToHost = 11,
  kFilled = 12,
  kBlocks = 13,   // of the kernels' grids, also in graphs
  kThreads = 14,  // of these blocks
  // Launches of kernels and executable graphs that may use SMs beyond the client's limit
  // (docs/decisions/0028, 0032), and kernel nodes of that kind when they are made.
  kBeyondLimit = 15,
  kNumber = 16,
};
inline constexpr size_t kUsageCounts = static_cast<size_t>(UsageCount::kNumber);

// Why work of a program is held, or why the session's executor waits (docs/glossary.md).
enum class HeldFor : uint32_t {
  kValue = 0,         // a value in memory has not come
  kEvent = 1,         // the record of the event that a wait names is held
  kStreams = 2,       // held work of other streams comes first, by CUDA's order of streams
  kStreamBudget = 3,  // the stream's budget is used up: the driver has enough of its work
  kQueueCredit = 4,   // there is no queue credit or wait credit for a stream that needs one
  kQuietMoment = 5,   // the executor waits for quiescence, or at the gate while another's does
  kPrintTurn = 6,     // the executor waits for the session's turn to print
  kMemory = 7,        // the executor waits for memory that the session has released
  kFairShare = 8,     // the policy holds the session's kernels: others come first
  kHostFunction = 9,  // a host function that the program has to run has not returned
  kStreamSlot = 10,   // there is no stream slot: the driver makes more only in quiescence
  kNumber = 11,
  kNothing = 11,
};
inline constexpr size_t kHeldReasons = static_cast<size_t>(HeldFor::kNumber);

// Times of work on a device. A mark behind the work is seen unreached at one time and reached at a
// later time, so the length of the work is known between two bounds; `kNs` is the estimate.
enum class DeviceUse : uint32_t {
  kNs = 0,
  kLeastNs = 1,
  kMostNs = 2,
  kSmNs = 3,  // times the SMs that a kernel's grid keeps busy, on average over its waves
  // Of work whose length without neighbours is known: its length here, with waits for SMs, and that
  // length. The difference is what the neighbours cost.
  kComparedNs = 4,
  kAloneNs = 5,
  kNumber = 6,
};
inline constexpr size_t kDeviceUses = static_cast<size_t>(DeviceUse::kNumber);

// Bins of times by length: below 512 ns, then each twice as wide; the last one begins at 2.1 s.
inline constexpr size_t kTimeBins = 24;
inline constexpr uint64_t kFirstTimeNs = 512;
constexpr size_t time_bin(uint64_t ns) {
  return std::min(static_cast<size_t>(std::bit_width(ns / kFirstTimeNs)), kTimeBins - 1);
}
// The shortest time of a bin.
constexpr uint64_t time_bin_ns(size_t bin) { return bin == 0 ? 0 : kFirstTimeNs << (bin - 1); }

// Bins of times by the part of the device's SMs that were busy, an eighth each.
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
  std::atomic<uint32_t> session;  // 0: the row is free
  std::atomic<uint32_t> pid;      // of its client
  Cell opened_ns;                 // by now_ns()
  UsageCells<Cell, kUsageCounts> counts;
  UsageCells<Cell, kHeldReasons> held_times;  // how often
  UsageCells<Cell, kHeldReasons> held_ns;     // of streams with held work, and of the executor
  UsageCells<Cell, kHeldReasons> held_now;    // how many streams have such held work now
  UsageCells<Cell, kTimeBins> lengths;        // kernels and graph launches by their learnt length
  UsageCells<Cell, kTimeBins> gap_ns;         // time between kernels of the session
  UsageCells<Cell, kPartBins> part_ns;        // kNs, by the part of the SMs
  UsageCells<Cell, kUsageDevices> memory;     // bytes that it holds of each device
  UsageCells<Cell, kUsageDevices> on_host;    // of these, bytes that are on the host now
  std::array<UsageCells<Cell, kDeviceUses>, kUsageDevices> devices;
};

// In front of the rows; constant once the file has been passed on.
struct UsageHeader {
  uint32_t magic;
  uint32_t version;
  uint32_t row_bytes;
  uint32_t rows;  // one for each address window
  uint32_t worker_pid;
  uint32_t is_timed;  // 0: stream budgets are switched off, and so times are not measured
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
  uint32_t is_known = 0;  // 0: there are no figures, and all is 0
  uint32_t is_timed = 0;
  uint64_t age_ns = 0;  // of the session
  UsageCells<uint64_t, kUsageCounts> counts{};
  UsageCells<uint64_t, kHeldReasons> held_times{};
  UsageCells<uint64_t, kHeldReasons> held_ns{};
  UsageCells<uint64_t, kHeldReasons> held_now{};
  UsageCells<uint64_t, kTimeBins> lengths{};
  UsageCells<uint64_t, kTimeBins> gap_ns{};
  UsageCells<uint64_t, kPartBins> part_ns{};
  UsageCells<uint64_t, kUsageDevices> memory{};
  UsageCells<uint64_t, kUsageDevices> on_host{};
  std::array<UsageCells<uint64_t, kDeviceUses>, kUsageDevices> devices{};

  [[nodiscard]] uint64_t count(UsageCount what) const { return counts[static_cast<size_t>(what)]; }
  [[nodiscard]] uint64_t use(uint32_t device, DeviceUse what) const {
    return devices[device][static_cast<size_t>(what)];
  }
  // Adds what grows: counts, times, age. And what is there at one time: memory, and work that is
  // held now (usage.cc).
  void add_counters(const Usage& other);
  void add_present(const Usage& other);
  // Of all devices.
  [[nodiscard]] uint64_t use(DeviceUse what) const {
    uint64_t sum = 0;
    for (uint32_t device = 0; device < kUsageDevices; ++device) sum += use(device, what);
    return sum;
  }
};

}  // namespace openmps::wire
