// SPDX-License-Identifier: Apache-2.0
// See deferred_releases.h.
#include "worker/device/deferred_releases.h"

#include <new>

#include "worker/device/in_context.h"

namespace openmps::worker {
namespace {

// Nodes of a session's executable graphs that wait until quiescence is found for something else; a
// graph counts as some more than it has. Measured on an H100: a graph of one node takes 110 KiB of
// the device, each node of larger ones 5 KiB of the host and 2 of the device, so all are some 50
// MiB of either at most. Looking for quiescence for each 64 graphs of 20 kernels cost a program
// that makes many of them 43 % of its speed beside long kernels.
constexpr uint64_t kMostGraphNodes = 8192;
constexpr uint64_t kGraphAsNodes = 16;

}  // namespace

// ---- Behind the fence ---------------------------------------------------------------------------

void DeferredReleases::add_behind_work(const GivenUp& given_up, Release release) {
  sweep_work();
  if (is_behind_held()) {
    if (unmarked_ == 0 || behind_work_.back().behind != work_->held.last) {
      behind_work_.emplace_back().behind = work_->held.last;
      ++unmarked_;
    }
  } else if (WorkMark mark = work_->mark(); !mark.empty()) {
    behind_work_.emplace_back().mark = std::move(mark);
  } else if (behind_work_.empty()) {
    return release();  // nothing has been submitted since the last mark
  }
  behind_work_.back().releases.push_back(
      {std::move(release), {shown_, given_up, wire::ReturnWait::kStreams, gate_.now_ns()}});
  show_first();
}

// In order: a mark covers only the work since the mark before.
void DeferredReleases::mark_submitted() {
  while (unmarked_ != 0) {
    Batch& batch = behind_work_[behind_work_.size() - unmarked_];
    if (work_->held.oldest <= batch.behind) return;
    batch.mark = work_->mark();
    batch.behind = 0;
    --unmarked_;
  }
}

bool DeferredReleases::reached(WorkMark& mark) {
  while (!mark.events.empty()) {
    if (!work_->has_passed(*mark.events.back().event)) return false;
    mark.events.pop_back();
  }
  return !mark.unmarked || work_->idle();
}

void DeferredReleases::release_first() {
  std::deque<Entry>& releases = behind_work_.front().releases;
  while (!releases.empty()) {
    releases.front().release();
    releases.pop_front();  // not before: a release that finds no memory is called again
  }
  behind_work_.pop_front();
}

void DeferredReleases::show_first() {
  const bool known = !behind_work_.empty() && !behind_work_.front().mark.events.empty();
  shown_.show_stream(known ? behind_work_.front().mark.events.back().stream : 0);
}

void DeferredReleases::sweep_work() {
  if (behind_work_.empty()) return;
  mark_submitted();
  while (behind_work_.size() > unmarked_ && reached(behind_work_.front().mark)) release_first();
  show_first();
}

void DeferredReleases::release_all() {
  unmarked_ = 0;
  while (!behind_work_.empty()) release_first();
}

// ---- Behind quiescence --------------------------------------------------------------------------

// The gate stays open for a look. The result of the call is of no use: what can't be given back
// stays until the worker is renewed.
bool DeferredReleases::make_now(const Call& call) {
  if (!quiescent_.empty() || graph_nodes_->load(std::memory_order_acquire) != 0) return false;
  const Request look{call.call, call.device, nullptr, Patience::kOneHold};
  return gate_.run_quiescent(look, call.make).has_value();
}

void DeferredReleases::defer(Call call, ContextGate::Urgency urgency, std::function<void()> then) {
  const GatedCall kind = call.call;
  const uint32_t device = call.device;
  gate_.defer(
      kind, device,
      [&driver = driver_, call = std::move(call), then = std::move(then)] {
        CUresult result = CUDA_SUCCESS;
        {
          // After a fault a context may refuse to become current; the release is tried anyway.
          const InContext current(driver, call.context);
          result = call.make();
        }
        then();
        return result;
      },
      urgency);
}

void DeferredReleases::add_quiescent(const GivenUp& given_up, Call call, Release done) {
  sweep_quiescent();
  if (make_now(call)) return done();
  const auto made = std::make_shared<std::atomic<bool>>(false);
  quiescent_.push_back(
      {made,
       {std::move(done), {shown_, given_up, wire::ReturnWait::kQuietMoment, gate_.now_ns()}}});
  try {
    defer(std::move(call), ContextGate::Urgency::kSoon, [bell = bell_, kept = kept_, made] {
      made->store(true, std::memory_order_release);
      bell->ring();
    });
  } catch (const std::bad_alloc&) {
    quiescent_.pop_back();
    throw;
  }
}

void DeferredReleases::add_graph(Call call, uint64_t nodes, bool is_urgent) {
  if (make_now(call)) return;
  const uint64_t weight = kGraphAsNodes + nodes;
  const uint64_t all = graph_nodes_->fetch_add(weight, std::memory_order_relaxed) + weight;
  const bool is_sought = is_urgent || all > kMostGraphNodes;
  try {
    defer(std::move(call), is_sought ? ContextGate::Urgency::kSoon : ContextGate::Urgency::kNone,
          [weight, left = graph_nodes_] { left->fetch_sub(weight, std::memory_order_release); });
  } catch (const std::bad_alloc&) {
    graph_nodes_->fetch_sub(weight, std::memory_order_relaxed);
    throw;
  }
}

void DeferredReleases::sweep_quiescent() {
  std::erase_if(quiescent_, [](const Quiescent& call) {
    if (!call.made->load(std::memory_order_acquire)) return false;
    call.done.release();
    return true;
  });
}

bool DeferredReleases::wait() {
  const size_t before = quiescent_.size();
  gate_.wait_until([this] { return sweep_quiescent(), quiescent_.empty(); }, client_);
  return quiescent_.size() < before;
}

void DeferredReleases::sweep() {
  sweep_work();
  sweep_quiescent();
}

void DeferredReleases::end() {
  quiescent_.clear();
  kept_.reset();
}

}  // namespace openmps::worker
