// SPDX-License-Identifier: Apache-2.0
// The streams of a session. See stream.h.
#include "worker/streams/stream.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "worker/device/driver_check.h"

namespace openmps::worker {

using wire::StreamKind;

namespace {

// The pause between two looks at work of unknown duration: a quarter of the time that it has taken
// so far, a few small kernels at least.
constexpr uint64_t kLearnShare = 4;
constexpr uint64_t kShortestLearnNs = 10'000;
// Before the first look at a stream whose credit others may need: no program notices that.
constexpr uint64_t kConnectedLookNs = 1'000'000;
// While another session waits for the work to end, for each session that competes: the fewer
// compete, the likelier the GPU is idle meanwhile.
constexpr uint64_t kWaitedForLookNs = 25'000;
// Between two looks for free slots: whoever makes some or gives some back tells nobody.
constexpr uint64_t kSlotLookNs = 5'000'000;
// Between two looks for a stream without work, where there was none: each look asks the driver
// about all streams that may be busy.
constexpr uint64_t kRestLookNs = 1'000'000;

// The set of SMs that a stream runs on: the session's, or the green context's; null: all.
const GreenContext* partition_of(const SmPart& part, ClientGreen* green) {
  if (part != nullptr) return part.get();
  return green != nullptr && green->is_there() ? green : nullptr;
}

// The green context of the client's that the stream is in now.
ClientGreen* in_green(const Stream& stream) {
  return stream.place.partition == stream.green ? stream.green : nullptr;
}

}  // namespace

Status Streams::handle(const wire::StreamCreate& command, ClientGreen* green) {
  if (command.kind > StreamKind::kNonBlocking) {
    return violation("a stream of kind " + std::to_string(static_cast<uint32_t>(command.kind)));
  }
  if (green != nullptr && green->device != command.device) {
    return violation("a stream whose green context is of device " + std::to_string(green->device));
  }
  sweep_retired();
  if (streams_.live() + destroyed_.size() + retired_.size() >= wire::kMaxStreams) {
    return violation("more than " + std::to_string(wire::kMaxStreams) + " streams");
  }
  if (command.slot >= wire::kFenceSlots) {
    return violation("a stream with fence slot " + std::to_string(command.slot));
  }
  const uint64_t changes = core_.parts.changes();
  SmPart part;
  OPENMPS_RETURN_IF_ERROR(find_part(command.device, command.sms, green, &part));
  auto& context = contexts_[command.context];
  if (context == nullptr) {
    context = std::make_unique<ClientContext>();
    context->device = command.device;
  }
  auto stream = std::make_unique<Stream>();
  stream->id = command.stream;
  stream->kind = static_cast<StreamKind>(command.kind);
  stream->place = {command.device, Lane::kMain, partition_of(part, green)};
  stream->green = green;
  stream->part = std::move(part);
  stream->fence_slot = command.slot;
  core_.journal.note_fence_slot(command.slot);
  stream->sms = command.sms;
  stream->member = core_.parts.member(command.device, command.sms);
  stream->seen_changes = changes;
  stream->lease = core_.parts.lease(command.device, command.sms);
  // What the slot's former stream has lost is told by its own points alone.
  if (!core_.journal.is_adopting()) {
    core_.view.fence(command.slot).lost.store(0, std::memory_order_relaxed);
  }
  stream->priority = command.priority;
  stream->context = context.get();
  const bool legacy = stream->kind == StreamKind::kLegacy;
  if (context->device != command.device || (legacy && context->legacy != nullptr)) {
    forget_context(context.get());
    return violation("a stream that its context " + std::to_string(command.context) +
                     " can't have");
  }
  if (legacy) context->legacy = stream.get();
  ++context->streams;
  if (green != nullptr) ++green->streams;
  return streams_.insert(command.stream, std::move(stream));
}

Status Streams::find_part(uint32_t device, uint32_t sms, ClientGreen* green, SmPart* part) {
  if (green == nullptr || !green->is_there()) return core_.parts.get(device, sms, part);
  return core_.parts.get_instead(device, green->of, part);
}

// In the placement's context, which is current.
CUresult Streams::create(const Placement& place, int32_t priority, CUstream* made) {
  if (const Status status = core_.use(place); !status.ok()) return status.code();
  if (place.partition == nullptr) {
    return core_.driver.cuStreamCreateWithPriority(made, CU_STREAM_NON_BLOCKING, priority);
  }
  return core_.driver.cuGreenCtxStreamCreate(made, place.partition->handle, CU_STREAM_NON_BLOCKING,
                                             priority);
}

StreamBudget* Streams::budget(Stream& stream) {
  if (stream.budget == nullptr && has_budgets_) {
    const uint32_t device = stream.place.device;
    std::atomic<uint64_t>* ends =
        stream.listed != nullptr ? &stream.listed->ends_ns : &stream.ends_ns;
    const ProgressTools tools{core_.driver,
                              core_.clock,
                              core_.usage,
                              durations,
                              share(device),
                              device,
                              core_.devices.at(device).sms};
    stream.budget = std::make_unique<StreamBudget>(
        tools, credits_ != nullptr ? &(*credits_)[device] : nullptr, wait_credits_[device],
        [this, &stream] { return core_.use(stream.place).ok(); }, stream.handle, ends);
  }
  return stream.budget.get();
}

void Streams::begin_ahead(Stream& stream) {
  const size_t has = started_[static_cast<size_t>(Lane::kMain)];
  if (stream.handle != nullptr || has >= SessionCore::kFew) return;
  const bool has_slot =
      stream.slots != nullptr ||
      core_.take_free_slots(stream.place, 1, SessionCore::Leaves::kQuarter, &stream.slots);
  if (has_slot && core_.use(stream.place).ok()) static_cast<void>(start(stream).ok());
}

void Streams::admit_slots(Stream& stream, Lane lane, Verdict& verdict) {
  const bool found = (has_slot(stream) || find_slot(stream, Lane::kMain, &verdict.admitted.slot)) &&
                     (lane == Lane::kMain || has_cold_slot(stream) ||
                      find_slot(stream, Lane::kCold, &verdict.admitted.cold_slot));
  if (!found) verdict.refuse(wire::HeldFor::kStreamSlot, core_.clock.now_ns() + kSlotLookNs);
}

// Streams that wait on the GPU are few, as many as have wait credits (decision 23): of the others
// one ends its work, and gives its slot back. Where streams wait without such credits their waits
// may be for this stream to end: then the driver decides whether it waits for a slot.
bool Streams::find_slot(const Stream& stream, Lane lane, StreamSlot* slot) {
  const Placement place = stream.place.in(lane);
  const size_t with_it = started_[static_cast<size_t>(lane)] + 1;
  const auto leaves =
      place.partition != nullptr ? SessionCore::Leaves::kNone : SessionCore::leaves(with_it);
  const auto take = [&] { return core_.take_free_slots(place, 1, leaves, slot); };
  if (take() || (rest_another(stream, lane) && take())) return true;
  if (holds_waits_ || !any_waits()) return false;
  *slot = core_.take_slots(place);
  return true;
}

// A stream without held work, if there is one.
bool Streams::rest_another(const Stream& asking, Lane lane) {
  const uint64_t now = core_.clock.now_ns();
  if (now < next_rest_look_ns_) return false;
  Stream* found = nullptr;
  for_each([&](Stream& stream) {
    const bool has_place = lane == Lane::kCold ? stream.cold != nullptr : stream.slots != nullptr;
    const bool is_there = stream.listed != nullptr && has_place && &stream != &asking &&
                          stream.place.device == asking.place.device &&
                          stream.place.partition == asking.place.partition;
    const bool is_better = found == nullptr || (found->held != 0 && stream.held == 0);
    if (is_there && is_better && finished(*stream.listed)) found = &stream;
  });
  if (found != nullptr && !has_lost_context_ && rest(*found).ok()) return true;
  next_rest_look_ns_ = now + kRestLookNs;
  return false;
}

// All work of the stream has ended, so nothing has to wait for it any more: the driver's stream
// goes. The stream gets another one with its next work.
Status Streams::rest(Stream& stream) {
  OPENMPS_RETURN_IF_ERROR(core_.use(stream.place));
  OPENMPS_RETURN_IF_ERROR(before_open_wait(stream));
  if (stream.join_work != stream.work) {  // the legacy stream
    OPENMPS_RETURN_IF_ERROR(record(stream, &stream.join));
    stream.join_work = stream.work;
  }
  if (std::exchange(stream.dirty, false)) std::erase(stream.context->dirty, &stream);
  if (std::exchange(stream.unmarked, false)) std::erase(unmarked_, &stream);
  if (stream.budget != nullptr) {
    stream.budget->end(core_.clock.now_ns());
    stream.budget->move(nullptr, &stream.ends_ns);
  }
  DriverStream rests = std::exchange(static_cast<DriverStream&>(stream), {});
  --stream.context->started;
  note_gone(rests);
  give_back(rests);
  return Status();
}

Status Streams::start(Stream& stream) {
  if (stream.handle != nullptr) return Status();
  if (!has_slot(stream) && !find_slot(stream, Lane::kMain, &stream.slots)) {
    stream.slots = core_.take_slots(stream.place);
  }
  stream.driver_priority = core_.driver_priority(stream.place.device, stream.priority);
  OPENMPS_RETURN_IF_ERROR(check(create(stream.place, stream.driver_priority, &stream.handle),
                                "the creation of a stream"));
  stream.listed =
      core_.gate.add(stream.handle, stream.place.device, &core_.gate_client, owner(stream));
  ++stream.context->started;
  ++started_[static_cast<size_t>(Lane::kMain)];
  if (budget(stream) != nullptr) stream.budget->move(stream.handle, &stream.listed->ends_ns);
  return Status();
}

// ---- Changes of the session's part --------------------------------------------------------------

Status Streams::follow_changes(Stream& stream) {
  stream.seen_changes = core_.parts.changes();
  const uint32_t device = stream.place.device;
  share(device).set_rank(core_.rank.load(std::memory_order_relaxed));
  share(device).set_weight(core_.weight.load(std::memory_order_relaxed));
  SmPart part;
  OPENMPS_RETURN_IF_ERROR(find_part(device, stream.sms, stream.green, &part));
  Placement place = stream.place;
  place.partition = partition_of(part, stream.green);
  stream.lease = core_.parts.lease(device, stream.sms);
  const int32_t priority = core_.driver_priority(device, stream.priority);
  const bool stays = part == stream.part && place.partition == stream.place.partition;
  if (stays && priority == stream.driver_priority) return Status();
  OPENMPS_RETURN_IF_ERROR(move(stream, place, priority));
  stream.place = place;
  stream.part = std::move(part);
  return Status();
}

// Work of the session's other streams needs SMs at the same time. Work in a green context of the
// program's own can't run elsewhere.
void Streams::tell_demand(Stream& stream, const Cost& cost, uint64_t ns) {
  const bool is_next = stream.budget != nullptr && !stream.budget->is_busy();
  const uint64_t streams = share(stream.place.device).busy_streams() + (is_next ? 1 : 0);
  const bool is_whole = cost.sms_needed == kWholeDevice || stream.green != nullptr;
  const uint64_t room = std::max<uint64_t>(streams, 1) * cost.sms_needed;
  const auto most = uint64_t{kWholeDevice} - 1;
  const bool is_guess = !durations.has_been_alone(cost);
  const uint64_t most_ns = is_guess ? Demand::kGuessNs : Demand::kShortNs;
  const Demand demand{
      .sms_needed = is_whole ? kWholeDevice : static_cast<uint32_t>(std::min(room, most)),
      .needs_all_sms = cost.needs_all_sms,
      .ns = ns,
      .is_guess = is_guess,
      .sm_ns = uint64_t{cost.sms_needed} * cost.kernels * std::min(ns, most_ns)};
  core_.parts.note(*stream.member, demand);
}

// The old stream goes when its work has ended, with the set of SMs that it runs on.
Status Streams::move(Stream& stream, const Placement& place, int32_t priority) {
  CUstream made = nullptr;
  StreamSlot slots = core_.take_slots(place);
  OPENMPS_RETURN_IF_ERROR(check(create(place, priority, &made), "a stream in another part"));
  const bool busy = !finished(*stream.listed);
  if (Status ordered = busy ? come_behind(stream, made) : Status(); !ordered.ok()) {
    core_.driver.cuStreamDestroy_v2(made);
    return ordered;
  }
  Retired old{{stream.handle, stream.listed, nullptr, std::exchange(stream.listed_cold, nullptr),
               std::exchange(stream.slots, std::move(slots))},
              std::exchange(stream.chains, nullptr),
              in_green(stream),
              stream.part,
              false,
              false,
              {},
              nullptr};
  stream.listed = core_.gate.add(made, place.device, &core_.gate_client, owner(stream));
  stream.handle = made;
  stream.driver_priority = priority;
  if (stream.cold != nullptr) stream.cold->is_current = false;
  if (stream.budget != nullptr) stream.budget->move(made, &stream.listed->ends_ns);
  if (busy) {
    const bool waits = old.stream.listed->waits.load(std::memory_order_relaxed);
    stream.listed->waits.store(waits, std::memory_order_relaxed);
    stream.listed->set_busy();
    retired_.push_back(std::move(old));
  } else {
    give_back(old.stream);
  }
  sweep_retired();
  return Status();
}

// Later work of `next` waits for the stream's work.
Status Streams::come_behind(Stream& stream, CUstream next) {
  std::unique_ptr<DriverEvent> end;  // whatever waits for it goes on waiting when it is destroyed
  OPENMPS_RETURN_IF_ERROR(record(stream, &end));
  return check(core_.driver.cuStreamWaitEvent(next, end->handle, 0), "cuStreamWaitEvent");
}

bool Streams::any_waits() {
  bool any = false;
  for_each_listed([&any](const ContextGate::Stream& listed) {
    any |= listed.waits.load(std::memory_order_relaxed);
  });
  return any;
}

std::vector<std::shared_ptr<Chains>> Streams::take_chains() {
  std::vector<std::shared_ptr<Chains>> taken;
  const auto take = [&taken](std::shared_ptr<Chains>& chains) {
    if (chains != nullptr) taken.push_back(std::move(chains));
  };
  for_each([&take](Stream& stream) { take(stream.chains); });
  for (Retired& retired : retired_) take(retired.chains);
  return taken;
}

// Also called for a stream in the list, when it has first work of unknown duration.
void Streams::begin_to_look_at(Stream& stream) {
  const uint64_t now = core_.clock.now_ns();
  if (looked_at_.empty()) next_look_ns_ = ~0ull;
  next_look_ns_ = std::min(next_look_ns_, now + kConnectedLookNs);
  if (!std::exchange(stream.is_looked_at, true)) looked_at_.push_back(&stream);
  if (!stream.budget->is_learning()) return;
  learns_ = true;
  learning_since_ns_ = now;
  next_look_ns_ = std::min(next_look_ns_, now + kShortestLearnNs);
}

// With such pauses a duration is learnt to within a quarter, and the looks cost little.
void Streams::look_at_streams(uint64_t now) {
  if (looked_at_.empty() || now < next_look_ns()) return;
  last_look_ns_ = now;
  const uint64_t learn_ns = std::max((now - learning_since_ns_) / kLearnShare, kShortestLearnNs);
  uint64_t shortest_ns = ~0ull;
  learns_ = false;
  std::erase_if(looked_at_, [&](Stream* stream) {
    StreamBudget& budget = *stream->budget;
    const uint64_t pause_ns = budget.look_and_release(now);
    learns_ = learns_ || budget.is_learning();
    if (budget.is_learning()) shortest_ns = std::min(shortest_ns, learn_ns);
    if (budget.has_rivals()) shortest_ns = std::min(shortest_ns, pause_ns);
    stream->is_looked_at = budget.needs_looks();
    return !stream->is_looked_at;
  });
  if (!looked_at_.empty()) next_look_ns_ = now + shortest_ns;
}

uint64_t Streams::next_look_ns() const {
  uint64_t next = next_look_ns_;
  for (const Stream* stream : looked_at_) {
    const uint64_t competing = stream->budget->sessions_waited_for();
    if (competing != 0) next = std::min(next, last_look_ns_ + competing * kWaitedForLookNs);
  }
  return next;
}

FairShare& Streams::share(uint32_t device) {
  if (shares_[device] == nullptr) {
    SessionGroup* const group = core_.group();
    shares_[device] = std::make_unique<FairShare>(
        device_shares_[device], core_.rank.load(), core_.bell,
        group != nullptr ? &group->account(device) : nullptr,
        group != nullptr ? static_cast<const void*>(group) : core_.parts.owner(),
        core_.parts.owner());
    shares_[device]->set_weight(core_.weight.load());
  }
  return *shares_[device];
}

void Streams::end_budgets(uint64_t now) {
  for_each([now](Stream& stream) {
    if (stream.budget != nullptr) stream.budget->end(now);
    stream.is_looked_at = false;
  });
  looked_at_.clear();
  learns_ = false;
}

uint64_t Streams::longest_work_ns(uint64_t now) {
  uint64_t longest = 0;
  for_each([&](Stream& stream) {
    if (stream.budget == nullptr || stream.budget->has_seen_all_end()) return;
    stream.budget->look(now);
    longest = std::max(longest, stream.budget->worked_ns(now));
  });
  return longest;
}

// Record `event`, made at its first use, at the end of the stream's work so far. An event belongs
// to the context that is current when it is made, which may be the cold one here.
Status Streams::record(Stream& stream, std::unique_ptr<DriverEvent>* event) {
  if (*event == nullptr) {
    OPENMPS_RETURN_IF_ERROR(core_.use(stream.place));
    OPENMPS_RETURN_IF_ERROR(DriverEvent::make(core_.driver, stream.place.device, event));
  }
  return check(core_.driver.cuEventRecord((*event)->handle, stream.handle), "cuEventRecord");
}

// Later work of the stream, also in its cold stream, waits for the event. A wait that is known to
// end soon counts as work.
Status Streams::wait(Stream& stream, const DriverEvent& event, const Stream* other,
                     const char* what) {
  OPENMPS_RETURN_IF_ERROR(before_open_wait(stream));
  const bool is_for_cold = stream.cold != nullptr && &event == stream.cold->end.get();
  if (stream.cold != nullptr) stream.cold->is_current = false;
  stream.tail.is_open = true;
  note(stream, [&](StreamBudget& budget) {
    if (other != nullptr && ends_soon(*other)) {
      budget.add_short_wait();
    } else {
      budget.add_wait(is_for_cold);
    }
  });
  return check(core_.driver.cuStreamWaitEvent(stream.handle, event.handle, 0), what);
}

// ---- Cold streams -------------------------------------------------------------------------------

// Each event belongs to the context of the stream that records it.
Status Streams::start_cold_stream(Stream& stream) {
  auto cold = std::make_unique<ColdStream>();
  const Placement place = stream.place.in(Lane::kCold);
  OPENMPS_RETURN_IF_ERROR(DriverEvent::make(core_.driver, place.device, &cold->hand_over));
  OPENMPS_RETURN_IF_ERROR(core_.use(place));
  OPENMPS_RETURN_IF_ERROR(DriverEvent::make(core_.driver, place.device, &cold->end));
  if (!has_cold_slot(stream) && !find_slot(stream, Lane::kCold, &stream.cold_slot)) {
    stream.cold_slot = core_.take_slots(place);
  }
  cold->slots = std::move(stream.cold_slot);
  const int32_t priority = core_.driver_priority(place.device, stream.priority);
  OPENMPS_RETURN_IF_ERROR(
      check(create(place, priority, &cold->handle), "a stream of the cold lane"));
  cold->listed =
      core_.cold_gate->add(cold->handle, place.device, &core_.cold_gate_client, owner(stream));
  stream.cold = std::move(cold);
  ++started_[static_cast<size_t>(Lane::kCold)];
  return Status();
}

Status Streams::enter_cold_stream(Stream& stream) {
  OPENMPS_RETURN_IF_ERROR(enter(stream, Entry::kColdWork));
  if (stream.cold == nullptr) OPENMPS_RETURN_IF_ERROR(start_cold_stream(stream));
  ColdStream& cold = *stream.cold;
  OPENMPS_RETURN_IF_ERROR(core_.use(stream.place.in(Lane::kCold)));
  core_.cold_gate->enter(core_.cold_gate_client, stream.place.device);
  cold.listed->set_busy();
  if (stream.listed->waits.load(std::memory_order_relaxed)) {
    cold.listed->waits.store(true, std::memory_order_relaxed);  // for the stream
  }
  if (cold.is_current) return Status();
  OPENMPS_RETURN_IF_ERROR(record(stream, &cold.hand_over));
  return check(core_.driver.cuStreamWaitEvent(cold.handle, cold.hand_over->handle, 0),
               "cuStreamWaitEvent of the cold lane");
}

Status Streams::leave_cold_stream(Stream& stream) {
  ColdStream& cold = *stream.cold;
  OPENMPS_RETURN_IF_ERROR(check(core_.driver.cuEventRecord(cold.end->handle, cold.handle),
                                "cuEventRecord of the cold lane"));
  OPENMPS_RETURN_IF_ERROR(wait(stream, *cold.end, nullptr, "cuStreamWaitEvent on the cold lane"));
  cold.is_current = true;
  return Status();
}

void Streams::note_cold_graph(Stream& stream) {
  if (stream.listed_cold == nullptr) {
    stream.listed_cold =
        core_.cold_gate->add(stream.handle, stream.place.device, nullptr, owner(stream));
  }
  stream.listed_cold->set_busy();
}

Status Streams::enter(Stream& stream, Entry entry) {
  OPENMPS_RETURN_IF_ERROR(core_.use(stream.place));
  OPENMPS_RETURN_IF_ERROR(start(stream));
  core_.gate.enter(core_.gate_client, stream.place.device);
  const bool works = entry == Entry::kWork || entry == Entry::kColdWork;
  if (works && stream.seen_changes != core_.parts.changes()) [[unlikely]] {
    OPENMPS_RETURN_IF_ERROR(follow_changes(stream));
  }
  if (works && stream.lease != nullptr) [[unlikely]]
    core_.parts.use(*stream.lease, core_.rank.load(std::memory_order_relaxed));
  if (!stream.listed->busy.load(std::memory_order_relaxed)) stream.tail = {};
  stream.listed->set_busy();
  if (works) stream.tail.is_open = true;
  if (stream.budget != nullptr) stream.budget->note_submitting();

  if (entry == Entry::kWork && stream.cold != nullptr) stream.cold->is_current = false;
  ClientContext& context = *stream.context;
  if (stream.kind == StreamKind::kLegacy) {
    OPENMPS_RETURN_IF_ERROR(legacy_waits(stream));
    // A record that has waited for others, or comes behind a fence that has, is itself waited for:
    // it is a barrier, as in CUDA.
    if (works || (entry == Entry::kRecord && stream.joined)) {
      ++stream.work;
      stream.joined = false;
    }
  }
  if (entry == Entry::kFence) return Status();
  if (works && !stream.unmarked) {
    stream.unmarked = true;
    unmarked_.push_back(&stream);
  }
  if (stream.order_seen != context.order) OPENMPS_RETURN_IF_ERROR(wait_for_order(stream));
  if (stream.kind != StreamKind::kBlocking) return Status();
  if (owes_legacy(stream)) OPENMPS_RETURN_IF_ERROR(wait_for_legacy(stream));
  if (works && !stream.dirty) {
    stream.dirty = true;
    context.dirty.push_back(&stream);
  }
  return Status();
}

Status Streams::legacy_waits(Stream& legacy) {
  std::vector<Stream*>& dirty = legacy.context->dirty;
  while (!dirty.empty()) {
    Stream& other = *dirty.back();
    OPENMPS_RETURN_IF_ERROR(record(other, &other.join));
    OPENMPS_RETURN_IF_ERROR(
        wait(legacy, *other.join, &other, "cuStreamWaitEvent of the legacy stream"));
    other.dirty = false;
    dirty.pop_back();
    legacy.joined = true;
  }
  std::vector<std::unique_ptr<DriverEvent>>& parted = legacy.context->parted;
  while (!parted.empty()) {
    OPENMPS_RETURN_IF_ERROR(
        wait(legacy, *parted.back(), nullptr, "cuStreamWaitEvent of the legacy stream"));
    parted.pop_back();
    legacy.joined = true;
  }
  return Status();
}

Status Streams::wait_for_legacy(Stream& stream) {
  Stream& legacy = *stream.context->legacy;
  if (legacy.join_work != legacy.work) {
    OPENMPS_RETURN_IF_ERROR(record(legacy, &legacy.join));
    legacy.join_work = legacy.work;
  }
  OPENMPS_RETURN_IF_ERROR(
      wait(stream, *legacy.join, &legacy, "cuStreamWaitEvent on the legacy stream"));
  stream.legacy_seen = legacy.work;
  return Status();
}

Status Streams::order_all_behind(Stream& stream) {
  ClientContext& context = *stream.context;
  ++context.order;
  stream.order_seen = context.order;
  context.order_source = &stream;
  context.order_recorded = false;
  context.order_fence = 0;
  // While no other stream is in use no event is needed; a later stream finds order_source.
  if (context.started == 1) return Status();
  context.order_recorded = true;
  return record(stream, &context.order_event);
}

Status Streams::follow(Stream& stream) {
  OPENMPS_RETURN_IF_ERROR(enter(stream, Entry::kRecord));
  return order_all_behind(stream);
}

Status Streams::join(const wire::ContextJoin& command, Stream& stream) {
  const auto found = contexts_.find(command.context);
  if (found == contexts_.end()) return Status();  // a context without streams has no work
  if (found->second->device != stream.place.device) {
    return violation("a context and a stream of different devices");
  }
  OPENMPS_RETURN_IF_ERROR(enter(stream, Entry::kRecord));
  Status status;
  streams_.for_each([&](Stream& other) {
    const bool busy = other.listed != nullptr && other.listed->busy.load(std::memory_order_relaxed);
    if (other.context != found->second.get() || &other == &stream || !busy || !status.ok()) return;
    status = record(other, &other.join);
    if (!status.ok()) return;
    status = wait(stream, *other.join, &other, "cuStreamWaitEvent of a joining stream");
  });
  return status;
}

Status Streams::before_open_wait(Stream& stream) {
  ClientContext& context = *stream.context;
  if (context.order_source != &stream || context.order_recorded) return Status();
  context.order_recorded = true;
  return record(stream, &context.order_event);
}

Status Streams::wait_for_order(Stream& stream) {
  ClientContext& context = *stream.context;
  const bool owes = owes_order(stream);
  stream.order_seen = context.order;
  if (!owes) return Status();
  Stream* source = context.order_source;
  if (!context.order_recorded) {
    context.order_recorded = true;
    OPENMPS_RETURN_IF_ERROR(record(*source, &context.order_event));
  }
  return wait(stream, *context.order_event, source, "cuStreamWaitEvent on an ordered copy");
}

// ---- Implied waits ------------------------------------------------------------------------------

bool Streams::ends_soon(const Stream& stream) {
  return stream.budget != nullptr && stream.budget->ends_soon();
}

template <typename F>
bool Streams::all_owed(const Stream& stream, F&& f) {
  const ClientContext& context = *stream.context;
  if (owes_join(stream)) {
    for (const Stream* other : context.dirty) {
      if (!f(other, nullptr)) return false;
    }
    for (const std::unique_ptr<DriverEvent>& end : context.parted) {
      if (!f(nullptr, end.get())) return false;
    }
  }
  const DriverEvent* const order = context.order_recorded ? context.order_event.get() : nullptr;
  if (owes_order(stream) && !f(context.order_source, order)) return false;
  if (!owes_legacy(stream)) return true;
  // A fence behind the legacy stream's work waits for blocking streams, which may have waited for
  // that work: then `join` marks its end.
  const Stream* const legacy = context.legacy;
  return f(legacy, legacy->join_work == legacy->work ? legacy->join.get() : nullptr);
}

bool Streams::ends_implied_wait_soon(const Stream& stream) {
  return all_owed(stream, [](const Stream* other, const DriverEvent*) {
    return other != nullptr && ends_soon(*other);
  });
}

// While work is held for an implied wait, the streams that it waits for get nothing more that it
// need not wait for.
bool Streams::is_implied_wait_over(Stream& stream) {
  return all_owed(stream, [this](const Stream* other, const DriverEvent* end) {
    if (end != nullptr) return core_.driver.cuEventQuery(end->handle) != CUDA_ERROR_NOT_READY;
    return other->listed == nullptr || finished(*other->listed);
  });
}

CUresult Streams::state_of(const ContextGate::Stream& stream) {
  if (!stream.busy.load(std::memory_order_relaxed)) return CUDA_SUCCESS;
  const Status current = core_.use(stream.device);
  const CUresult state = current.ok() ? core_.driver.cuStreamQuery(stream.handle) : current.code();
  has_lost_context_ |= state != CUDA_SUCCESS && state != CUDA_ERROR_NOT_READY;
  return state;
}

// In a context that is lost nothing runs any more.
bool Streams::seems_finished(const ContextGate::Stream& stream) {
  return state_of(stream) != CUDA_ERROR_NOT_READY;
}

// What is busy when its context is lost remains so: it has not ended for certain.
bool Streams::finished(ContextGate::Stream& stream) {
  const CUresult state = state_of(stream);
  if (state == CUDA_SUCCESS) stream.busy.store(false, std::memory_order_relaxed);
  return state != CUDA_ERROR_NOT_READY;
}

// Fences are in host memory, so they tell the truth at any time; of the driver's answers count
// those from before the loss.
bool Streams::has_ended(const DriverStream& stream, const StreamTail& tail,
                        const StreamBudget* budget) const {
  if (stream.listed == nullptr || !stream.listed->busy.load(std::memory_order_relaxed)) return true;
  if (!tail.is_open) return is_fence_reached(tail.slot, tail.value);
  return budget != nullptr && !tail.is_uncounted && budget->has_seen_all_end();
}

bool Streams::awaits_lost_order(const Stream& stream) const {
  const ClientContext& context = *stream.context;
  const Stream* const source = context.order_source;
  if (stream.order_seen == context.order || source == nullptr || source == &stream) return false;
  const bool is_over = context.order_fence != 0
                           ? is_fence_reached(source->fence_slot, context.order_fence)
                           : has_ended(*source);
  return !is_over;
}

bool Streams::is_fence_reached(uint32_t slot, uint64_t value) const {
  return slot >= wire::kFenceSlots ||
         core_.view.fence(slot).value.load(std::memory_order_acquire) >= value;
}

bool Streams::look_for_ends() {
  bool is_unfinished = !retired_.empty();
  for_each([&](const Stream& stream) {
    if (has_ended(stream, stream.tail, stream.budget.get())) return;
    is_unfinished |= !finished(*stream.listed);
  });
  return is_unfinished;
}

bool Streams::may_run_kernel(const Stream& stream) const {
  const StreamTail& tail = stream.tail;
  if (!tail.has_kernel || has_ended(stream, tail, stream.budget.get())) return false;
  return tail.kernel_slot == wire::kNoFence ||
         !is_fence_reached(tail.kernel_slot, tail.kernel_value);
}

void Streams::give_back(DriverStream& stream) {
  const DriverTable& driver = core_.driver;
  const uint32_t device = stream.listed->device;
  if (stream.cold != nullptr) {
    ColdStream& cold = *stream.cold;
    // After a fault a context may refuse to become current; releasing is tried all the same.
    static_cast<void>(core_.use({device, Lane::kCold}).ok());
    core_.cold_gate->remove(cold.listed);
    driver.cuStreamDestroy_v2(cold.handle);
  }
  if (stream.listed_cold != nullptr) core_.cold_gate->remove(stream.listed_cold);
  static_cast<void>(core_.use(device).ok());
  core_.gate.remove(stream.listed);
  driver.cuStreamDestroy_v2(stream.handle);
}

void Streams::note_gone(const DriverStream& stream) {
  --started_[static_cast<size_t>(Lane::kMain)];
  if (stream.cold != nullptr) --started_[static_cast<size_t>(Lane::kCold)];
}

void Streams::sweep_retired() {
  give_back_retired([this](const Retired& retired) {
    return finished(*retired.stream.listed) && !has_lost_context_;
  });
}

void Streams::end_green(const ClientGreen& green) {
  for (Retired& retired : retired_) {
    if (retired.green == &green) retired.unmarked = true;
  }
}

void Streams::drop_green(const ClientGreen& green) {
  give_back_retired([&green](const Retired& retired) { return retired.green == &green; });
}

void Streams::mark(const ContextGate::Stream& stream, WorkMark* mark) {
  if (seems_finished(stream)) return;
  std::unique_ptr<DriverEvent> end;
  if (DriverEvent::make(core_.driver, stream.device, &end).ok() &&
      core_.driver.cuEventRecord(end->handle, stream.handle) == CUDA_SUCCESS) {
    mark->events.push_back({std::move(end), stream.owner.stream});
  } else {
    mark->unmarked = true;
  }
}

WorkMark Streams::mark() {
  WorkMark made;
  for (Stream* stream : unmarked_) {
    stream->unmarked = false;
    mark(*stream->listed, &made);
  }
  unmarked_.clear();
  for (Retired& retired : retired_) {
    if (std::exchange(retired.unmarked, false)) mark(*retired.stream.listed, &made);
  }
  return made;
}

// A context that can't become current is lost.
bool Streams::has_passed(const DriverEvent& end) {
  return !core_.use(end.device).ok() ||
         core_.driver.cuEventQuery(end.handle) != CUDA_ERROR_NOT_READY;
}

bool Streams::idle() {
  sweep_retired();
  bool idle = true;
  for_each_listed([&](ContextGate::Stream& listed) { idle &= finished(listed); });
  return idle;
}

bool Streams::seem_idle() {
  bool idle = true;
  for_each_listed(
      [&](const ContextGate::Stream& listed) { idle = idle && seems_finished(listed); });
  return idle;
}

// Take the stream out of its context. An order that other streams rely on is kept.
Status Streams::detach(Stream& stream) {
  ClientContext& context = *stream.context;
  Status status;
  if (stream.dirty) {
    // The legacy stream, which need not exist yet, still owes a wait for this stream's work.
    std::erase(context.dirty, &stream);
    std::erase_if(context.parted, [this](const std::unique_ptr<DriverEvent>& end) {
      return core_.driver.cuEventQuery(end->handle) != CUDA_ERROR_NOT_READY;
    });
    status = core_.use(stream.place);
    if (status.ok()) status = record(stream, &stream.join);
    if (status.ok()) context.parted.push_back(std::move(stream.join));
  }
  if (context.order_source == &stream) {
    if (Status recorded = before_open_wait(stream); status.ok()) status = recorded;
    context.order_source = nullptr;
  }
  if (context.legacy == &stream) context.legacy = nullptr;
  return status;
}

void Streams::release(std::unique_ptr<Stream> stream) {
  ClientContext* context = stream->context;
  if (stream->unmarked) std::erase(unmarked_, stream.get());
  if (stream->is_looked_at) std::erase(looked_at_, stream.get());
  if (stream->handle != nullptr) {
    --context->started;
    note_gone(*stream);
    if (finished(*stream->listed) && !has_lost_context_) {
      give_back(*stream);
    } else {
      retired_.push_back({std::move(*stream), std::move(stream->chains), in_green(*stream),
                          std::move(stream->part), stream->unmarked, true, stream->tail, context});
    }
  }
  if (stream->green != nullptr) --stream->green->streams;
  --context->streams;
  forget_context(context);
}

void Streams::forget_context(ClientContext* context) {
  if (context->streams != 0 || !context->parted.empty()) return;
  std::erase_if(contexts_, [context](const auto& entry) { return entry.second.get() == context; });
}

Status Streams::handle(const wire::StreamDestroy& command) {
  std::unique_ptr<Stream> stream = streams_.take(command.stream);
  if (stream->held == 0) return end(std::move(stream));
  destroyed_.push_back(std::move(stream));
  return Status();
}

Status Streams::end_destroyed() {
  Status first;
  for (std::unique_ptr<Stream>& stream : destroyed_) {
    if (stream->held != 0) continue;
    Status status = end(std::move(stream));
    if (first.ok()) first = std::move(status);
  }
  std::erase(destroyed_, nullptr);
  return first;
}

Status Streams::end(std::unique_ptr<Stream> stream) {
  Status status = detach(*stream);
  release(std::move(stream));
  return status;
}

Status Streams::handle(const wire::ContextReset& command) {
  const auto found = contexts_.find(command.context);
  if (found == contexts_.end()) return Status();
  const ClientContext* wanted = found->second.get();
  std::vector<wire::Id> ids;
  streams_.for_each_id([&](wire::Id id, Stream& stream) {
    if (stream.context == wanted) ids.push_back(id);
  });
  // Waits between these streams go with them.
  for (const wire::Id id : ids) static_cast<void>(end(streams_.take(id)).ok());
  const auto left = contexts_.find(command.context);
  if (left != contexts_.end()) {
    left->second->parted.clear();
    forget_context(left->second.get());
  }
  return Status();
}

void Streams::release_all() {
  for (std::unique_ptr<Stream>& stream : destroyed_) release(std::move(stream));
  destroyed_.clear();
  while (std::unique_ptr<Stream> stream = streams_.take_any()) release(std::move(stream));
  give_back_retired([](const Retired&) { return true; });
  contexts_.clear();
}

}  // namespace openmps::worker
