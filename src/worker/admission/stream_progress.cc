// SPDX-License-Identifier: Apache-2.0
// When the work of a stream ends. See stream_progress.h.
#include "worker/admission/stream_progress.h"

#include <algorithm>
#include <utility>

namespace openmps::worker {
namespace {

// While sessions want more SMs than the device has, the lower bound of a duration is at most a
// fourth above what was expected: some of the time the work may have waited for SMs.
constexpr uint64_t kCrowdedShare = 4;

}  // namespace

WorkTotal& WorkTotal::operator+=(const WorkTotal& other) {
  expected_ns += other.expected_ns;
  items += other.items;
  unknown += other.unknown;
  waits += other.waits;
  outer_waits += other.outer_waits;
  return *this;
}

WorkTotal& WorkTotal::operator-=(const WorkTotal& other) {
  expected_ns -= other.expected_ns;
  items -= other.items;
  unknown -= other.unknown;
  waits -= other.waits;
  outer_waits -= other.outer_waits;
  return *this;
}

void StreamProgress::Segment::add_number(uint32_t number) {
  const std::span known = learnt_numbers();
  if (std::ranges::find(known, number) != known.end()) return;
  if (learnt == kMostLearnt) {
    is_plain = false;
  } else {
    numbers[learnt++] = number;
  }
}

// `next` is the segment behind this one; both were seen reached in one look.
void StreamProgress::Segment::append(const Segment& next) {
  total += next.total;
  closed_ns = next.closed_ns;
  alone_ns += next.alone_ns;
  sm_ns += next.sm_ns;
  is_plain = is_plain && next.is_plain;
  is_compared = is_compared && next.is_compared;
  for (const uint32_t number : next.learnt_numbers()) add_number(number);
}

StreamProgress::StreamProgress(const ProgressTools& tools, std::function<bool()> make_current,
                               CUstream stream, std::atomic<uint64_t>* ends_ns)
    : tools_(tools), make_current_(std::move(make_current)), stream_(stream), ends_ns_(ends_ns) {}

// `*ends_ns_` may no longer exist, so it is not written.
StreamProgress::~StreamProgress() {
  reach_all(tools_.clock.now_ns());
  if (busy_) tools_.share.end_work(tools_.clock.now_ns());
}

void StreamProgress::move(CUstream stream, std::atomic<uint64_t>* ends_ns) {
  ends_ns->store(ends_ns_->load(std::memory_order_relaxed), std::memory_order_relaxed);
  stream_ = stream;
  ends_ns_ = ends_ns;
}

// ---- What the driver is given -------------------------------------------------------------------

void StreamProgress::add_item(const WorkTotal& one) {
  if (open_.total.items == 0) open_.begin_ns = tools_.clock.now_ns();
  total_ += one;
  open_.total += one;
}

void StreamProgress::add(const Cost& cost) {
  const Durations& durations = tools_.durations;
  const bool is_known = durations.is_known(cost);
  const uint64_t ns = durations.of(cost);
  add_item({.expected_ns = ns, .items = 1, .unknown = is_known ? 0u : 1u});
  open_.alone_ns += durations.alone(cost);
  open_.is_compared = open_.is_compared && durations.has_been_alone(cost);
  open_.sm_ns += ns * cost.sms;
  if (cost.learnt != 0) open_.add_number(cost.learnt);
  const uint64_t from_ns = std::max(until_ns_, open_.begin_ns);
  until_ns_ = from_ns + ns;
  if (cost.sms != 0) {
    tools_.usage.will_run(from_ns, until_ns_, is_known);
    if (is_known) tools_.share.note_duration(ns);
    if (!std::exchange(busy_, true)) tools_.share.begin_work(cost.sms);
  }
  show_end();
}

void StreamProgress::add_wait(bool is_for_cold_stream) {
  add_item({.items = 1, .waits = 1, .outer_waits = is_for_cold_stream ? 0u : 1u});
  open_.is_plain = false;
  show_end();
}

void StreamProgress::add_fence(const std::atomic<uint64_t>& word, uint64_t value) {
  if (open_.total.items == 0 || !has_free_segment()) return;
  open_.word = &word;
  open_.value = value;
  close();
}

// ---- Marks --------------------------------------------------------------------------------------

bool StreamProgress::has_free_segment() {
  if (segments_ == nullptr) {
    segments_ = std::make_unique<std::array<Segment, kSegments>>();
    spare_.reserve(kSegments + 1);
  }
  return count_ < kSegments;
}

// Without a free segment, an event or the context no mark is put; the next call tries again.
void StreamProgress::mark() {
  if (open_.total.items == 0 || !make_current_() || !has_free_segment()) return;
  std::unique_ptr<DriverEvent> event;
  if (!spare_.empty()) {
    event = std::move(spare_.back());
    spare_.pop_back();
  } else if (!DriverEvent::make(tools_.driver, tools_.device, &event).ok()) {
    return;
  }
  if (tools_.driver.cuEventRecord(event->handle, stream_) != CUDA_SUCCESS) {
    spare_.push_back(std::move(event));
    return;
  }
  open_.event = std::move(event);
  close();
}

void StreamProgress::close() {
  open_.closed_ns = tools_.clock.now_ns();
  at(count_++) = std::exchange(open_, Segment());
}

bool StreamProgress::is_reached(const Segment& segment) const {
  if (segment.event == nullptr) {
    return segment.word->load(std::memory_order_acquire) >= segment.value;
  }
  const CUresult result = tools_.driver.cuEventQuery(segment.event->handle);
  if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY) has_lost_context_ = true;
  return result != CUDA_ERROR_NOT_READY;
}

