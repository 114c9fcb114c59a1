// SPDX-License-Identifier: Apache-2.0
// Environments of graphs. See graph_run.h.
#include "softgpu/device/issue/graph_run.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "softgpu/device/driver.h"
#include "softgpu/device/issue/make_operation.h"
#include "softgpu/device/schedule/scheduler.h"

namespace openmps::softgpu {
namespace {

// cudaStreamGraphTailLaunch, cudaStreamGraphFireAndForget, cudaStreamGraphFireAndForgetAsSibling.
constexpr uint64_t kTail = uint64_t{1} << 56;
constexpr uint64_t kFireAndForget = uint64_t{2} << 56;
constexpr uint64_t kSibling = uint64_t{3} << 56;

bool is_done(const OperationPtr& operation) REQUIRES(scheduler_mutex) { return operation->done; }

}  // namespace

GraphRun::GraphRun(Driver& driver, std::shared_ptr<ExecutionContext> execution,
                   const StreamQueue& stream, const WorkOrigin& origin)
    : driver_(driver), execution_(std::move(execution)), stream_(stream), origin_(origin) {
  stream_.tail = nullptr;  // what kernels launch is in no stream
}

GraphRun::GraphRun(const std::shared_ptr<GraphRun>& parent, std::shared_ptr<GraphExec> exec)
    : driver_(parent->driver_),
      execution_(parent->execution_),
      stream_(parent->stream_),
      origin_(parent->origin_),
      parent_(parent),
      exec_(std::move(exec)) {
  origin_.graph = static_cast<uint32_t>(exec_->id);
}

void GraphRun::adopt(KernelOperation& kernel) {
  kernel.graph_run = shared_from_this();
  kernel.launch.graph = this;
}

uint64_t GraphRun::current_graph() {
  return exec_->for_device() ? reinterpret_cast<uint64_t>(exec_->handle) : 0;
}

// ---- Launches ---------------------------------------------------------------------------------

Result<GraphRun::Launched> GraphRun::prepare(const std::shared_ptr<GraphExec>& exec, bool tail) {
  Launched launched;
  launched.run = std::make_shared<GraphRun>(tail ? parent_ : shared_from_this(), exec);
  const MutexLock lock(exec->mutex);
  if (!exec->for_device() || !exec->uploaded) {
    return Status(CUDA_ERROR_INVALID_VALUE, "not a graph that the device may launch");
  }
  launched.operations =
      late_operations(exec->steps, execution_, stream_, launched.run->origin_, make_operation);
  for (const LateOperation& late : launched.operations) {
    if (late.operation->context != execution_) {
      return Status(CUDA_ERROR_INVALID_VALUE, "a graph of another context");
    }
    if (late.operation->kind == OperationKind::kKernel) {
      launched.run->adopt(static_cast<KernelOperation&>(*late.operation));
    }
  }
  launched.end = std::make_shared<MarkerOperation>(execution_);
  launched.end->graph_run = launched.run;
  return launched;
}

CUresult GraphRun::launch_graph(uint64_t graph, uint64_t how) {
  const std::shared_ptr<GraphExec> exec =
      driver_.graph_execs.find(reinterpret_cast<CUgraphExec>(graph));
  if (exec == nullptr || (how != kTail && how != kFireAndForget && how != kSibling)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  GraphRun& around = how == kSibling ? *parent_ : *this;
  Result<Launched> launched = around.prepare(exec, how == kTail);
  if (!launched.ok()) return launched.status().code();
  return driver_.scheduler.together([&](Submission& submission) REQUIRES(scheduler_mutex) {
    if (exec->waits_as_tail || (how != kTail && exec->runs > 0)) return CUDA_ERROR_INVALID_VALUE;
    if (how == kTail) {
      exec->waits_as_tail = true;
      tails_.push_back(*std::move(launched));
    } else {
      around.running_.push_back(launched->end);
      submit(submission, *launched);
    }
    return CUDA_SUCCESS;
  });
}

void GraphRun::begin_locked() { ++exec_->runs; }

void GraphRun::submit(Submission& submission, Launched& launched) {
  launched.run->begin_locked();
  std::vector<OperationPtr> all;
  for (const LateOperation& late : launched.operations) all.push_back(late.operation);
  submit_late(submission, launched.operations);
  submission.submit_unordered(launched.end, all);
}

// ---- The end ----------------------------------------------------------------------------------

// What a tail leaves for its own tail comes before what is there already.
void GraphRun::take_tails_locked(std::deque<Launched>& tails) {
  tails_.insert(tails_.begin(), std::make_move_iterator(tails.begin()),
                std::make_move_iterator(tails.end()));
  tails.clear();
}

bool GraphRun::finish(Submission& submission, const OperationPtr& end) {
  std::vector<OperationPtr> running = std::exchange(running_, {});
  std::erase_if(running, is_done);
  if (execution_->error.load(std::memory_order_relaxed) != CUDA_SUCCESS) {
    for (const Launched& given_up : tails_) given_up.run->exec_->waits_as_tail = false;
    tails_.clear();
  }
  if (running.empty() && !tails_.empty()) {
    if (const std::shared_ptr<GraphRun> owner = tail_of_.lock()) {
      owner->take_tails_locked(tails_);
    } else {
      Launched next = std::move(tails_.front());
      tails_.pop_front();
      next.run->exec_->waits_as_tail = false;
      next.run->tail_of_ = weak_from_this();
      running.push_back(next.end);
      submit(submission, next);
    }
  }
  if (running.empty()) {
    if (exec_ != nullptr) --exec_->runs;
    return true;
  }
  auto join = std::make_shared<MarkerOperation>(execution_);
  join->again = end;
  submission.submit_unordered(join, running);
  return false;
}

}  // namespace openmps::softgpu
