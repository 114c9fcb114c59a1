// SPDX-License-Identifier: Apache-2.0
// What a session has given up while its own streams may still use it. See retirement.h.
#include "worker/streams/retirement.h"

#include <utility>

namespace openmps::worker {

void Retirement::add(const GivenUp& given_up, Release release) {
  sweep();
  if (streams_.held.oldest != Streams::Held::kNone) {
    if (unmarked_ == 0 || waiting_.back().behind != streams_.held.last) {
      waiting_.emplace_back().behind = streams_.held.last;
      ++unmarked_;
    }
  } else if (Streams::Mark mark = streams_.mark(); !mark.empty()) {
    waiting_.emplace_back().mark = std::move(mark);
  } else if (waiting_.empty()) {
    return release();  // nothing has been submitted since the last mark
  }
  waiting_.back().releases.push_back(
      {std::move(release), {core_.shown_returns, given_up, wire::ReturnWait::kStreams}});
  show_first();
}

// In order: a mark covers only what came since the one before.
void Retirement::mark_submitted() {
  while (unmarked_ != 0) {
    Waiting& waiting = waiting_[waiting_.size() - unmarked_];
    if (streams_.held.oldest <= waiting.behind) return;
    waiting.mark = streams_.mark();
    waiting.behind = 0;
    --unmarked_;
  }
}

bool Retirement::reached(Streams::Mark& mark) {
  while (!mark.events.empty()) {
    const DriverEvent& event = *mark.events.back().event;
    // A context that can't become current is lost: nothing runs in it any more.
    if (core_.use(event.device).ok() &&
        core_.driver.cuEventQuery(event.handle) == CUDA_ERROR_NOT_READY) {
      return false;
    }
    mark.events.pop_back();
  }
  return !mark.unmarked || streams_.idle();
}

void Retirement::release_first() {
  std::deque<Given>& releases = waiting_.front().releases;
  while (!releases.empty()) {
    releases.front().release();
    releases.pop_front();  // not before: one that finds no memory is called again
  }
  waiting_.pop_front();
}

void Retirement::show_first() {
  const bool known = !waiting_.empty() && !waiting_.front().mark.events.empty();
  core_.shown_returns.show_stream(known ? waiting_.front().mark.events.back().stream : 0);
}

void Retirement::sweep() {
  if (waiting_.empty()) return;
  mark_submitted();
  while (waiting_.size() > unmarked_ && reached(waiting_.front().mark)) release_first();
  show_first();
}

void Retirement::release_all() {
  unmarked_ = 0;
  while (!waiting_.empty()) release_first();
}

}  // namespace openmps::worker
