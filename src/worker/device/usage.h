// SPDX-License-Identifier: Apache-2.0
// Counters of what a session uses and waits for (wire/usage.h). Each count is a store to memory,
// without locks or calls. Session's thread; the main thread makes and destroys the counters while
// the session has no thread.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "base/clock.h"
#include "base/shared_memory.h"
#include "cuda/status.h"
#include "wire/usage.h"
#include "worker/device/devices.h"

namespace openmps::worker {

// The worker's table, which the server may read.
class UsageRows {
 public:
  UsageRows() = default;
  // Errors: those of create_shared_file and map_shared. `is_timed`: streams have budgets.
  static Result<UsageRows> make(const Devices& devices, bool is_timed);
  // Null: there is no table.
  [[nodiscard]] wire::UsageRow* row(uint32_t window) const;
  [[nodiscard]] const UniqueFd& file() const { return file_; }

 private:
  UniqueFd file_;
  Mapping mapping_;
};

// Why work is held, and since when that reason is counted.
struct HeldSpan {
  wire::HeldFor why = wire::HeldFor::kNothing;
  uint64_t since_ns = 0;
};

class SessionUsage {
 public:
  // `row` null: nothing reads the counters.
  SessionUsage(wire::UsageRow* row, uint32_t session, uint32_t pid);
  // The row keeps the figures for the server until the window has its next session.
  ~SessionUsage() = default;
  SessionUsage(const SessionUsage&) = delete;
  SessionUsage& operator=(const SessionUsage&) = delete;

  void count(wire::UsageCount what, uint64_t n = 1) { add(row_.counts[index(what)], n); }

  // Kernels with `blocks` blocks together have been launched, each block of that many threads.
  void count_blocks(uint64_t blocks, uint64_t threads_each) {
    count(wire::UsageCount::kBlocks, blocks);
    count(wire::UsageCount::kThreads, blocks * threads_each);
  }

  // A kernel or graph is expected to run between these times, by now_ns(). `is_known`: the length
  // is that of earlier launches of it.
  void will_run(uint64_t from_ns, uint64_t until_ns, bool is_known) {
    if (from_ns > busy_until_ns_) {
      const uint64_t gap = from_ns - busy_until_ns_;
      if (busy_until_ns_ != 0) add(row_.gap_ns[wire::time_bin(gap)], gap);
    }
    busy_until_ns_ = std::max(busy_until_ns_, until_ns);
    if (is_known) add(row_.lengths[wire::time_bin(until_ns - from_ns)], 1);
  }

  // How long work on a device took.
  struct Ran {
    uint64_t ns = 0;
    uint64_t least_ns = 0;
    uint64_t most_ns = 0;
    uint64_t there_ns = 0;  // `ns` and the time in which the work waited for SMs
    uint64_t alone_ns = 0;  // how long the work takes alone on the device; 0: not known
    double sms = 0;         // that the work kept busy, on average
    uint32_t of_sms = 0;
  };
  void ran(uint32_t device, const Ran& ran) {
    auto& uses = row_.devices[device];
    add(uses[index(wire::DeviceUse::kNs)], ran.ns);
    add(uses[index(wire::DeviceUse::kLeastNs)], ran.least_ns);
    add(uses[index(wire::DeviceUse::kMostNs)], ran.most_ns);
    add(uses[index(wire::DeviceUse::kSmNs)],
        static_cast<uint64_t>(ran.sms * static_cast<double>(ran.ns)));
    if (ran.alone_ns != 0) {
      add(uses[index(wire::DeviceUse::kComparedNs)], ran.there_ns);
      add(uses[index(wire::DeviceUse::kAloneNs)], ran.alone_ns);
    }
    if (ran.sms != 0) add(row_.part_ns[wire::part_bin(ran.sms, ran.of_sms)], ran.ns);
  }

  // What the session holds of each device's memory, in bytes. Any thread.
  wire::UsageCells<wire::UsageRow::Cell, wire::kUsageDevices>& memory() { return row_.memory; }
  // What of that is on the host, in bytes. Any thread.
  wire::UsageCells<wire::UsageRow::Cell, wire::kUsageDevices>& on_host() { return row_.on_host; }

  // The work of the span has just been seen to be held for that reason; kNothing: not any
  // more.
  void hold(HeldSpan* span, wire::HeldFor why);

  // The executor waits between these two calls. A wait within another wait counts for the outer
  // one.
  void begin_wait(wire::HeldFor why) {
    if (waits_++ == 0) hold(&wait_, why);
  }
  void end_wait() {
    if (--waits_ == 0) hold(&wait_, wire::HeldFor::kNothing);
  }

  [[nodiscard]] const wire::UsageRow& row() const { return row_; }

 private:
  template <typename Name>
  static constexpr size_t index(Name name) {
    return static_cast<size_t>(name);
  }
  // Only this session writes the cell.
  static void add(wire::UsageRow::Cell& cell, uint64_t n) {
    cell.store(cell.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
  }

  wire::UsageRow own_{};  // where there is no table
  wire::UsageRow& row_;
  uint32_t waits_ = 0;
  HeldSpan wait_;
  uint64_t busy_until_ns_ = 0;  // when all kernels should have ended
};

}  // namespace openmps::worker
