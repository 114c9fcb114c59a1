// SPDX-License-Identifier: Apache-2.0
// See usage.h.
#include "worker/device/usage.h"

#include <unistd.h>

#include <new>
#include <utility>

namespace openmps::worker {
namespace {

template <typename Cells>
void clear(Cells& cells) {
  for (auto& cell : cells) cell.store(0, std::memory_order_relaxed);
}

}  // namespace

Result<UsageRows> UsageRows::make(const Devices& devices, bool is_timed) {
  UsageRows rows;
  Result<UniqueFd> file = create_shown_file("openmps-usage", wire::kUsageBytes, &rows.mapping_);
  if (!file.ok()) return file.status();
  auto* header = new (rows.mapping_.address()) wire::UsageHeader{};
  header->magic = wire::kUsageMagic;
  header->version = wire::kUsageVersion;
  header->row_bytes = sizeof(wire::UsageRow);
  header->rows = wire::kMaxWindows;
  header->worker_pid = static_cast<uint32_t>(getpid());
  header->is_timed = is_timed ? 1 : 0;
  header->device_count = devices.count();
  for (uint32_t i = 0; i < devices.count(); ++i) header->sms[i] = devices.at(i).sms;
  rows.file_ = std::move(file).value();
  return rows;
}

wire::UsageRow* UsageRows::row(uint32_t window) const {
  if (!mapping_.valid() || window >= wire::kMaxWindows) return nullptr;
  auto* first = static_cast<unsigned char*>(mapping_.address()) + wire::kUsageRowsOffset;
  return reinterpret_cast<wire::UsageRow*>(first) + window;
}

SessionUsage::SessionUsage(wire::UsageRow* row, uint32_t session, uint32_t pid)
    : row_(row == nullptr ? own_ : *row) {
  // The reader looks whose it is before and after.
  row_.session.store(0, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  row_.pid.store(pid, std::memory_order_relaxed);
  row_.opened_ns.store(now_ns(), std::memory_order_relaxed);
  clear(row_.counts);
  clear(row_.held_times);
  clear(row_.held_ns);
  clear(row_.held_now);
  clear(row_.lengths);
  clear(row_.gap_ns);
  clear(row_.part_ns);
  clear(row_.memory);
  clear(row_.on_host);
  for (auto& device : row_.devices) clear(device);
  row_.session.store(session, std::memory_order_release);
}

void SessionUsage::hold(HeldSpan* span, wire::HeldFor why) {
  const uint64_t now = now_ns();
  if (span->why != wire::HeldFor::kNothing) {
    add(row_.held_ns[index(span->why)], now - span->since_ns);
  }
  span->since_ns = now;
  if (span->why == why) return;
  if (span->why != wire::HeldFor::kNothing) add(row_.held_now[index(span->why)], ~0ull);
  if (why != wire::HeldFor::kNothing) {
    add(row_.held_now[index(why)], 1);
    add(row_.held_times[index(why)], 1);
  }
  span->why = why;
}

}  // namespace openmps::worker
