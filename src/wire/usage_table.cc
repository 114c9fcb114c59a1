// SPDX-License-Identifier: Apache-2.0
// See usage_table.h.
#include "wire/usage_table.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>

#include "base/clock.h"
#include "base/text.h"

namespace openmps::wire {
namespace {

Status refusal(const std::string& why) { return Status(CUDA_ERROR_INVALID_VALUE, why); }

Status check(const UsageHeader& header) {
  if (header.magic != kUsageMagic) {
    return refusal(format_text("it begins with 0x%08x, as no table of usage does", header.magic));
  }
  if (header.version != kUsageVersion) {
    return refusal(format_text("the table of usage is of version %u, and this program reads %u",
                               header.version, kUsageVersion));
  }
  if (header.row_bytes != sizeof(UsageRow) || header.rows != kMaxWindows) {
    return refusal(format_text("the table of usage has %u rows of %u bytes instead of %u of %zu",
                               header.rows, header.row_bytes, kMaxWindows, sizeof(UsageRow)));
  }
  return Status();
}

template <size_t count>
void copy(UsageCells<uint64_t, count>* to, const UsageCells<UsageRow::Cell, count>& from) {
  std::transform(from.begin(), from.end(), to->begin(),
                 [](const UsageRow::Cell& cell) { return cell.load(std::memory_order_relaxed); });
}

}  // namespace

Result<UsageTable> UsageTable::open(int file) {
  // Otherwise the writer could truncate the file, and reading it would kill the reader.
  const int seals = fcntl(file, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    return refusal("it is no sealed file, as a table of usage is");
  }
  struct stat info {};
  if (fstat(file, &info) != 0 || static_cast<uint64_t>(info.st_size) < kUsageBytes) {
    return refusal(format_text("the table of usage is cut off: %lld bytes of %llu",
                               static_cast<long long>(info.st_size),
                               static_cast<unsigned long long>(kUsageBytes)));
  }
  Result<Mapping> mapping = map_shared(file, 0, kUsageBytes, MapAccess::kReadOnly);
  if (!mapping.ok()) return mapping.status();
  UsageHeader header;
  memcpy(&header, mapping->address(), sizeof(header));
  if (Status status = check(header); !status.ok()) return status;
  // A child that closes strangers' descriptors needs no copy.
  madvise(mapping->address(), mapping->bytes(), MADV_DONTFORK);
  UsageTable table;
  table.mapping_ = std::move(mapping).value();
  table.is_timed_ = header.is_timed != 0;
  return table;
}

Usage UsageTable::read(uint32_t row, uint32_t session) const {
  Usage usage;
  if (!valid() || row >= kMaxWindows || session == 0) return usage;
  const auto* rows = reinterpret_cast<const UsageRow*>(
      static_cast<const unsigned char*>(mapping_.address()) + kUsageRowsOffset);
  const UsageRow& from = rows[row];
  // Pairs with the writer, which takes the row away from one session before it clears it and names
  // the next one after that.
  if (from.session.load(std::memory_order_acquire) != session) return usage;
  copy(&usage.counts, from.counts);
  copy(&usage.held_times, from.held_times);
  copy(&usage.held_ns, from.held_ns);
  copy(&usage.held_now, from.held_now);
  copy(&usage.lengths, from.lengths);
  copy(&usage.gap_ns, from.gap_ns);
  copy(&usage.part_ns, from.part_ns);
  copy(&usage.memory, from.memory);
  copy(&usage.on_host, from.on_host);
  for (uint32_t device = 0; device < kUsageDevices; ++device) {
    copy(&usage.devices[device], from.devices[device]);
  }
  const uint64_t opened_ns = from.opened_ns.load(std::memory_order_relaxed);
  const uint64_t now = now_ns();
  usage.age_ns = now > opened_ns ? now - opened_ns : 0;
  std::atomic_thread_fence(std::memory_order_acquire);
  if (from.session.load(std::memory_order_relaxed) != session) return Usage();
  // What the bounds of single pieces of work together leave of the guess.
  for (auto& uses : usage.devices) {
    uint64_t& ns = uses[static_cast<size_t>(DeviceUse::kNs)];
    const uint64_t least = uses[static_cast<size_t>(DeviceUse::kLeastNs)];
    ns = std::clamp(ns, least, std::max(least, uses[static_cast<size_t>(DeviceUse::kMostNs)]));
  }
  usage.is_known = 1;
  usage.is_timed = is_timed_ ? 1 : 0;
  return usage;
}

}  // namespace openmps::wire
