// SPDX-License-Identifier: Apache-2.0
// How much of a stream's work the driver has. See submit_window.h.
#include "worker/streams/submit_window.h"

#include <limits>

#include "base/clock.h"

namespace openmps::worker {
namespace {

// Of a duration: below it a launch costs more than the kernel.
constexpr uint64_t kShortestNs = 500;
// What is seen within such a factor, or within this time at most, is known.
constexpr uint64_t kSure = 4;
constexpr uint64_t kSureNs = 100'000;
// Between two looks at a window that is full: from what a look costs, with some work between, to
// what nobody minds.
constexpr uint64_t kShortestLookNs = 10'000;
constexpr uint64_t kLongestLookNs = 1'000'000;
// What has run for long is looked at less often: its end is seen late by so small a part of it.
// While it is not longer than such work was, after a greater part or half of what is left.
constexpr uint64_t kLookShare = 32;
constexpr uint64_t kExpectedLookShare = 8;
// While there are not SMs for all, work is taken to have got longer by one part of so many at most:
// what is seen of it may be the time that it has waited for some.
constexpr uint64_t kCrowdedShare = 4;
// Between two looks whether a wait that is refused is over: a sixteenth of the time that it has
// been, from a few wake-ups of a thread to a look each millisecond (decision 17).
constexpr uint64_t kWaitPauseShare = 16;
constexpr uint64_t kShortestWaitPauseNs = 20'000;
// For each wait of the session that is refused, at last: some ten times as long as a look takes.
constexpr uint64_t kRefusedLookNs = 50'000;
// How long a stream keeps the right to queue work while others want it: some windows full.
constexpr uint64_t kTurnNs = 5'000'000;

}  // namespace

// ---- Durations ----------------------------------------------------------------------------------

uint32_t Durations::add() {
  if (ns_.size() < kMost) {
    tries_.push_back(0);
    alone_ns_.push_back(0);
    been_alone_.push_back(false);
    ns_.push_back(0);
    return static_cast<uint32_t>(ns_.size() - 1);
  }
  const uint32_t number = next_++;
  if (next_ == kMost) next_ = kFirstGiven;
  return number;
}

void Durations::learn(std::span<const uint32_t> numbers, const Observed& seen, double part) {
  if (!adapt(ns_, numbers, seen, kUnknownNs)) return miss(numbers);
  for (const uint32_t number : numbers) {
    if (part == 1) been_alone_[number] = true;
    if (alone_ns_[number] != 0) continue;
    alone_ns_[number] = static_cast<uint32_t>(part * ns_[number]);
  }
}

void Durations::learn_alone(std::span<const uint32_t> numbers, const Observed& seen) {
  adapt(alone_ns_, numbers, seen, 0);
}

bool Durations::adapt(std::vector<uint32_t>& known, std::span<const uint32_t> numbers,
                      const Observed& seen, uint64_t unknown_ns) {
  const auto& [expected_ns, least_ns, most_ns] = seen;
  const uint64_t took = std::clamp(expected_ns, least_ns, std::max(least_ns, most_ns));
  if (took == expected_ns && most_ns > kSureNs && most_ns > kSure * least_ns) return false;
  const double factor = static_cast<double>(took) / static_cast<double>(expected_ns);
  for (const uint32_t number : numbers) {
    const uint64_t before = known[number] == 0 ? unknown_ns : known[number];
    if (before == 0) continue;
    known[number] =
        static_cast<uint32_t>(std::clamp(factor * static_cast<double>(before), double{kShortestNs},
                                         double{std::numeric_limits<uint32_t>::max()}));
  }
  return true;
}

void Durations::miss(std::span<const uint32_t> numbers) {
  for (const uint32_t number : numbers) {
    if (ns_[number] == 0 && ++tries_[number] >= kTries) ns_[number] = kUnknownNs;
  }
}

// ---- The window ---------------------------------------------------------------------------------

StreamBudget::StreamBudget(SessionCore& core, Durations& durations, FairShare& share,
                           QueueCredits* connections, WaitCredits& open_waits, CUstream stream,
                           const Placement& place, std::atomic<uint64_t>* ends_ns)
    : core_(core),
      durations_(durations),
      share_(share),
      stream_(stream),
      place_(place),
      connections_(connections),
      open_wait_rights_(open_waits),
      ends_ns_(ends_ns) {}

StreamBudget::~StreamBudget() {
  reach_all(now_ns());
  forget_refusal();
  disconnect();
  stop_wanting();
  wait_no_more();
  show_share();
  for (const CUevent event : spare_) core_.driver.cuEventDestroy_v2(event);
}

void StreamBudget::add(const Cost& cost) {
  used_ = true;
  const bool known = durations_.is_known(cost);
  Segment& segment = segment_;
  if (segment.items == 0) segment.begin_ns = now_ns();
  const uint64_t ns = durations_.of(cost);
  segment.expected_ns += ns;
  segment.alone_ns += durations_.alone(cost);
  segment.is_compared = segment.is_compared && durations_.has_been_alone(cost);
  segment.sm_ns += ns * cost.sms;
  const uint64_t from_ns = std::max(until_ns_, segment.begin_ns);
  until_ns_ = from_ns + ns;
  if (cost.sms != 0) core_.usage.will_run(from_ns, until_ns_, known);
  expected_ns_ += ns;
  ++segment.items;
  ++items_;
  if (!known) {
    ++segment.unknown;
    ++unknown_;
  }
  if (cost.learnt != 0) name(segment, cost.learnt);
  wait_no_more();
  if (known && cost.sms != 0) share_.note_length(ns);
  if (!busy_ && cost.sms != 0) {
    busy_ = true;
    share_.begin_work(cost.sms);
  }
  show_end();
}

void StreamBudget::add_wait(bool is_for_cold_stream) {
  used_ = true;
  forget_refusal();
  if (segment_.items == 0) segment_.begin_ns = now_ns();
  segment_.is_plain = false;
  ++segment_.items;
  ++segment_.waits;
  ++items_;
  ++open_waits_;
  if (!is_for_cold_stream) {
    ++segment_.outer_waits;
    ++outer_waits_;
  }
  show_end();
}

void StreamBudget::add_fence(const std::atomic<uint64_t>& word, uint64_t value) {
  if (segment_.items == 0 || !has_room()) return;
  segment_.word = &word;
  segment_.value = value;
  close();
}

bool StreamBudget::has_room() {
  if (segments_ == nullptr) {
    segments_ = std::make_unique<std::array<Segment, kSegments>>();
    spare_.reserve(kSegments + 1);
  }
  return count_ < kSegments;
}

// A context that can't become current is lost: nothing runs in it any more.
void StreamBudget::mark_now() {
  if (connected_ && connections_->are_wanted() && now_ns() - connected_ns_ > kTurnNs) {
    yields_ = true;
  }
  if (core_.use(place_).ok()) mark();
}

// Without room or events the segment stays open, and is marked another time.
void StreamBudget::mark() {
  if (segment_.items == 0 || !has_room()) return;
  CUevent event = nullptr;
  if (!spare_.empty()) {
    event = spare_.back();
    spare_.pop_back();
  } else if (core_.driver.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) {
    return;
  }
  if (core_.driver.cuEventRecord(event, stream_) != CUDA_SUCCESS) {
    spare_.push_back(event);
    return;
  }
  segment_.event = event;
  close();
}

void StreamBudget::close() {
  segment_.closed_ns = now_ns();
  at(count_++) = segment_;
  segment_ = Segment();
}

bool StreamBudget::is_reached(const Segment& segment) const {
  if (segment.event == nullptr) {
    return segment.word->load(std::memory_order_acquire) >= segment.value;
  }
  return core_.driver.cuEventQuery(segment.event) != CUDA_ERROR_NOT_READY;
}

// What becomes of a segment when one that follows at once is reached in the same look.
void StreamBudget::append(Segment& to, const Segment& next) {
  to.closed_ns = next.closed_ns;
  to.expected_ns += next.expected_ns;
  to.alone_ns += next.alone_ns;
  to.items += next.items;
  to.unknown += next.unknown;
  to.waits += next.waits;
  to.outer_waits += next.outer_waits;
  to.sm_ns += next.sm_ns;
  to.is_plain = to.is_plain && next.is_plain;
  to.is_compared = to.is_compared && next.is_compared;
  for (size_t i = 0; i < next.learnt; ++i) name(to, next.numbers[i]);
}

void StreamBudget::name(Segment& segment, uint32_t number) {
  const auto end = segment.numbers.begin() + segment.learnt;
  if (std::find(segment.numbers.begin(), end, number) != end) return;
  if (segment.learnt == kMostLearnt) {
    segment.is_plain = false;
  } else {
    segment.numbers[segment.learnt++] = number;
  }
}

// It began when it was submitted, or when what came before it ended. While it was being submitted
// the GPU may have had nothing to do.
void StreamBudget::reach(const Segment& segment, uint64_t now, bool learns) {
  const uint64_t latest_begin = std::max(segment.closed_ns, reached_ns_);
  const uint64_t soonest_begin = std::max(segment.begin_ns, before_reached_ns_);
  const std::span numbers(segment.numbers.data(), segment.learnt);
  const bool seen = segment.is_plain && segment.unreached_ns > latest_begin;
  const uint64_t there = seen ? segment.unreached_ns - latest_begin : 0;
  uint64_t least = there;
  // Some of the time it may have waited for SMs.
  const double part = share_.part_since(soonest_begin);
  if (part != 1 && segment.unknown == 0) {
    least = std::min(least, segment.expected_ns + segment.expected_ns / kCrowdedShare);
  }
  if (learns && segment.is_plain) {
    const uint64_t most = now - soonest_begin;
    if (segment.unknown == 0) {
      durations_.learn_alone(numbers, {segment.alone_ns, part == 1 ? least : 0, most});
    }
    durations_.learn(numbers, {segment.expected_ns, least, most}, part);
  } else if (learns) {
    durations_.miss(numbers);
  }
  account(segment, {.least_ns = segment.is_compared ? least : there, .there_ns = there}, now);
  expected_ns_ -= segment.expected_ns;
  items_ -= segment.items;
  unknown_ -= segment.unknown;
  open_waits_ -= segment.waits;
  outer_waits_ -= segment.outer_waits;
  before_reached_ns_ = std::max(segment.unreached_ns, soonest_begin);
  reached_ns_ = now;
  // That is seen late: most likely it ended when it was expected to. Behind longer work the next
  // would come sooner so, and neighbours' requests seemed to wait for that (decision 18).
  const uint64_t expected_end = std::max(segment.begin_ns, ended_ns_) + segment.expected_ns;
  const bool dates_back =
      segment.unknown == 0 && segment.is_plain && segment.expected_ns <= kWindowNs;
  ended_ns_ = dates_back ? std::min(std::max(expected_end, segment.unreached_ns), now) : now;
}

// What several marks together say at most is when the stream had something to do: what came before
// is counted up to reached_ns_. What was expected of work that nobody knew is no guess.
void StreamBudget::account(const Segment& segment, const Seen& seen, uint64_t now) {
  const uint64_t least_ns = seen.least_ns;
  const uint64_t begin = std::max(segment.begin_ns, before_reached_ns_);
  const uint64_t most = std::max(least_ns, now > begin ? now - begin : 0);
  uint64_t took = std::clamp(segment.expected_ns, least_ns, most);
  if (segment.unknown != 0 && took != segment.expected_ns) took = least_ns + (most - least_ns) / 2;
  const uint64_t new_from = std::max(segment.begin_ns, reached_ns_);
  const double sms = static_cast<double>(segment.sm_ns) /
                     static_cast<double>(std::max(segment.expected_ns, uint64_t{1}));
  core_.usage.ran(place_.device,
                  {.ns = took,
                   .least_ns = least_ns,
                   .most_ns = std::max(least_ns, now > new_from ? now - new_from : 0),
                   .there_ns = std::clamp(segment.expected_ns, std::min(seen.there_ns, most), most),
                   .alone_ns = segment.is_compared ? segment.alone_ns : 0,
                   .sms = sms,
                   .of_sms = core_.devices.at(place_.device).sms});
  // Some of it may have been time in which it waited for SMs.
  const bool waited = share_.part_since(begin) != 1 && segment.unknown == 0;
  if (waited) took = std::min({segment.expected_ns, segment.alone_ns, most});
  share_.use(took, static_cast<uint64_t>(sms), now);
}

// ---- Others' turn -------------------------------------------------------------------------------

// Copies are in nobody's way.
bool StreamBudget::comes_later(const Cost& cost) {
  if (cost.sms == 0) return false;
  const uint64_t now = now_ns();
  later_ = share_.must_wait(now);
  if (later_) next_look_ns_ = std::max(share_.look_ns(), now + kShortestLookNs);
  return later_;
}

void StreamBudget::wait_no_more() {
  if (later_) [[unlikely]] {
    later_ = false;
    share_.stop_waiting();
  }
}

void StreamBudget::show_share() {
  if (!busy_ || items_ != open_waits_) return;
  busy_ = false;
  share_.end_work();
}

// ---- The right to queue -------------------------------------------------------------------------

// Who has it keeps it while it works, and for a while after: it is taken once, not for each item.
bool StreamBudget::connect(const Cost& cost) {
  if (connections_ == nullptr) return true;
  const bool known = unknown_ == 0 && durations_.is_known(cost);
  const bool soon = known && expected_ns_ + durations_.of(cost) <= kLongNs;
  if (!connected_ && take_right(soon)) return true;
  const uint64_t now = now_ns();
  if (wants_ && is_too_soon(now)) return false;
  look(now);
  if (items_ == 0 || (want_right(soon) && !yields_)) return true;
  look_again_behind(remaining_ns(now), now);
  return false;
}

bool StreamBudget::take_right(bool soon) {
  if (wants_ && wants_soon_ != soon) stop_wanting();
  if (!connections_->take(wants_, soon)) return false;
  connected_ = true;
  connected_ns_ = now_ns();
  stop_wanting();
  return true;
}

bool StreamBudget::want_right(bool soon) {
  if (connected_ || take_right(soon)) return true;
  if (!wants_) {
    wants_ = true;
    wants_soon_ = soon;
    connections_->begin_to_wait(soon);
  }
  return false;
}

// Nobody knows when a wait is over.
bool StreamBudget::begin_wait() {
  if (!waits_ && !open_wait_rights_.take(*connections_)) return false;
  waits_ = true;
  if (want_right(false)) return true;
  end_wait();
  return false;
}

void StreamBudget::end_wait() {
  if (!waits_) return;
  waits_ = false;
  open_wait_rights_.give(*connections_);
}

// All waits of a session that are refused together ask no more often than some.
uint64_t StreamBudget::wait_pause_ns(uint64_t now) const {
  const uint64_t longest = std::max(kLongestLookNs, open_wait_rights_.refused() * kRefusedLookNs);
  return std::clamp((now - refused_ns_) / kWaitPauseShare, kShortestWaitPauseNs, longest);
}

void StreamBudget::disconnect() {
  end_wait();
  if (!connected_) return;
  connected_ = yields_ = false;
  connections_->give();
}

void StreamBudget::stop_wanting() {
  if (!wants_) return;
  wants_ = false;
  connections_->end_waiting(wants_soon_);
}

// A full one is looked at for what is held back, too: once is enough.
uint64_t StreamBudget::look_after(uint64_t now) {
  if (unknown_ == 0 && waited_for() == 0 && is_too_soon(now)) return next_look_ns_ - now;
  look(now);
  if (items_ == 0 && !used_) disconnect();
  used_ = false;
  return longest_pause_ns(now);
}

// ---- Looks --------------------------------------------------------------------------------------

void StreamBudget::look(uint64_t now) {
  mark_now();
  sweep(now);
  if (items_ != 0 && share_.is_contested()) share_.expect_end(now + remaining_ns(now));
}

// What is seen reached at once took so long together at most: one by one each would seem to have
// taken all of the time since the last look.
void StreamBudget::sweep(uint64_t now) {
  Segment reached;
  while (count_ != 0) {
    Segment& first = at(0);
    if (!is_reached(first)) {
      first.unreached_ns = now;
      break;
    }
    if (first.event != nullptr) spare_.push_back(first.event);
    if (reached.items == 0) {
      reached = first;
    } else {
      append(reached, first);
    }
    first_ = (first_ + 1) % kSegments;
    --count_;
  }
  if (reached.items != 0) reach(reached, now, true);
  if (open_waits_ == 0) end_wait();
  if (items_ == 0) {
    full_ = false;
    stop_wanting();
    if (connected_ && (yields_ || connections_->are_wanted())) disconnect();
  }
  // Until the next look others would wait for it in vain.
  if (connected_ && is_lone() && remaining_ns(now) > kLongNs) disconnect();
  show_end();
}

void StreamBudget::end(uint64_t now) {
  reach_all(now);
  disconnect();
  stop_wanting();
  full_ = false;
  wait_no_more();
  show_end();
}

void StreamBudget::reach_all(uint64_t now) {
  for (; count_ != 0; --count_) {
    const Segment& first = at(0);
    if (first.event != nullptr) spare_.push_back(first.event);
    reach(first, now, false);
    first_ = (first_ + 1) % kSegments;
  }
  if (segment_.items == 0) return;
  segment_.closed_ns = now;
  reach(segment_, now, false);
  segment_ = Segment();
}

// Where the gate looks for how long a quiet moment is away.
void StreamBudget::show_end() {
  const uint64_t end = items_ == 0 ? 0 : begun_ns() + expected_ns_;
  ends_ns_->store(end, std::memory_order_relaxed);
  share_.expect_end(end);
  show_share();
}

uint64_t StreamBudget::begun_ns() { return std::max(first_segment().begin_ns, ended_ns_); }

uint64_t StreamBudget::ran_ns(uint64_t now) {
  return items_ != 0 && now > begun_ns() ? now - begun_ns() : 0;
}

// What is late is taken to be twice as late at last: no more is known of it, and a kernel that
// takes one part in a hundred longer than usual would seem to take twice as long.
uint64_t StreamBudget::remaining_ns(uint64_t now) {
  const Segment& first = first_segment();
  const uint64_t ran = ran_ns(now);
  const uint64_t expected = first.expected_ns;
  const uint64_t rest = expected_ns_ - expected;
  return rest + (ran < expected ? expected - ran : ran - expected);
}

// Once full it is full until half of it has gone: its thread comes each millisecond, not for each
// item. An item that is longer than the window goes when half of the window is left before it.
bool StreamBudget::look_whether_full(const Cost& cost) {
  const uint64_t now = now_ns();
  if (full_ && is_too_soon(now)) return true;
  look(now);
  const uint64_t remaining = items_ == 0 ? 0 : remaining_ns(now);
  const uint64_t window = share_.window_ns();
  const uint64_t half = window / 2;
  const bool is_long = remaining > half && (full_ || remaining + durations_.of(cost) > window);
  full_ = is_long || unknown_ >= kWindowUnknown || items_ >= kWindowItems / (full_ ? 2 : 1);
  if (is_long) stop_wanting();  // it could do nothing with a right
  look_again_behind(remaining > half ? remaining - half : 0, now);
  return full_;
}

bool StreamBudget::look_whether_waiting() {
  const uint64_t now = now_ns();
  look(now);
  look_again_behind(kLongestLookNs, now);
  return outer_waits_ != 0;
}

void StreamBudget::look_again_behind(uint64_t rest_ns, uint64_t now) {
  next_look_ns_ = now + std::clamp(rest_ns, kShortestLookNs, longest_pause_ns(now));
}

// Nobody knows when a wait is over, and others may need the right to it.
uint64_t StreamBudget::longest_pause_ns(uint64_t now) {
  if (items_ == 0 || open_waits_ != 0) return kLongestLookNs;
  const uint64_t ran = ran_ns(now);
  const uint64_t expected = first_segment().expected_ns;
  const bool as_expected = unknown_ == 0 && ran < expected;
  const uint64_t known = as_expected ? std::min((expected - ran) / 2, ran / kExpectedLookShare) : 0;
  return std::max({kLongestLookNs, ran / kLookShare, known});
}

}  // namespace openmps::worker