void StreamProgress::drop_first() {
  if (at(0).event != nullptr) spare_.push_back(std::move(at(0).event));
  first_ = (first_ + 1) % kSegments;
  --count_;
}

// Segments that are seen reached in one look are taken as one: the time since the look before
// bounds their sum, and each by itself would seem to have taken all of it.
void StreamProgress::look(uint64_t now) {
  mark();
  Segment reached;
  for (; count_ != 0; drop_first()) {
    Segment& first = at(0);
    if (!is_reached(first)) {
      first.unreached_ns = now;
      break;
    }
    if (reached.total.items == 0) {
      reached.begin_ns = first.begin_ns;
      reached.unreached_ns = first.unreached_ns;
    }
    reached.append(first);
  }
  if (reached.total.items != 0) reach(reached, now, true);
  show_end();
}

void StreamProgress::end(uint64_t now) {
  reach_all(now);
  show_end();
}

void StreamProgress::reach_all(uint64_t now) {
  for (; count_ != 0; drop_first()) reach(at(0), now, false);
  if (open_.total.items != 0) {
    open_.closed_ns = now;
    reach(std::exchange(open_, Segment()), now, false);
  }
}

void StreamProgress::show_end() {
  const uint64_t end = is_empty() ? 0 : begun_ns() + total_.expected_ns;
  ends_ns_->store(end, std::memory_order_relaxed);
  tools_.share.expect_end(end);
  // Waits alone keep no SMs busy.
  if (total_.items == total_.waits && std::exchange(busy_, false)) {
    tools_.share.end_work(tools_.clock.now_ns());
  }
}

// ---- What is learnt -----------------------------------------------------------------------------

