// SPDX-License-Identifier: Apache-2.0
// See inspect.h.
#include "server/inspect.h"

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <map>
#include <tuple>
#include <vector>

#include "base/clock.h"
#include "wire/record.h"

namespace openmps::server {
namespace {

using wire::WaitKind;
using wire::WaitRow;

// The parts of a channel that show what waits. Copied by read(): an access to a page of a mapping
// would allocate the page.
std::vector<unsigned char> copy_of(int host_file) {
  std::vector<unsigned char> bytes(wire::kStagingOffset);
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t got =
        pread(host_file, bytes.data() + done, bytes.size() - done, static_cast<off_t>(done));
    if (got <= 0) break;
    done += static_cast<size_t>(got);
  }
  return bytes;
}

// The commands in the ring, up to the first record that is not valid.
void add_queued(const wire::ChannelView& view, std::vector<WaitRow>* rows) {
  std::map<uint16_t, uint64_t> counts;
  uint64_t head = view.ring_control().taken.load(std::memory_order_relaxed);
  const uint64_t tail = view.ring_control().tail.load(std::memory_order_relaxed);
  while (head != tail && tail - head <= wire::kRingBytes) {
    const uint64_t at = head % wire::kRingBytes;
    wire::RecordHeader record;
    if (at + sizeof(record) > wire::kRingBytes) break;
    memcpy(&record, view.ring_data() + at, sizeof(record));
    if (record.bytes < wire::kRecordAlignment || record.bytes > tail - head) break;
    if (record.opcode != 0) ++counts[record.opcode];  // 0: padding
    head += record.bytes;
  }
  for (const auto& [opcode, count] : counts) {
    rows->push_back({.kind = WaitKind::kQueued, .number = opcode, .have = count});
  }
}

uint64_t age_of(uint64_t since_ns) {
  const uint64_t now = now_ns();
  return now > since_ns ? now - since_ns : 0;
}

// The sessions that keep the executor waiting.
void add_hindrances(const wire::ChannelView& view, const SessionTable& sessions,
                    std::vector<WaitRow>* rows) {
  for (const wire::ShownHindrance& shown : view.executor().hindrances) {
    const wire::Hindrance why = shown.why.load();
    if (why == wire::Hindrance::kNone) return;
    const uint32_t id = shown.session.load();
    const Session* session = sessions.find(id);
    rows->push_back({.kind = WaitKind::kHindrance,
                     .number = id,
                     .stream = shown.stream.load(),
                     .how = static_cast<uint32_t>(why),
                     .want = session == nullptr ? 0 : session->admit.pid});
  }
}

// The values that streams wait for, those of each stream in order: the stream is at the first
// one.
void add_values(const wire::ChannelView& view, std::vector<WaitRow>* rows) {
  std::vector<WaitRow> values;
  for (uint32_t i = 0; i < wire::kShownValueWaits; ++i) {
    const wire::ValueWait& wait = view.value_wait(i);
    if (wait.how.load() == 0) continue;
    values.push_back({.kind = WaitKind::kValue,
                      .stream = wait.stream.load(),
                      .how = wait.how.load(),
                      .want = wait.value.load(),
                      .address = wait.address.load(),
                      .age_ns = wait.since_ns.load()});
  }
  std::stable_sort(values.begin(), values.end(), [](const WaitRow& a, const WaitRow& b) {
    return std::tie(a.stream, a.age_ns) < std::tie(b.stream, b.age_ns);
  });
  const WaitRow* first = nullptr;
  for (WaitRow& value : values) {
    if (first == nullptr || first->stream != value.stream) first = &value;
    value.number = value.age_ns == first->age_ns ? 1 : 0;
  }
  for (WaitRow& value : values) value.age_ns = age_of(value.age_ns);
  rows->insert(rows->end(), values.begin(), values.end());
}

// The deferred releases, the oldest first.
void add_returns(const wire::ChannelView& view, std::vector<WaitRow>* rows) {
  const size_t before = rows->size();
  for (uint32_t i = 0; i < wire::kShownReturns; ++i) {
    const wire::PendingReturn& pending = view.pending_return(i);
    const wire::ReturnKind kind = pending.kind.load();
    if (kind == wire::ReturnKind::kNone) continue;
    const wire::ReturnWait wait = pending.wait.load();
    const bool behind = wait == wire::ReturnWait::kStreams;
    rows->push_back({.kind = WaitKind::kReturn,
                     .number = static_cast<uint32_t>(kind),
                     .stream = behind ? view.executor().return_stream.load() : 0,
                     .how = static_cast<uint32_t>(wait),
                     .have = pending.bytes.load(),
                     .address = pending.address.load(),
                     .age_ns = age_of(pending.since_ns.load())});
  }
  std::stable_sort(rows->begin() + static_cast<std::ptrdiff_t>(before), rows->end(),
                   [](const WaitRow& a, const WaitRow& b) { return a.age_ns > b.age_ns; });
}

void add_waits(const wire::ChannelView& view, std::vector<WaitRow>* rows) {
  for (uint32_t slot = 0; slot < wire::kReplySlots; ++slot) {
    if (view.reply(slot).state.load() != wire::ReplySlot::kPending) continue;
    rows->push_back({.kind = WaitKind::kReply, .number = slot});
  }
  for (uint32_t slot = 0; slot < wire::kCallbackSlots; ++slot) {
    const wire::CallbackSlot& callback = view.callback(slot);
    if (callback.posted.load() == 0 || callback.done.load() != 0) continue;
    rows->push_back({.kind = WaitKind::kHostFunction, .number = slot});
  }
  for (uint32_t slot = 0; slot < wire::kFenceSlots; ++slot) {
    const wire::FencePromise& promise = view.promise(slot);
    const uint64_t have = view.fence(slot).value.load();
    if (have >= promise.value.load()) continue;
    rows->push_back({.kind = WaitKind::kFence,
                     .number = slot,
                     .stream = promise.stream.load(),
                     .have = have,
                     .want = promise.value.load()});
  }
}

}  // namespace

