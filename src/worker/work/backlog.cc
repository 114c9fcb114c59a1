// SPDX-License-Identifier: Apache-2.0
// See backlog.h.
#include "worker/work/backlog.h"

#include <algorithm>
#include <atomic>
#include <utility>

namespace openmps::worker {
namespace {

// The event that a record or a wait names; null: the work is neither.
const void* event_of(const Work& work) {
  const bool names_one =
      std::holds_alternative<RecordWork>(work.what) || std::holds_alternative<WaitWork>(work.what);
  return names_one ? work.uses.objects[0].get() : nullptr;
}

bool orders_all(const Work& work) {
  const auto* copy = std::get_if<CopyWork>(&work.what);
  const auto* box = std::get_if<BoxWork>(&work.what);
  return (copy != nullptr && copy->orders_all) || (box != nullptr && box->orders_all);
}

bool awaits_values(const Work& work) {
  const auto* values = std::get_if<ValuesWork>(&work.what);
  return values != nullptr && values->waits != 0;
}

// The program's own wait for a stream: no work comes behind it, and it comes behind other streams
// only in the legacy stream (Streams::Entry::kFence).
bool is_fence(const Work& work) {
  const auto* fence = std::get_if<FenceWork>(&work.what);
  return (fence != nullptr && !fence->in_order) || std::holds_alternative<WakeWork>(work.what);
}

// What later work of other streams comes behind this work by: the context whose streams it orders,
// its executable graph, whose launches keep their order, the event that it records. Null: nothing.
const void* lead_of(const Work& work, const Stream& stream) {
  if (orders_all(work)) return stream.context;
  if (const auto* graph = std::get_if<GraphWork>(&work.what)) return graph->exec;
  return std::holds_alternative<RecordWork>(work.what) ? event_of(work) : nullptr;
}
// The lead that the work comes behind, beside its context: its executable graph, the event that it
// waits for. Null: none.
const void* followed_by(const Work& work) {
  if (const auto* graph = std::get_if<GraphWork>(&work.what)) return graph->exec;
  return std::holds_alternative<WaitWork>(work.what) ? event_of(work) : nullptr;
}

}  // namespace

bool names_hidden_events(const Work& work) {
  const auto* graph = std::get_if<GraphWork>(&work.what);
  if (graph != nullptr) return graph->names_events;
  return std::holds_alternative<KernelWork>(work.what) && work.uses.objects[0] != nullptr;
}

// CUDA: the legacy stream and the blocking streams of its context come behind each other.
bool Backlog::is_behind_legacy(const Work& work, const Stream& stream, uint64_t number) const {
  const Stream* const legacy = stream.context->legacy;
  if (legacy == nullptr || legacy->held == 0 || is_fence(work)) return false;
  for (const Item* item = &items_.at(legacy->first_held); item != nullptr; item = item->next) {
    if (!is_fence(item->work.work())) return item->number < number;
  }
  return false;
}

bool Backlog::is_behind_blocking(const Stream& legacy, uint64_t number) const {
  if (legacy.context->blocking_held == 0) return false;
  for (const auto& [first, item] : firsts_) {
    if (first >= number) return false;
    const Stream& other = item->stream;
    if (other.kind == wire::StreamKind::kBlocking && other.context == legacy.context) return true;
  }
  return false;
}

bool Backlog::has_lead(const void* lead, uint64_t number) const {
  const auto first = leads_.lower_bound({lead, 0});
  return first != leads_.end() && first->first == lead && first->second < number;
}

bool Backlog::is_behind_others(const Work& work, const Stream& stream, uint64_t number) const {
  if (stream.kind == wire::StreamKind::kLegacy && is_behind_blocking(stream, number)) return true;
  if (stream.kind == wire::StreamKind::kBlocking && is_behind_legacy(work, stream, number)) {
    return true;
  }
  return has_lead(stream.context, number) || has_lead(followed_by(work), number);
}

bool Backlog::Item::names(const void* event) const { return event_of(work.work()) == event; }

bool Backlog::Needs::include(const Item& earlier) const {
  const Work& work = earlier.work.work();
  const Stream& stream = earlier.stream;
  const void* const lead = lead_of(work, stream);
  if (things.contains(&stream) || (lead != nullptr && things.contains(lead))) return true;
  if (any_event && event_of(work) != nullptr) return true;
  if (stream.kind == wire::StreamKind::kLegacy) {
    return !is_fence(work) && legacy.contains(stream.context);
  }
  return stream.kind == wire::StreamKind::kBlocking && blocking.contains(stream.context);
}

void Backlog::Needs::add(const Item& item) {
  const Work& work = item.work.work();
  const Stream& stream = item.stream;
  things.insert({&stream, stream.context, followed_by(work)});
  any_event |= names_hidden_events(work);
  if (stream.kind == wire::StreamKind::kLegacy) blocking.insert(stream.context);
  if (stream.kind == wire::StreamKind::kBlocking && !is_fence(work)) legacy.insert(stream.context);
}

Verdict Backlog::ask(Item& item) {
  const Work& work = item.work.work();
  if (is_behind_others(work, item.stream, item.number)) {
    const bool awaits_event =
        std::holds_alternative<WaitWork>(work.what) && has_lead(event_of(work), item.number);
    Verdict verdict;
    verdict.refuse(awaits_event ? wire::HeldFor::kEvent : wire::HeldFor::kStreams);
    return verdict;
  }
  return std::visit(
      [&](const auto& what) {
        return admission_.try_admit(work.uses, what, item.stream, &item.seen);
      },
      work.what);
}

void Backlog::hold(const Work& work, Stream& stream, const Refused& refused) {
  const uint64_t number = streams_.held.last + 1;
  const void* const event = event_of(work);
  const void* const lead = lead_of(work, stream);
  const bool is_first = stream.held == 0;
  // Allocations come first: they may fail.
  Item& item = items_.try_emplace(items_.end(), number, work, stream, number)->second;
  try {
    if (const auto* values = std::get_if<ValuesWork>(&work.what)) {
      const uint64_t now = core_.clock.now_ns();
      for (const wire::ValueOperation& operation : values->operations) {
        if (operation.kind != wire::ValueKind::kWait) continue;
        item.shown.emplace_back(core_.shown_values, stream.id, operation.value, now);
        if (watch_ != nullptr && core_.is_host(operation.value.address)) {
          item.watched.push_back(watch_->watch(core_.bell, operation.value));
        }
      }
    }
    if (is_first) firsts_.emplace(number, &item);
    if (lead != nullptr) leads_.emplace(lead, number);
    if (event != nullptr) named_.try_emplace(event);
  } catch (...) {
    firsts_.erase(number);
    leads_.erase({lead, number});
    items_.erase(number);
    throw;
  }
  if (event != nullptr) ++named_[event];
  if (is_first) {
    stream.first_held = number;
    if (stream.kind == wire::StreamKind::kBlocking) ++stream.context->blocking_held;
  } else {
    items_.at(stream.last_held).next = &item;
  }
  stream.last_held = number;
  ++stream.held;
  bytes_ += item.work.bytes() + sizeof(Item);
  if (awaits_values(work)) ++value_waits_;
  streams_.held.last = number;
  next_look_ns_ = std::min(next_look_ns_, refused.ask_again_ns);
  tell_whether_full(stream);
  note_change();
}

// The thread that gives the stream more waits; other streams go on.
void Backlog::tell_whether_full(Stream& stream) {
  const size_t most = bytes_ >= kMostHeldBytes / 4 ? kDriverItems : kMostHeldItems;
  const bool is_full = stream.held >= (stream.is_full ? most / 2 : most);
  if (stream.is_full == is_full) return;
  stream.is_full = is_full;
  core_.view.is_full(stream.fence_slot).store(is_full ? 1 : 0, std::memory_order_release);
  if (!is_full) wake_client(core_.view.header());
}

void Backlog::end_span(Item& item) {
  if (item.span.why != wire::HeldFor::kNothing) {
    core_.usage.hold(&item.span, wire::HeldFor::kNothing);
  }
}

void Backlog::note_change() {
  streams_.held.oldest = firsts_.empty() ? Streams::Held::kNone : firsts_.begin()->first;
  core_.view.executor().held.store(static_cast<uint32_t>(size()), std::memory_order_relaxed);
}

Backlog::Taken Backlog::take_admitted(uint64_t* from) {
  if (*from == 0) next_look_ns_ = kNever;
  for (auto found = firsts_.lower_bound(*from); found != firsts_.end(); ++found) {
    Item& first = *found->second;
    Verdict verdict = ask(first);
    if (verdict.is_admitted()) {
      first.admitted = std::move(verdict.admitted);
      *from = first.number + 1;
      return take(first.number);
    }
    core_.usage.hold(&first.span, verdict.refused.why);
    next_look_ns_ = std::min(next_look_ns_, verdict.refused.ask_again_ns);
  }
  return {};
}

// Needs no memory.
Backlog::Taken Backlog::take(uint64_t number) {
  Taken taken = items_.extract(number);
  Item& item = taken.mapped();
  const Work& work = item.work.work();
  Stream& stream = item.stream;
  auto first = firsts_.extract(number);
  if (item.next != nullptr) {
    stream.first_held = first.key() = item.next->number;
    first.mapped() = item.next;
    firsts_.insert(std::move(first));
  } else if (stream.kind == wire::StreamKind::kBlocking) {
    --stream.context->blocking_held;
  }
  --stream.held;
  bytes_ -= item.work.bytes() + sizeof(Item);
  if (awaits_values(work)) --value_waits_;
  leads_.erase({lead_of(work, stream), number});
  const auto named = named_.find(event_of(work));
  if (named != named_.end() && --named->second == 0) named_.erase(named);
  end_span(item);
  tell_whether_full(stream);
  note_change();
  return taken;
}

void Backlog::drop() {
  if (empty()) return;
  for (const auto& [number, first] : firsts_) {
    end_span(*first);
    first->stream.held = 0;
    first->stream.context->blocking_held = 0;
  }
  firsts_.clear();
  items_.clear();
  leads_.clear();
  named_.clear();
  bytes_ = value_waits_ = 0;
  note_change();
}

}  // namespace openmps::worker
