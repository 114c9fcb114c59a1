// SPDX-License-Identifier: Apache-2.0
// See hand_over.h.
#include "worker/session/hand_over.h"

#include <algorithm>
#include <vector>

namespace openmps::worker {
namespace {

// What waits for a slot's fences is to find: the last value that was really reached, and the value
// that has been promised.
struct LostSlot {
  uint32_t slot = 0;
  uint64_t promised = 0;
};

class LostWork {
 public:
  explicit LostWork(SessionParts& session) : session_(session), view_(session.core.view) {}

  void find() {
    session_.streams.for_each_unfinished([this](Stream& stream) {
      streams_.push_back(&stream);
      promise(stream.fence_slot, 0);
    });
    if (!session_.batch.empty() && !is_lost(session_.batch.stream())) {
      streams_.push_back(&session_.batch.stream());
      promise(session_.batch.stream().fence_slot, 0);
    }
    // Of streams that are gone, too.
    const FenceLedger& ledger = session_.fences.ledger();
    for (uint32_t slot = 0; slot < ledger.used(); ++slot) {
      if (value_of(slot) < ledger.promised(slot)) promise(slot, ledger.promised(slot));
    }
    for (const auto& [number, item] : session_.backlog.items()) find_held(item.work.work());
    // What was to be given again.
    for (const SessionParts::PendingCommand& command : session_.pending) {
      Stream* const stream = session_.streams.streams().find(command.stream);
      if (stream == nullptr) continue;
      if (!is_lost(stream)) streams_.push_back(stream);
      promise(stream->fence_slot,
              session_.core.journal.view().work(stream->fence_slot).promised.load());
    }
  }

  [[nodiscard]] bool any() const { return !slots_.empty(); }
  [[nodiscard]] const std::vector<Stream*>& streams() const { return streams_; }

  // Before write(): what is reached can be told from the fences.
  void list_events() const {
    wire::LostEvents& list = view_.lost_events();
    uint32_t count = 0;
    session_.events.events().for_each_id([&](wire::Id id, const Event& event) {
      const bool is_unreached = event.slot < wire::kFenceSlots
                                    ? value_of(event.slot) < event.value
                                    : is_lost(session_.streams.streams().find(event.recorded_in));
      if (event.lost_in == 0 && (event.recorded_in == 0 || !is_unreached)) return;
      if (count < wire::kMostLostEvents) {
        list.events[count].event.store(id, std::memory_order_relaxed);
        list.events[count].stream.store(event.lost_in != 0 ? event.lost_in : event.recorded_in,
                                        std::memory_order_relaxed);
      }
      ++count;
    });
    list.count.store(count, std::memory_order_release);
  }

  void write() const {
    for (const LostSlot& lost : slots_) lose_fences(view_, lost.slot, lost.promised);
    wake_client(view_.header());
  }

 private:
  [[nodiscard]] uint64_t value_of(uint32_t slot) const {
    return view_.fence(slot).value.load(std::memory_order_acquire);
  }
  [[nodiscard]] bool is_lost(const Stream* stream) const {
    return std::ranges::find(streams_, stream) != streams_.end();
  }
  [[nodiscard]] bool is_lost(const Stream& stream) const { return is_lost(&stream); }

  void promise(uint32_t slot, uint64_t value) {
    if (slot >= wire::kFenceSlots) return;
    if (at_.empty()) at_.resize(wire::kFenceSlots);
    if (at_[slot] == 0) {
      slots_.push_back({slot, value});
      at_[slot] = static_cast<uint32_t>(slots_.size());
    }
    LostSlot& lost = slots_[at_[slot] - 1];
    lost.promised = std::max(lost.promised, value);
  }
  void find_held(const Work& work) {
    if (const auto* fence = std::get_if<FenceWork>(&work.what)) {
      promise(fence->fence.slot, fence->fence.value);
    } else if (const auto* record = std::get_if<RecordWork>(&work.what)) {
      promise(record->fence.slot, record->fence.value);
    } else if (const auto* call = std::get_if<HostCallWork>(&work.what)) {
      promise(call->fence.slot, call->fence.value);
    }
  }
  SessionParts& session_;
  const wire::ChannelView& view_;
  std::vector<Stream*> streams_;  // that the client has
  std::vector<LostSlot> slots_;
  std::vector<uint32_t> at_;  // by slot: its number in slots_ and 1 more; 0: it is not there
};

// The function may be gone: then its memory is not looked at.
std::string name_of(const SessionParts& session, const Function* wanted) {
  std::string name;
  session.modules.functions().for_each([&](const Function& function) {
    if (&function == wanted) name = function.name;
  });
  return name;
}

void describe_kernel(const SessionParts& session, const std::vector<Stream*>& streams,
                     HandingOver* over) {
  const auto found = std::ranges::find_if(
      streams, [&](const Stream* stream) { return session.streams.may_run_kernel(*stream); });
  if (found == streams.end()) return;
  over->has_kernel = true;
  const StreamTail& tail = (*found)->tail;
  over->stream = (*found)->id;
  over->kernel = tail.kernel == nullptr ? "a graph" : name_of(session, tail.kernel);
  if (tail.kernel == nullptr) return;
  std::ranges::copy(tail.grid, over->grid);
  std::ranges::copy(tail.block, over->block);
}

}  // namespace

HandingOver hand_over(SessionParts& session) {
  HandingOver over;
  over.has_kernel = session.has_failed_launch;
  session.memory.keep_all_now();
  // What is held is not held by the next worker.
  session.streams.streams().for_each([&](const Stream& stream) {
    session.core.view.is_full(stream.fence_slot).store(0, std::memory_order_release);
  });
  LostWork loss(session);
  loss.find();
  loss.list_events();
  if (!loss.any()) {
    wake_client(session.core.view.header());
    return over;
  }
  over.outcome = wire::Outcome::kTold;
  over.streams = static_cast<uint32_t>(loss.streams().size());
  describe_kernel(session, loss.streams(), &over);
  loss.write();
  return over;
}

}  // namespace openmps::worker
