// SPDX-License-Identifier: Apache-2.0
// The values that a session's streams wait for. See open_waits.h.
#include "worker/streams/open_waits.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/clock.h"
#include "worker/device/driver_check.h"

namespace openmps::worker {
namespace {

// A value that satisfies the wait.
uint64_t passing_value(const wire::StreamValue& wait) {
  switch (wait.flags & CU_STREAM_WAIT_VALUE_NOR) {
    case CU_STREAM_WAIT_VALUE_AND: return ~0ull;
    case CU_STREAM_WAIT_VALUE_NOR: return 0;
    default: return wait.value;  // equal, or greater or equal
  }
}

}  // namespace

bool OpenWaits::forget_passed(Line& line) {
  bool any = false;
  while (!line.empty()) {
    Open& first = line.front();
    if (core_.use(first.behind->device).ok() &&
        core_.driver.cuEventQuery(first.behind->handle) == CUDA_ERROR_NOT_READY) {
      return any;
    }
    size_ -= first.values.size();
    if (spare_ == nullptr) spare_ = std::move(first.behind);
    line.pop_front();
    any = true;
  }
  return any;
}

bool OpenWaits::forget_all_passed() {
  bool any = false;
  for (auto& [stream, line] : lines_) any |= forget_passed(line);
  std::erase_if(lines_, [](const auto& entry) { return entry.second.empty(); });
  return any;
}

void OpenWaits::sweep() {
  if (lines_.empty()) return;
  forget_all_passed();
  core_.shown_values.seen(now_ns());
}

Status OpenWaits::prepare(const Stream& stream, size_t count) {
  const auto line = lines_.find(stream.handle);
  if (line != lines_.end()) forget_passed(line->second);
  const auto has_room = [&] { return size_ + count <= kMostOpenWaits; };
  // Streams that are no longer used have passed their waits, too.
  if (!has_room()) forget_all_passed();
  if (!has_room()) {
    return Status(CUDA_ERROR_OUT_OF_MEMORY,
                  std::to_string(size_) + " waits for values are open in the session's streams");
  }
  OPENMPS_RETURN_IF_ERROR(core_.use(stream.place));
  if (spare_ != nullptr && spare_->device == stream.place.device) return Status();
  return DriverEvent::make(core_.driver, stream.place.device, &spare_);
}

Status OpenWaits::add(const Stream& stream, std::span<const wire::StreamValue> values) {
  Line& line = lines_[stream.handle];
  const auto is_same = [](const wire::StreamValue& a, const wire::StreamValue& b) {
    return a.address == b.address && a.value == b.value && a.width == b.width && a.flags == b.flags;
  };
  // A program that polls waits for one value again and again.
  const bool is_repeated =
      !line.empty() && std::ranges::equal(line.back().values, values, is_same, &Value::wait);
  if (!is_repeated) {
    Open& open = line.emplace_back();
    open.values.reserve(values.size());
    const uint64_t now = core_.clock.now_ns();
    for (const wire::StreamValue& value : values) {
      open.values.push_back({value, {core_.shown_values, stream.id, value, now}});
    }
    open.behind = std::move(spare_);
    size_ += values.size();
  }
  return check(core_.driver.cuEventRecord(line.back().behind->handle, stream.handle),
               "cuEventRecord behind a wait");
}

void OpenWaits::write(const wire::StreamValue& wait, uint32_t device) {
  // The memory may have been read-only. Memory that the program has unmapped under its own wait is
  // not written to.
  memory_.allow_writes(wait.address);
  if (!memory_.may_write(wait.address, wait.width)) return;
  CUstream stream = nullptr;
  if (!writers_.take_for_certain(device, &stream).ok()) return;
  const CUdeviceptr address = core_.device_address(wait.address);
  const uint64_t value = passing_value(wait);
  if (wait.width == 8) {
    core_.driver.cuStreamWriteValue64_v2(stream, address, value, 0);
  } else {
    core_.driver.cuStreamWriteValue32_v2(stream, address, static_cast<uint32_t>(value), 0);
  }
}

bool OpenWaits::pass() {
  const bool any = forget_all_passed();
  std::vector<Line*> standing;
  for (auto& [stream, line] : lines_) standing.push_back(&line);
  // Two streams may wait for different values of one word: the value that is written last remains
  // until the next round, in which another is the last.
  ++rounds_;
  for (size_t i = 0; i < standing.size(); ++i) {
    Open& open = standing[(i + rounds_) % standing.size()]->front();
    write(open.values[open.next++ % open.values.size()].wait, open.behind->device);
  }
  return any;
}

void OpenWaits::release_all() {
  lines_.clear();
  spare_.reset();
  size_ = 0;
  writers_.release_all();
}

}  // namespace openmps::worker
