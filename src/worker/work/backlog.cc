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

}  // namespace

bool names_hidden_events(const Work& work) {
  const auto* graph = std::get_if<GraphWork>(&work.what);
  if (graph != nullptr) return graph->names_events;
  return std::holds_alternative<KernelWork>(work.what) && work.uses.objects[0] != nullptr;
}

namespace {

// The program's own wait for a stream: no work comes behind it, and it comes behind other streams
// only in the legacy stream (Streams::Entry::kFence).
bool is_fence(const Work& work) {
  const auto* fence = std::get_if<FenceWork>(&work.what);
  return (fence != nullptr && !fence->in_order) || std::holds_alternative<WakeWork>(work.what);
}

}  // namespace

// CUDA: the legacy stream and the blocking streams of its context come behind each other.
bool Backlog::is_behind_legacy(const Work& work, const Stream& stream, uint64_t number) const {
  const Stream* const legacy = stream.context->legacy;
  if (legacy == nullptr || legacy->held == 0 || is_fence(work)) return false;
  const Line& line = lines_.at(legacy);
  const auto first =
      std::ranges::find_if(line, [](const auto& item) { return !is_fence(item->work.work()); });
  return first != line.end() && (*first)->number < number;
}

bool Backlog::is_behind_blocking(const Stream& legacy, uint64_t number) const {
  if (!blocking_.contains(legacy.context)) return false;
  for (const auto& [first, line] : firsts_) {
    if (first >= number) return false;
    const Stream& other = line->front()->stream;
    if (other.kind == wire::StreamKind::kBlocking && other.context == legacy.context) return true;
  }
  return false;
}

bool Backlog::is_behind_others(const Work& work, const Stream& stream, uint64_t number) const {
  if (stream.kind == wire::StreamKind::kLegacy && is_behind_blocking(stream, number)) return true;
  if (stream.kind == wire::StreamKind::kBlocking && is_behind_legacy(work, stream, number)) {
    return true;
  }
  const auto orderer = orderers_.lower_bound({stream.context, 0});
  if (orderer != orderers_.end() && orderer->first == stream.context && orderer->second < number) {
    return true;
  }
  if (const auto* graph = std::get_if<GraphWork>(&work.what)) {
    const auto first = launches_.lower_bound({graph->exec, 0});
    return first != launches_.end() && first->first == graph->exec && first->second < number;
  }
  return std::holds_alternative<WaitWork>(work.what) && records(event_of(work));
}

bool Backlog::names(const Item& item, const void* event) {
  return event_of(item.work.work()) == event;
}

bool Backlog::Needs::include(const Item& earlier) const {
  const Work& work = earlier.work.work();
  const Stream& stream = earlier.stream;
  const auto is_needed = [this](const void* thing) { return things.contains(thing); };
  if (is_needed(&stream) || (orders_all(work) && is_needed(stream.context))) return true;
  const void* event = event_of(work);
  if (event != nullptr &&
      (any_event || (std::holds_alternative<RecordWork>(work.what) && is_needed(event)))) {
    return true;
  }
  if (const auto* graph = std::get_if<GraphWork>(&work.what);
      graph != nullptr && is_needed(graph->exec)) {
    return true;
  }
  if (stream.kind == wire::StreamKind::kLegacy) {
    return !is_fence(work) && legacy.contains(stream.context);
  }
  return stream.kind == wire::StreamKind::kBlocking && blocking.contains(stream.context);
}

void Backlog::Needs::add(const Item& item) {
  const Work& work = item.work.work();
  const Stream& stream = item.stream;
  things.insert(&stream);
  things.insert(stream.context);
  if (std::holds_alternative<WaitWork>(work.what)) things.insert(event_of(work));
  if (const auto* graph = std::get_if<GraphWork>(&work.what)) things.insert(graph->exec);
  any_event |= names_hidden_events(work);
  if (stream.kind == wire::StreamKind::kLegacy) blocking.insert(stream.context);
  if (stream.kind == wire::StreamKind::kBlocking && !is_fence(work)) legacy.insert(stream.context);
}