// The segment began when it was submitted, or when the work before it ended. While it was being
// submitted the GPU may have been idle, so the lower bound starts when all of it was submitted.
void StreamProgress::reach(const Segment& segment, uint64_t now, bool learns) {
  const WorkTotal& total = segment.total;
  const uint64_t latest_begin = std::max(segment.closed_ns, reached_ns_);
  const uint64_t soonest_begin = std::max(segment.begin_ns, before_reached_ns_);
  const bool is_seen = segment.is_plain && segment.unreached_ns > latest_begin;
  const uint64_t there = is_seen ? segment.unreached_ns - latest_begin : 0;
  uint64_t least = there;
  // Some of the time it may have waited for SMs.
  const double part = tools_.share.satisfied_since(soonest_begin);
  if (part != 1 && total.unknown == 0) {
    least = std::min(least, total.expected_ns + total.expected_ns / kCrowdedShare);
  }
  Durations& durations = tools_.durations;
  const std::span numbers = segment.learnt_numbers();
  if (learns && segment.is_plain) {
    const uint64_t most = now - soonest_begin;
    if (total.unknown == 0) {
      durations.learn_alone(numbers, {segment.alone_ns, part == 1 ? least : 0, most});
    }
    durations.learn(numbers, {total.expected_ns, least, most}, part);
  } else if (learns) {
    durations.miss(numbers);
  }
  account(segment, {.least_ns = segment.is_compared ? least : there, .there_ns = there}, now);
  total_ -= total;
  before_reached_ns_ = std::max(segment.unreached_ns, soonest_begin);
  reached_ns_ = now;
  // The end is seen late: most likely it came when it was expected. Work longer than kBudgetNs is
  // taken to have ended now: else the next item would be submitted sooner, and requests of other
  // sessions seemed to wait for that (decision 18).
  const uint64_t expected_end = std::max(segment.begin_ns, ended_ns_) + total.expected_ns;
  const bool dates_back = total.unknown == 0 && segment.is_plain && total.expected_ns <= kBudgetNs;
  ended_ns_ = dates_back ? std::min(std::max(expected_end, segment.unreached_ns), now) : now;
}

// `most_ns` counts from reached_ns_ only, since earlier segments have counted the time before. Work
// of unknown duration is taken to have taken the mean of its bounds if they exclude the default.
void StreamProgress::account(const Segment& segment, const Seen& seen, uint64_t now) {
  const WorkTotal& total = segment.total;
  const uint64_t begin = std::max(segment.begin_ns, before_reached_ns_);
  const uint64_t most = std::max(seen.least_ns, now > begin ? now - begin : 0);
  uint64_t took = std::clamp(total.expected_ns, seen.least_ns, most);
  if (total.unknown != 0 && took != total.expected_ns) {
    took = seen.least_ns + (most - seen.least_ns) / 2;
  }
  const uint64_t new_from = std::max(segment.begin_ns, reached_ns_);
  const double sms = static_cast<double>(segment.sm_ns) /
                     static_cast<double>(std::max(total.expected_ns, uint64_t{1}));
  tools_.usage.ran(tools_.device,
                   {.ns = took,
                    .least_ns = seen.least_ns,
                    .most_ns = std::max(seen.least_ns, now > new_from ? now - new_from : 0),
                    .there_ns = std::clamp(total.expected_ns, std::min(seen.there_ns, most), most),
                    .alone_ns = segment.is_compared ? segment.alone_ns : 0,
                    .sms = sms,
                    .of_sms = tools_.device_sms});
  // Some of it may have been time in which the work waited for SMs.
  const bool may_have_waited =
      tools_.share.is_weighted() || tools_.share.satisfied_since(begin) != 1;
  const bool waited = may_have_waited && total.unknown == 0;
  if (waited) took = std::min({total.expected_ns, segment.alone_ns, most});
  tools_.share.charge(took, static_cast<uint64_t>(sms), now);
}

// ---- When it ends -------------------------------------------------------------------------------

uint64_t StreamProgress::ran_ns(uint64_t now) const {
  return !is_empty() && now > begun_ns() ? now - begun_ns() : 0;
}

// Work that is late is taken to be twice as late in the end: no more is known of it, and a kernel
// that takes one part in a hundred longer than usual would seem to take twice as long.
uint64_t StreamProgress::remaining_ns(uint64_t now) const {
  const uint64_t ran = ran_ns(now);
  const uint64_t expected = first_expected_ns();
  const uint64_t rest = total_.expected_ns - expected;
  return rest + (ran < expected ? expected - ran : ran - expected);
}

}  // namespace openmps::worker
