// SPDX-License-Identifier: Apache-2.0
// The journal of a session as its worker writes it (wire/journal.h): the commands that make the
// session again in another worker, and what they need. A session without a journal (tests, or
// OPENMPS_TAKEOVER=off) can't move. Session's thread only.
#pragma once

#include <cstdint>
#include <string_view>

#include "cuda/status.h"

namespace openmps::worker {

class Journal {
 public:
  // ---- While a command is executed, for its handler ----
  // The command needs the descriptor that the server keeps under that number (wire::Keep).
  void note_kept(uint64_t number) { kept_ = number; }
  // What the command has made can't be made again, for this reason, until it ends.
  void note_stays(std::string_view why) { stays_ = why; }
  // The number for a descriptor that the server is to keep: unique in the session, for all its
  // workers.
  [[nodiscard]] uint64_t next_number() { return ++last_number_; }

  // ---- While the session is made again ----
  // Commands come from the journal: memory is imported, not created, and so on.
  [[nodiscard]] bool is_adopting() const { return is_adopting_; }
  // What the command in hand needs: note_kept() of its first execution; 0: nothing.
  [[nodiscard]] uint64_t kept() const { return kept_; }

 private:
  uint64_t kept_ = 0;
  std::string_view stays_;
  uint64_t last_number_ = 0;
  bool is_adopting_ = false;
};

}  // namespace openmps::worker
