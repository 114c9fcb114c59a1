// SPDX-License-Identifier: Apache-2.0
// What a session's streams were given last, as the ring still has it, and what becomes of that in
// the session's next worker (docs/decisions/0042): what may not have ended is lost, or given again.
// Session's thread, while the session is made again.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "wire/channel_view.h"
#include "wire/command.h"
#include "wire/handshake.h"
#include "worker/memory/work_range.h"
#include "worker/session/session_parts.h"
#include "worker/streams/fence.h"

namespace openmps::worker {

// A command that has been executed.
struct RecentCommand {
  // Whether it may be executed again if it may have been carried out, or a part of it.
  enum class Again {
    kAlways,    // as it was: fences, records, waits for events
    kByRanges,  // a copy or a fill, if nothing is read that has been written since
    kUnposted,  // a host function, if the client has not been asked to run it
    kIfSaid,    // if the program says so: kernels, graphs, values
    kNever,     // it is not known what it does
  };
  wire::Opcode opcode = wire::Opcode::kPadding;
  uint64_t end = 0;  // wire::Record::end
  std::vector<unsigned char> payload;
  wire::Id stream = 0;  // in which it is work; 0: it is none
  Again again = Again::kNever;
  std::vector<WorkRange> ranges;  // of kByRanges
  FenceValue fence;               // stored behind it
  uint32_t callback = 0;          // of kUnposted
  wire::Id recorded = 0;          // the event that it records
  bool orders_all = false;        // all later work of its context comes behind it
  // Events, executable graphs and functions that it uses, and that it ends or changes.
  std::vector<Journal::ObjectKey> uses;
  std::vector<Journal::ObjectKey> alters;
  bool uses_any_event = false;
  bool alters_any = false;  // or something else that others may use
};

class RecentWork {
 public:
  // Reads the ring behind what has been done, whose records the client can write to. Throws
  // std::bad_alloc.
  explicit RecentWork(const wire::ChannelView& view);

  [[nodiscard]] const std::vector<RecentCommand>& commands() const { return commands_; }
  // The first command that was taken and not concluded; null: there may be none.
  [[nodiscard]] const RecentCommand* in_hand() const { return in_hand_ ? &*in_hand_ : nullptr; }
  // Where the work of a stream begins that may not have ended, counted like RecentCommand::end: a
  // command ends later. `reached`: the fence slot's last value. Nothing: before what is known.
  [[nodiscard]] std::optional<uint64_t> begin_of(uint32_t slot, uint64_t reached) const;
  // Everything that the session has been given is known.
  [[nodiscard]] bool is_complete() const { return is_complete_; }

 private:
  std::vector<RecentCommand> commands_;
  std::optional<RecentCommand> in_hand_;
  bool is_complete_ = false;
};

// Something that streams were given may not have ended, or is lost.
[[nodiscard]] bool has_unfinished(const SessionParts& session);

// The former worker has said nothing (wire::Adoption::kFound): marks what may not have ended as
// lost, as hand_over() does. Before Losses::take_over().
void lose_unfinished(SessionParts& session, const RecentWork& recent);

// If all that the former worker has lost may be executed again, nothing is lost: the fence slots
// are as they were, and the commands are put behind session.pending. Returns their number, which is
// 0 if only the command in hand was under way; nothing: it is lost. Before Losses::take_over().
std::optional<uint32_t> give_again(SessionParts& session, const RecentWork& recent);

// The client does not run functions of lost streams that it has not been asked to run.
void drop_unposted_calls(SessionParts& session);

}  // namespace openmps::worker
