// SPDX-License-Identifier: Apache-2.0
// What a session has given up while its own streams may still use it. See retirement.h.
#include "worker/streams/retirement.h"

#include <utility>

namespace openmps::worker {

void Retirement::add(Release release) {
  sweep();
  Streams::Mark mark = streams_.mark();
  if (mark.empty()) {
    // Nothing has been submitted since the last mark.
    if (waiting_.empty()) return release();
  } else {
    waiting_.emplace_back().mark = std::move(mark);
  }
  waiting_.back().releases.push_back(std::move(release));
}

bool Retirement::reached(Streams::Mark& mark) {
  while (!mark.events.empty()) {
    const DriverEvent& event = *mark.events.back();
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
  std::deque<Release>& releases = waiting_.front().releases;
  while (!releases.empty()) {
    releases.front()();
    releases.pop_front();  // not before: one that finds no memory is called again
  }
  waiting_.pop_front();
}

void Retirement::sweep() {
  while (!waiting_.empty() && reached(waiting_.front().mark)) release_first();
}

void Retirement::release_all() {
  while (!waiting_.empty()) release_first();
}

}  // namespace openmps::worker
