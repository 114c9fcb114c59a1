// SPDX-License-Identifier: Apache-2.0
// See adoption.h.
#include "worker/session/adoption.h"

#include <cstring>
#include <memory>
#include <optional>
#include <string>

#include "base/adaptive_wait.h"
#include "base/clock.h"
#include "wire/command_info.h"
#include "worker/core/reply_writer.h"
#include "worker/device/log.h"
#include "worker/session/dispatch.h"
#include "worker/session/recent_work.h"

namespace openmps::worker {
namespace {

// While code is compiled.
constexpr WaitPlan kPendingPlan{.nap_until_ns = kNever, .nap = {20'000, 2'000'000}};

// Text for people, which may differ.
bool is_compared(wire::Opcode opcode) { return opcode != wire::Opcode::kModuleLoad; }

Status execute(SessionParts& session, const wire::Record& record, ReplyWriter& reply) {
  Status status = dispatch(session, record, reply);
  session.submitter.end_waiting();
  const std::unique_ptr<Pending> pending = reply.take_pending();
  if (pending == nullptr) return status;
  AdaptiveWait wait(session.core.clock, kPendingPlan);
  while (!pending->ready()) {
    if (session.stop.load(std::memory_order_relaxed)) {
      return Status(CUDA_ERROR_NOT_READY, "the session ends");
    }
    wait.pause();
  }
  session.core.bell->answer();
  session.submitter.prepare_to_wait();
  status = pending->finish(reply);
  note_late(session, record, status, reply);
  session.submitter.end_waiting();
  return status;
}

// Nothing is under way in this worker, but, unless `all`, for what lost streams had: that may be
// given again, and counts as under way until it is.
void note_ended(SessionParts& session, bool all) {
  for (uint32_t slot = 0; slot < session.core.journal.view().fence_slots(); ++slot) {
    if (all || session.core.view.fence(slot).lost.load(std::memory_order_relaxed) == 0) {
      session.core.journal.note_ended(slot);
    }
  }
}

}  // namespace

Status adopt(SessionParts& session, Adopted* adopted) {
  const wire::JournalView& journal = session.core.journal.view();
  if (session.core.info.adoption == wire::Adoption::kFound &&
      journal.header().noted.load() > session.core.view.ring_control().head.load()) {
    return Status(CUDA_ERROR_MPS_RPC_FAILURE, "its worker has died while it changed the journal");
  }
  const auto reply = std::make_unique<ReplyWriter>();
  const Clock& clock = session.core.clock;
  const uint64_t begin = clock.now_ns();
  uint32_t count = 0;
  uint64_t longest_ns = 0;
  wire::Opcode longest = wire::Opcode::kPadding;
  const auto replay = [&](const wire::JournalEntry& entry, Journal::Bytes bytes,
                          Journal::Bytes recorded) {
    if (entry.state == wire::JournalState::kPending) {
      uint32_t slot = wire::kNoReply;
      if (recorded.size() == sizeof(slot)) memcpy(&slot, recorded.data(), sizeof(slot));
      session.pending.push_back({static_cast<wire::Opcode>(entry.opcode),
                                 static_cast<uint16_t>(slot),
                                 {bytes.begin(), bytes.end()},
                                 session.core.journal.notes(),
                                 session.core.journal.keep_pending()});
      return Status();
    }
    const wire::Record record{.opcode = static_cast<wire::Opcode>(entry.opcode),
                              .reply_slot = wire::kNoReply,
                              .payload = bytes.data(),
                              .payload_bytes = static_cast<uint32_t>(bytes.size())};
    reply->clear();
    const uint64_t command_begin = clock.now_ns();
    const Status status = execute(session, record, *reply);
    ++count;
    if (const uint64_t ns = clock.now_ns() - command_begin; ns > longest_ns) {
      longest_ns = ns;
      longest = record.opcode;
    }
    const std::string name = wire::name_of(record.opcode);
    if (!status.ok()) return Status(status.code(), name + ": " + status.message());
    const bool is_same =
        reply->size() == recorded.size() &&
        (recorded.empty() || memcmp(reply->data(), recorded.data(), recorded.size()) == 0);
    if (is_compared(record.opcode) && !is_same) {
      return Status(CUDA_ERROR_NOT_SUPPORTED, name + " has another result in this worker");
    }
    return Status();
  };
  OPENMPS_RETURN_IF_ERROR(session.core.journal.replay(replay));
  session.memory.take_over();
  if (has_unfinished(session)) {
    const RecentWork recent(session.core.view);
    if (session.core.info.adoption == wire::Adoption::kFound) lose_unfinished(session, recent);
    note_ended(session, false);
    const std::optional<uint32_t> again = give_again(session, recent);
    adopted->given_again = again.value_or(0);
    if (!again) drop_unposted_calls(session);
    if (!again) note_ended(session, true);
  } else {
    note_ended(session, true);
  }
  session.losses.take_over();
  session.events.read_times();
  adopted->lost_streams = session.losses.count_new();
  log("Session " + std::to_string(session.core.info.id) + " is made again by " +
      std::to_string(count) + " commands in " +
      std::to_string((clock.now_ns() - begin) / kNsPerMs) + " ms" +
      (count == 0 ? ""
                  : "; the longest, " + std::string(wire::name_of(longest)) + ", took " +
                        std::to_string(longest_ns / kNsPerMs)));
  return Status();
}

}  // namespace openmps::worker
