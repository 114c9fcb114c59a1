// SPDX-License-Identifier: Apache-2.0
// See graph_steps.h.
#include "softgpu/device/graphs/graph_steps.h"

#include <algorithm>

#include "softgpu/device/schedule/device_node.h"
#include "softgpu/device/schedule/scheduler.h"

namespace openmps::softgpu {
namespace {

// The launch of a node that kernels change; null: of no such node.
const LaunchWork* updatable(const GraphStep& step) {
  const auto* launch = std::get_if<LaunchWork>(&step.work);
  return launch != nullptr && launch->device_node != nullptr ? launch : nullptr;
}

bool has_kernel(const std::vector<GraphStep>& steps) {
  return std::any_of(steps.begin(), steps.end(), [](const GraphStep& step) {
    if (const auto* inner = std::get_if<ConditionalWork>(&step.work)) {
      return std::any_of(inner->bodies.begin(), inner->bodies.end(),
                         [](const auto& body) { return has_kernel(*body); });
    }
    return std::holds_alternative<LaunchWork>(step.work);
  });
}

class BodyOperation final : public ConditionalOperation {
 public:
  BodyOperation(const std::shared_ptr<ExecutionContext>& execution, const ConditionalWork& work,
                const StreamQueue& stream, const WorkOrigin& origin, MakeOperation make)
      : ConditionalOperation(execution),
        work_(work),
        stream_(stream),
        origin_(origin),
        make_(make) {
    stream_.tail = nullptr;  // the bodies are in no stream
  }

  bool submit_body(Submission& submission,
                   const std::shared_ptr<ConditionalOperation>& self) override
      REQUIRES(scheduler_mutex) {
    if (submitted_ && work_.type != CU_GRAPH_COND_TYPE_WHILE) return false;
    submitted_ = true;
    const std::vector<GraphStep>* steps = choose();
    if (steps == nullptr) return false;
    if (work_.type == CU_GRAPH_COND_TYPE_WHILE && !has_kernel(*steps)) {
      // A GPU would loop for ever.
      submission.fail(*context, CUDA_ERROR_LAUNCH_TIMEOUT,
                      "a loop whose body can't change its condition");
      return false;
    }
    submit(submission, *steps, self);
    return true;
  }

 private:
  [[nodiscard]] const std::vector<GraphStep>* choose() const {
    uint64_t chosen = work_.condition->value.load(std::memory_order_relaxed);
    if (work_.type != CU_GRAPH_COND_TYPE_SWITCH) chosen = chosen != 0 ? 0 : 1;
    return chosen < work_.bodies.size() ? work_.bodies[chosen].get() : nullptr;
  }

  void submit(Submission& submission, const std::vector<GraphStep>& steps,
              const std::shared_ptr<ConditionalOperation>& self) REQUIRES(scheduler_mutex) {
    const std::vector<LateOperation> operations =
        late_operations(steps, context, stream_, origin_, make_);
    std::vector<OperationPtr> all;
    for (const LateOperation& late : operations) all.push_back(late.operation);
    auto end = std::make_shared<MarkerOperation>(context);
    end->again = self;
    submit_late(submission, operations);
    submission.submit_unordered(end, all);
  }

  const ConditionalWork work_;
  StreamQueue stream_;
  const WorkOrigin origin_;
  const MakeOperation make_;
  bool submitted_ = false;
};

}  // namespace

Work work_at_launch(const GraphStep& step) {
  return step.enabled || updatable(step) != nullptr ? step.work : Work(MarkerWork{});
}

WorkOrigin origin_of(const GraphStep& step, const WorkOrigin& launch) {
  WorkOrigin origin = launch;
  origin.graph_node = reinterpret_cast<uint64_t>(step.node);
  return origin;
}

void set_device_nodes(const std::vector<GraphStep>& steps) {
  for (const GraphStep& step : steps) {
    if (const LaunchWork* launch = updatable(step)) {
      launch->device_node->set(
          {step.enabled, launch->cooperative, launch->grid, launch->cluster, launch->parameters});
    }
    if (const auto* conditional = std::get_if<ConditionalWork>(&step.work)) {
      for (const auto& body : conditional->bodies) set_device_nodes(*body);
    }
  }
}

bool has_device_nodes(const std::vector<GraphStep>& steps) {
  return std::any_of(steps.begin(), steps.end(), [](const GraphStep& step) {
    if (const auto* inner = std::get_if<ConditionalWork>(&step.work)) {
      return std::any_of(inner->bodies.begin(), inner->bodies.end(),
                         [](const auto& body) { return has_device_nodes(*body); });
    }
    return updatable(step) != nullptr;
  });
}

GraphStep* find_step(std::vector<GraphStep>& steps, CUgraphNode node) {
  if (node == nullptr) return nullptr;
  for (GraphStep& step : steps) {
    if (step.node == node) return &step;
    auto* conditional = std::get_if<ConditionalWork>(&step.work);
    if (conditional == nullptr) continue;
    for (auto& body : conditional->bodies) {
      auto replaced = std::make_shared<std::vector<GraphStep>>(*body);
      GraphStep* found = find_step(*replaced, node);
      if (found == nullptr) continue;
      body = std::move(replaced);
      return found;
    }
  }
  return nullptr;
}

uint32_t branches_of(const std::vector<GraphStep>& steps) {
  uint32_t branches = 0;
  std::vector<bool> continued(steps.size());
  for (const GraphStep& step : steps) {
    const auto end = std::ranges::find_if(step.after, [&](uint32_t i) { return !continued[i]; });
    if (end == step.after.end()) {
      ++branches;
    } else {
      continued[*end] = true;
    }
  }
  return branches;
}

std::vector<LateOperation> late_operations(const std::vector<GraphStep>& steps,
                                           const std::shared_ptr<ExecutionContext>& execution,
                                           const StreamQueue& stream, const WorkOrigin& origin,
                                           MakeOperation make) {
  std::vector<LateOperation> made;
  for (const GraphStep& step : steps) {
    LateOperation late;
    late.operation = make(work_at_launch(step), execution, stream, origin_of(step, origin));
    late.operation->stream_id = stream.id;
    for (const uint32_t index : step.after) late.after.push_back(made[index].operation);
    made.push_back(std::move(late));
  }
  return made;
}

void submit_late(Submission& submission, std::span<const LateOperation> operations) {
  for (const LateOperation& late : operations) {
    if (late.operation->kind == OperationKind::kKernel) {
      static_cast<KernelOperation&>(*late.operation).queue =
          late.operation->context->take_queue_locked();
    }
    submission.submit_unordered(late.operation, late.after);
  }
}

OperationPtr make_conditional(const ConditionalWork& work,
                              const std::shared_ptr<ExecutionContext>& execution,
                              const StreamQueue& stream, const WorkOrigin& origin,
                              MakeOperation make) {
  return std::make_shared<BodyOperation>(execution, work, stream, origin, make);
}

}  // namespace openmps::softgpu
