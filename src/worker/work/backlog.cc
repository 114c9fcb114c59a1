// SPDX-License-Identifier: Apache-2.0
// See backlog.h.
#include "worker/work/backlog.h"

#include <algorithm>
#include <atomic>
#include <utility>

namespace openmps::worker {
namespace {

// The event that a record or a wait names, as its owner holds it; null: it names none.
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

bool awaits_answer(const Work& work) {
  const auto* call = std::get_if<HostCallWork>(&work.what);
  return call != nullptr && call->part != HostCallWork::Part::kAsk && !call->answers_soon;
}

bool awaits_values(const Work& work) {
  const auto* values = std::get_if<ValuesWork>(&work.what);
  return values != nullptr && values->waits != 0;
}

// The program waits for the stream: nobody comes behind it, and it comes behind the others only in
// the legacy stream (Streams::Entry::kFence).
bool is_fence(const Work& work) {
  const auto* fence = std::get_if<FenceWork>(&work.what);
  return (fence != nullptr && !fence->in_order) || std::holds_alternative<WakeWork>(work.what);
}

}  // namespace

bool Backlog::stands_at_implied_wait(Stream& stream) const {
  const auto is_over = [&] { return streams_.is_implied_wait_over(stream); };
  return refuses(stream, is_over, Streams::ends_implied_wait_soon(stream));
}

// Where the worker sees what is waited for it need not be tried on the GPU.
bool Backlog::stands_at_wait(const ValuesWork& values, Stream& stream, Item* item) const {
  if (values.waits == 0 || !core_.commons.performance.holds_waits) return false;
  bool unseen = false;
  for (const wire::ValueOperation& operation : values.operations) {
    if (operation.kind != wire::ValueKind::kWait) continue;
    if (!core_.is_host(operation.value.address)) {
      unseen = true;
    } else if (!is_there(operation.value)) {
      return true;
    }
  }
  return unseen && refuses(stream, [&] {
           return item != nullptr &&
                  std::all_of(item->read.begin(), item->read.end(),
                              [](DeviceWords::Row& word) { return word.has_come(); });
         });
}

// The client says when it has answered what is not expected soon (wire::RingProducer::nudge()).
bool Backlog::stands_at_wait(const HostCallWork& call, Stream& stream, Item*) const {
  if (call.part == HostCallWork::Part::kAsk) return false;
  const auto is_over = [&] {
    return call.part == HostCallWork::Part::kAwait &&
           core_.view.callback(call.slot).done.load(std::memory_order_acquire) != 0;
  };
  if (!call.answers_soon && core_.commons.performance.holds_waits && !is_over()) return true;
  return refuses(stream, is_over);
}

bool Backlog::stands_at_wait(const WaitWork& wait, Stream& stream, Item*) const {
  return refuses(stream,
                 [&] { return core_.driver.cuEventQuery(wait.event) != CUDA_ERROR_NOT_READY; });
}

bool Backlog::awaits_program() const {
  return awaits_value() || answer_waits_ != 0 ||
         std::any_of(lines_.begin(), lines_.end(), [](const auto& line) {
           return line.first->window != nullptr && line.first->window->has_refused();
         });
}

// CUDA: the legacy stream and the blocking streams of its context come behind each other.
bool Backlog::is_ordered(const Work& work, const Stream& stream, const Stream& other,
                         const Line& line, uint64_t number) {
  using wire::StreamKind;
  if (stream.context != other.context) return false;
  if (stream.kind == StreamKind::kLegacy) return other.kind == StreamKind::kBlocking;
  if (stream.kind != StreamKind::kBlocking || other.kind != StreamKind::kLegacy) return false;
  return !is_fence(work) && std::any_of(line.begin(), line.end(), [number](const auto& item) {
    return item->number < number && !is_fence(item->work.work());
  });
}

bool Backlog::is_behind(const Work& work, const Stream& stream, uint64_t number) const {
  for (const auto& [other, line] : lines_) {
    if (line.front()->number >= number) continue;
    if (other == &stream || is_ordered(work, stream, *other, line, number)) return true;
  }
  for (const auto& [orderer, context] : orderers_) {
    if (orderer < number && context == stream.context) return true;
  }
  if (const auto* graph = std::get_if<GraphWork>(&work.what)) {
    const auto first = launches_.lower_bound({graph->exec, 0});
    return first != launches_.end() && first->first == graph->exec && first->second < number;
  }
  return std::holds_alternative<WaitWork>(work.what) && records(event_of(work));
}

bool Backlog::launches(const Function& function) const {
  return std::ranges::any_of(lines_, [&function](const auto& line) {
    return std::ranges::any_of(line.second, [&function](const auto& item) {
      const auto* kernel = std::get_if<KernelWork>(&item->work.work().what);
      return kernel != nullptr && kernel->function == &function;
    });
  });
}

bool Backlog::stands(const Work& work, Stream& stream, Item* item) const {
  return std::visit([&](const auto& what) { return stands(work.uses, what, stream, item); },
                    work.what);
}

wire::HeldFor Backlog::why_held(Item& item) const {
  using wire::HeldFor;
  const Work& work = item.work.work();
  if (is_behind(work, item.stream, item.number)) {
    const bool awaits_event =
        std::holds_alternative<WaitWork>(work.what) && records(event_of(work));
    return awaits_event ? HeldFor::kEvent : HeldFor::kStreams;
  }
  if (!streams_.has_room(item.stream)) return HeldFor::kRoom;
  if (!stands(work, item.stream, &item)) return HeldFor::kNothing;
  return std::visit(
      [&]<typename What>(const What&) {
        SubmitWindow* window = item.stream.window.get();
        if (is_windowed<What>()) {
          if (window->is_later()) return HeldFor::kShare;
          return window->wants_right() || window->has_refused() ? HeldFor::kConnection
                                                                : HeldFor::kWindow;
        }
        if (window != nullptr && window->was_full()) return HeldFor::kConnection;
        if (std::same_as<What, ValuesWork>) return HeldFor::kValue;
        return awaits_answer(work) ? HeldFor::kHostFunction : HeldFor::kConnection;
      },
      work.what);
}

uint64_t Backlog::next_look_ns() const {
  uint64_t next = ~0ull;
  for (const auto& [stream, line] : lines_) {
    if (stream->window != nullptr) next = std::min(next, stream->window->next_look_ns());
  }
  return next;
}

void Backlog::hold(const Work& work, Stream& stream) {
  const uint64_t number = streams_.held.last + 1;
  std::unique_ptr<Item> item(new Item{HeldWork(work), stream, number, {}, {}, {}, {}});
  if (const auto* values = std::get_if<ValuesWork>(&work.what)) {
    ValueWatch* watch = core_.commons.value_watch.get();
    for (const wire::ValueOperation& operation : values->operations) {
      if (operation.kind != wire::ValueKind::kWait) continue;
      item->shown.emplace_back(core_.shown_values, stream.id, operation.value);
      if (!core_.is_host(operation.value.address)) {
        item->read.push_back(words_.row(operation.value, stream.place.device));
      } else if (watch != nullptr) {
        item->watched.push_back(watch->watch(core_.bell, operation.value));
      }
    }
  }
  const void* event = event_of(work);
  const auto* graph = std::get_if<GraphWork>(&work.what);
  // What needs memory comes first: there may be none.
  const auto line = lines_.try_emplace(&stream).first;
  try {
    if (event != nullptr) named_.try_emplace(event);
    if (orders_all(work)) orderers_.emplace(number, stream.context);
    if (graph != nullptr) launches_.emplace(graph->exec, number);
    line->second.push_back(std::move(item));
  } catch (...) {
    orderers_.erase(number);
    if (graph != nullptr) launches_.erase({graph->exec, number});
    if (line->second.empty()) lines_.erase(line);
    throw;
  }
  if (event != nullptr) {
    Named& named = named_[event];
    ++named.items;
    if (std::holds_alternative<RecordWork>(work.what)) ++named.records;
  }
  ++size_;
  ++stream.held;
  if (awaits_values(work)) ++value_waits_;
  if (awaits_answer(work)) ++answer_waits_;
  streams_.held.last = number;
  note_change();
}

void Backlog::end_span(Item& item) {
  if (item.span.why != wire::HeldFor::kNothing) {
    core_.usage.hold(&item.span, wire::HeldFor::kNothing);
  }
}

void Backlog::forget(const Item& item) {
  orderers_.erase(item.number);
  const Work& work = item.work.work();
  if (const auto* graph = std::get_if<GraphWork>(&work.what)) {
    launches_.erase({graph->exec, item.number});
  }
  if (awaits_values(work)) --value_waits_;
  if (awaits_answer(work)) --answer_waits_;
  const auto named = named_.find(event_of(work));
  if (named == named_.end() || event_of(work) == nullptr) return;
  if (std::holds_alternative<RecordWork>(work.what)) --named->second.records;
  if (--named->second.items == 0) named_.erase(named);
}

void Backlog::note_change() {
  uint64_t oldest = Streams::Held::kNone;
  for (const auto& [stream, line] : lines_) oldest = std::min(oldest, line.front()->number);
  streams_.held.oldest = oldest;
  core_.view.executor().held.store(static_cast<uint32_t>(size_), std::memory_order_relaxed);
}

std::unique_ptr<Backlog::Item> Backlog::take(bool all) {
  auto found = lines_.end();
  for (auto line = lines_.begin(); line != lines_.end(); ++line) {
    Item& first = *line->second.front();
    const bool sooner = found == lines_.end() || first.number < found->second.front()->number;
    if (!sooner) continue;
    const wire::HeldFor why = all ? wire::HeldFor::kNothing : why_held(first);
    if (why == wire::HeldFor::kNothing) {
      found = line;
    } else {
      core_.usage.hold(&first.span, why);
    }
  }
  if (found == lines_.end()) return nullptr;
  std::unique_ptr<Item> item = std::move(found->second.front());
  end_span(*item);
  found->second.pop_front();
  if (found->second.empty()) lines_.erase(found);
  --size_;
  --item->stream.held;
  forget(*item);
  note_change();
  return item;
}

void Backlog::drop() {
  if (empty()) return;
  for (const auto& [stream, line] : lines_) {
    end_span(*line.front());
    stream->held = 0;
  }
  lines_.clear();
  named_.clear();
  orderers_.clear();
  launches_.clear();
  size_ = value_waits_ = answer_waits_ = 0;
  note_change();
}

}  // namespace openmps::worker
