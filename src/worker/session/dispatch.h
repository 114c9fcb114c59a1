// SPDX-License-Identifier: Apache-2.0
// From a record of the ring to the handler of the record's command: Status handle(const wire::C&,
// ...) of one part of the session. Called by the executor, on the session's thread. Every command
// takes the same steps: decode with checked lengths, check the ids, call the handler, return its
// result. The executor encodes the reply.
#pragma once

#include "cuda/status.h"
#include "wire/ring.h"
#include "worker/core/reply_writer.h"
#include "worker/session/session_parts.h"

namespace openmps::worker {

// The result of the command: success, the program's error, or a violation (driver_check.h).
// `reply` gets what the handler returns beside the result.
Status dispatch(SessionParts& session, const wire::Record& record, ReplyWriter& reply);

// The command of the record has been answered later, with that result: the session's journal gets
// it. What it needs has been noted in the journal again (Journal::resume()).
void note_late(SessionParts& session, const wire::Record& record, const Status& status,
               const ReplyWriter& reply);

}  // namespace openmps::worker