Verdict Backlog::ask(Item& item) {
  const Work& work = item.work.work();
  if (is_behind_others(work, item.stream, item.number)) {
    const bool awaits_event =
        std::holds_alternative<WaitWork>(work.what) && records(event_of(work));
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
  std::unique_ptr<Item> item(new Item{HeldWork(work), stream, number, {}, {}, {}, {}, {}});
  if (const auto* values = std::get_if<ValuesWork>(&work.what)) {
    for (const wire::ValueOperation& operation : values->operations) {
      if (operation.kind != wire::ValueKind::kWait) continue;
      item->shown.emplace_back(core_.shown_values, stream.id, operation.value);
      if (watch_ != nullptr && core_.is_host(operation.value.address)) {
        item->watched.push_back(watch_->watch(core_.bell, operation.value));
      }
    }
  }
  const void* event = event_of(work);
  const auto* graph = std::get_if<GraphWork>(&work.what);
  const bool is_first = stream.held == 0;
  const bool blocks = is_first && stream.kind == wire::StreamKind::kBlocking;
  const size_t bytes = item->work.bytes() + sizeof(Item);
  // Allocations come first: they may fail.
  const auto line = lines_.try_emplace(&stream).first;
  try {
    if (is_first) firsts_.emplace(number, &line->second);
    if (blocks) blocking_.try_emplace(stream.context);
    if (event != nullptr) named_.try_emplace(event);
    if (orders_all(work)) orderers_.emplace(stream.context, number);
    if (graph != nullptr) launches_.emplace(graph->exec, number);
    line->second.push_back(std::move(item));
  } catch (...) {
    orderers_.erase({stream.context, number});
    if (graph != nullptr) launches_.erase({graph->exec, number});
    firsts_.erase(number);
    if (is_first) lines_.erase(line);
    throw;
  }
  if (blocks) ++blocking_[stream.context];
  if (event != nullptr) {
    Named& named = named_[event];
    ++named.items;
    if (std::holds_alternative<RecordWork>(work.what)) ++named.records;
  }
  ++size_;
  bytes_ += bytes;
  ++stream.held;
  if (awaits_values(work)) ++value_waits_;
  streams_.held.last = number;
  next_look_ns_ = std::min(next_look_ns_, refused.look_again_ns);
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

void Backlog::forget(const Item& item) {
  const Work& work = item.work.work();
  if (orders_all(work)) orderers_.erase({item.stream.context, item.number});
  if (const auto* graph = std::get_if<GraphWork>(&work.what)) {
    launches_.erase({graph->exec, item.number});
  }
  if (awaits_values(work)) --value_waits_;
  const auto named = named_.find(event_of(work));
  if (named == named_.end() || event_of(work) == nullptr) return;
  if (std::holds_alternative<RecordWork>(work.what)) --named->second.records;
  if (--named->second.items == 0) named_.erase(named);
}

void Backlog::note_change() {
  streams_.held.oldest = firsts_.empty() ? Streams::Held::kNone : firsts_.begin()->first;
  core_.view.executor().held.store(static_cast<uint32_t>(size_), std::memory_order_relaxed);
}

std::unique_ptr<Backlog::Item> Backlog::take_admitted(uint64_t* from) {
  if (*from == 0) next_look_ns_ = kNever;
  for (auto found = firsts_.lower_bound(*from); found != firsts_.end(); ++found) {
    Item& first = *found->second->front();
    Verdict verdict = ask(first);
    if (verdict.is_admitted()) {
      first.admitted = std::move(verdict.admitted);
      *from = found->first + 1;
      return take(found);
    }
    core_.usage.hold(&first.span, verdict.refused().why);
    next_look_ns_ = std::min(next_look_ns_, verdict.refused().look_again_ns);
  }
  return nullptr;
}

std::unique_ptr<Backlog::Item> Backlog::take(Firsts::iterator found) {
  Line& line = *found->second;
  std::unique_ptr<Item> item = std::move(line.front());
  end_span(*item);
  line.pop_front();
  auto node = firsts_.extract(found);
  Stream& stream = item->stream;
  if (!line.empty()) {
    node.key() = line.front()->number;
    firsts_.insert(std::move(node));
  } else {
    lines_.erase(&stream);
    const auto blocking = blocking_.find(stream.context);
    const bool blocks = stream.kind == wire::StreamKind::kBlocking;
    if (blocks && --blocking->second == 0) blocking_.erase(blocking);
  }
  --size_;
  bytes_ -= item->work.bytes() + sizeof(Item);
  --stream.held;
  tell_whether_full(stream);
  forget(*item);
  note_change();
  return item;
}

void Backlog::drop() {
  if (empty()) return;
  for (const auto& [stream, line] : lines_) {
    end_span(*line.front());
    line.front()->stream.held = 0;
  }
  lines_.clear();
  firsts_.clear();
  blocking_.clear();
  named_.clear();
  orderers_.clear();
  launches_.clear();
  size_ = bytes_ = value_waits_ = 0;
  note_change();
}

}  // namespace openmps::worker