std::string inspect(const Session& session, const SessionTable& sessions) {
  std::vector<unsigned char> copy = copy_of(session.host_file.get());
  const wire::ChannelView view(copy.data());
  std::vector<WaitRow> rows;
  add_queued(view, &rows);
  const wire::RingControl& ring = view.ring_control();
  const wire::ExecutorState& executor = view.executor();
  wire::SessionReport report;
  report.pid = session.admit.pid;
  report.id = session.id;
  report.ending = session.state == SessionState::kEnding ? 1 : 0;
  report.status = view.header().status.load();
  report.async_error = view.header().async_error.load();
  report.waiters = view.header().waiters.load();
  report.sleeping = ring.consumer_sleeping.load();
  report.ring_bytes = ring.tail.load() - ring.taken.load();
  report.executed = executor.executed.load();
  report.opcode = executor.opcode.load();
  report.later = executor.later.load();
  report.wait = executor.wait.load();
  if (report.wait != wire::ExecutorWait::kNone) {
    report.wait_ns = age_of(executor.wait_since_ns.load());
    add_hindrances(view, sessions, &rows);
  }
  report.value_waits = executor.value_waits.load();
  report.returns = executor.returns.load();
  report.held = executor.held.load();
  if (report.value_waits != 0) {
    report.value_waits_age_ns = age_of(executor.value_waits_seen_ns.load());
  }
  add_values(view, &rows);
  add_returns(view, &rows);
  add_waits(view, &rows);
  if (rows.size() > wire::kMaxWaitRows) {
    report.more_waits = static_cast<uint32_t>(rows.size()) - wire::kMaxWaitRows;
    rows.resize(wire::kMaxWaitRows);
  }
  report.waits = static_cast<uint32_t>(rows.size());
  std::string bytes(reinterpret_cast<const char*>(&report), sizeof(report));
  return bytes.append(reinterpret_cast<const char*>(rows.data()), rows.size() * sizeof(rows[0]));
}

}  // namespace openmps::server
