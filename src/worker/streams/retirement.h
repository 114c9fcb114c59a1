// SPDX-License-Identifier: Apache-2.0
// What a session has given up while its own streams may still use it. Everything waits here for the
// end of the work that was submitted before, and nothing waits for it: the session's thread looks
// when it gives up more, when memory is short, and whenever it has no command to execute. Session's
// thread only.
//
// Work that is held back has not been submitted: what is given up behind it gets its mark once that
// has been done.
//
// A mark is a set of events, one in each stream that got work since the mark before. Streams run in
// order, so what an earlier mark covers is covered by every later one: the list is first in, first
// out, and a look costs the query of its first event.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "worker/core/session_core.h"
#include "worker/streams/stream.h"

namespace openmps::worker {

class Retirement {
 public:
  // Gives something back to the driver. The context of its device need not be current.
  using Release = std::function<void()>;

  Retirement(SessionCore& core, Streams& streams) : core_(core), streams_(streams) {}

  // Call `release` once all work that the session has submitted so far has ended: now if it has.
  // Releases are called in the order in which they were added; `given_up` is shown until then.
  void add(const GivenUp& given_up, Release release);
  // What can go, goes.
  void sweep();
  [[nodiscard]] bool empty() const { return waiting_.empty(); }
  // Some work of the session is held back.
  [[nodiscard]] bool has_held() const { return streams_.held.oldest != Streams::Held::kNone; }
  // All work of the session that the driver has been given has ended.
  [[nodiscard]] bool has_ended_all() { return streams_.seem_idle(); }
  // The session has drained, or its context is lost.
  void release_all();

 private:
  struct Given {
    Release release;
    ShownReturns::Row shown;
  };
  struct Waiting {
    Streams::Mark mark;
    uint64_t behind = 0;  // not 0: held work up to this number comes first, and then the mark
    std::deque<Given> releases;
  };
  void mark_submitted();
  bool reached(Streams::Mark& mark);
  void release_first();
  // Whose work the first waits for.
  void show_first();

  SessionCore& core_;
  Streams& streams_;
  std::deque<Waiting> waiting_;
  size_t unmarked_ = 0;  // of them, the last ones
};

}  // namespace openmps::worker
