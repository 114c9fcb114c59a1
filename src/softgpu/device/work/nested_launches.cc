// SPDX-License-Identifier: Apache-2.0
// What a grid launches. See nested_launches.h.
#include "softgpu/device/work/nested_launches.h"

#include <algorithm>

#include "cuda/error_names.h"
#include "softgpu/device/machine/address_space.h"
#include "softgpu/device/machine/config.h"
#include "softgpu/device/schedule/scheduler.h"
#include "softgpu/device/work/copy_plan.h"
#include "softgpu/device/work/launch.h"
#include "softgpu/device/work/module.h"

namespace openmps::softgpu {
namespace {

// cudaStreamTailLaunch and cudaStreamFireAndForget.
constexpr uint64_t kTailLaunch = 3;
constexpr uint64_t kFireAndForget = 4;
// Handles of streams and events: numbers with no other meaning.
constexpr uint64_t kFirstHandle = uint64_t{1} << 32;

// CUDA's limit for grids that wait for each other.
constexpr uint32_t kMaxDepth = 24;

// Of CUDA's runtime, without a CUresult: cudaErrorInvalidConfiguration,
// cudaErrorLaunchMaxDepthExceeded.
constexpr auto kInvalidConfiguration = static_cast<CUresult>(9);
constexpr auto kMaxDepthExceeded = static_cast<CUresult>(65);

struct RuntimeError {
  CUresult code;
  const char* name;
};
// What the calls here return, and device code may ask about.
constexpr RuntimeError kRuntimeErrors[] = {
    {CUDA_SUCCESS, "cudaSuccess"},
    {CUDA_ERROR_INVALID_VALUE, "cudaErrorInvalidValue"},
    {CUDA_ERROR_OUT_OF_MEMORY, "cudaErrorMemoryAllocation"},
    {kInvalidConfiguration, "cudaErrorInvalidConfiguration"},
    {kMaxDepthExceeded, "cudaErrorLaunchMaxDepthExceeded"},
    {static_cast<CUresult>(98), "cudaErrorInvalidDeviceFunction"},
    {CUDA_ERROR_INVALID_HANDLE, "cudaErrorInvalidResourceHandle"},
    {CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "cudaErrorLaunchOutOfResources"},
    {CUDA_ERROR_NOT_SUPPORTED, "cudaErrorNotSupported"},
};

bool is_done(const OperationPtr& operation) REQUIRES(scheduler_mutex) {
  return operation == nullptr || operation->done;
}

}  // namespace

GridLaunches::GridLaunches(Scheduler& scheduler, const Config& config, const AddressSpace& memory,
                           const std::shared_ptr<Module>& module,
                           std::shared_ptr<ExecutionContext> execution, const StreamQueue& stream,
                           const SmSet& sms, const WorkOrigin& origin, MakeOperation make)
    : scheduler_(scheduler),
      config_(config),
      memory_(memory),
      module_(module),
      execution_(std::move(execution)),
      stream_(stream),
      origin_(origin),
      make_(make),
      next_handle_(kFirstHandle) {
  stream_.sms = sms;
  stream_.tail = nullptr;  // what a grid launches is in no stream of the host
}

int GridLaunches::device() { return execution_->device; }

// ---- Kernels ----------------------------------------------------------------------------------

uint64_t GridLaunches::open(const NestedShape& shape, CUresult* error) {
  *error = CUDA_ERROR_OUT_OF_MEMORY;
  const std::shared_ptr<Module> module = module_.lock();
  if (module == nullptr) return 0;
  const uint32_t bytes = module->linked->program().kernels()[shape.kernel].parameter_bytes;
  const uint64_t address = execution_->parameters.take(bytes);
  if (address == 0) return 0;
  const MutexLock lock(opened_mutex_);
  opened_[address] = shape;
  return address;
}

CUresult GridLaunches::launch(uint64_t parameters, uint64_t block, uint64_t stream) {
  NestedShape nested;
  {
    const MutexLock lock(opened_mutex_);
    const auto found = opened_.find(parameters);
    if (found == opened_.end()) return CUDA_ERROR_INVALID_VALUE;
    nested = found->second;
    opened_.erase(found);
  }
  CUresult error = CUDA_SUCCESS;
  const OperationPtr operation = prepare(nested, parameters, &error);
  if (operation == nullptr) return error;
  const bool waited_for = stream != kTailLaunch;
  if (waited_for && depth_ + 1 >= kMaxDepth) return kMaxDepthExceeded;
  auto& kernel = static_cast<KernelOperation&>(*operation);
  if (kernel.launch.nested != nullptr) {
    static_cast<GridLaunches*>(kernel.launch.nested)->depth_ = waited_for ? depth_ + 1 : depth_;
  }
  return submit(operation, block, stream);
}

// The launch, and its parameters' place given back. Null: `error`.
OperationPtr GridLaunches::prepare(const NestedShape& nested, uint64_t parameters,
                                   CUresult* error) {
  *error = CUDA_ERROR_INVALID_VALUE;
  const std::shared_ptr<Module> module = module_.lock();
  if (module == nullptr) return nullptr;
  const Result<std::shared_ptr<Function>> function = module->function(nested.kernel);
  *error = function.status().code();
  if (!function.ok()) return nullptr;
  size_t bytes = (*function)->info->parameter_bytes;
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, reinterpret_cast<void*>(parameters),
                   CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
  LaunchShape shape{};
  std::copy_n(nested.grid, 3, shape.grid);
  std::copy_n(nested.block, 3, shape.block);
  shape.dynamic_shared_bytes = nested.dynamic_shared_bytes;
  Result<LaunchWork> work =
      make_launch(config_, *function, shape, false, {stream_.sms}, nullptr, extra);
  execution_->parameters.give_back(parameters, bytes);
  *error = work.status().code();
  if (*error == CUDA_ERROR_INVALID_VALUE) *error = kInvalidConfiguration;
  return work.ok() ? make_(Work(std::move(*work)), execution_, stream_, origin_) : nullptr;
}

// ---- Copies -----------------------------------------------------------------------------------

CUresult GridLaunches::copy(uint64_t to, uint64_t from, uint64_t bytes, uint64_t block,
                            uint64_t stream) {
  if (bytes == 0) return CUDA_SUCCESS;
  CopyShape shape;
  shape.destination = to;
  shape.source = from;
  shape.width = bytes;
  const Result<CopyPlan> plan = plan_copy(memory_, shape, CopySide::kDevice, CopySide::kDevice);
  if (!plan.ok()) return plan.status().code();
  return submit(make_(plan->work, execution_, stream_, origin_), block, stream);
}

CUresult GridLaunches::fill(uint64_t to, uint8_t value, uint64_t bytes, uint64_t block,
                            uint64_t stream) {
  if (bytes == 0) return CUDA_SUCCESS;
  FillShape shape;
  shape.destination = to;
  shape.value = value;
  shape.element = 1;
  shape.width = bytes;
  const Result<FillWork> work = plan_fill(memory_, shape);
  if (!work.ok()) return work.status().code();
  return submit(make_(*work, execution_, stream_, origin_), block, stream);
}

// ---- Streams and events -----------------------------------------------------------------------

uint64_t GridLaunches::create_stream() {
  return scheduler_.together([this](Submission&) REQUIRES(scheduler_mutex) {
    streams_.emplace(next_handle_, nullptr);
    return next_handle_++;
  });
}

// The stream's work goes on; the grid waits for it.
CUresult GridLaunches::destroy_stream(uint64_t stream) {
  return scheduler_.together([&](Submission&) REQUIRES(scheduler_mutex) {
    return streams_.erase(stream) != 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
  });
}

uint64_t GridLaunches::create_event() {
  return scheduler_.together([this](Submission&) REQUIRES(scheduler_mutex) {
    events_.emplace(next_handle_, nullptr);
    return next_handle_++;
  });
}

CUresult GridLaunches::destroy_event(uint64_t event) {
  return scheduler_.together([&](Submission&) REQUIRES(scheduler_mutex) {
    return events_.erase(event) != 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
  });
}

CUresult GridLaunches::record(uint64_t event, uint64_t block, uint64_t stream) {
  return scheduler_.together([&](Submission&) REQUIRES(scheduler_mutex) {
    const auto found = events_.find(event);
    const OperationPtr* tail = tail_locked(block, stream);
    if (found == events_.end() || tail == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    found->second = *tail;
    return CUDA_SUCCESS;
  });
}

CUresult GridLaunches::wait(uint64_t block, uint64_t stream, uint64_t event) {
  auto join = std::make_shared<MarkerOperation>(execution_);
  return scheduler_.together([&](Submission& submission) REQUIRES(scheduler_mutex) {
    const auto found = events_.find(event);
    OperationPtr* tail = tail_locked(block, stream);
    if (found == events_.end() || tail == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    const OperationPtr after[] = {*tail, found->second};
    *tail = join;
    submission.submit_unordered(join, after);
    return CUDA_SUCCESS;
  });
}

OperationPtr* GridLaunches::tail_locked(uint64_t block, uint64_t stream) {
  if (stream == 0) return &defaults_[block];
  const auto found = streams_.find(stream);
  return found == streams_.end() ? nullptr : &found->second;
}

// ---- Order ------------------------------------------------------------------------------------

CUresult GridLaunches::submit(const OperationPtr& operation, uint64_t block, uint64_t stream) {
  return scheduler_.together([&](Submission& submission) REQUIRES(scheduler_mutex) {
    operation->stream_id = stream_.id;
    if (operation->kind == OperationKind::kKernel) {
      static_cast<KernelOperation&>(*operation).queue = execution_->take_queue_locked();
    }
    if (stream == kTailLaunch) {
      tails_.push_back(operation);
      return CUDA_SUCCESS;
    }
    OperationPtr before;
    if (stream != kFireAndForget) {
      OperationPtr* tail = tail_locked(block, stream);
      if (tail == nullptr) return CUDA_ERROR_INVALID_HANDLE;
      before = std::exchange(*tail, operation);
    }
    remember_locked(operation);
    submission.submit_unordered(operation, {&before, 1});
    return CUDA_SUCCESS;
  });
}

void GridLaunches::remember_locked(const OperationPtr& operation) {
  if (running_.size() == running_.capacity()) std::erase_if(running_, is_done);
  running_.push_back(operation);
}

bool GridLaunches::finish(Submission& submission, const OperationPtr& self) {
  std::vector<OperationPtr> running = std::move(running_);
  running_.clear();
  std::erase_if(running, is_done);
  if (running.empty() && !tails_.empty()) {
    running.push_back(std::move(tails_.front()));
    tails_.pop_front();
    submission.submit_unordered(running.front(), {});
  }
  if (running.empty()) return true;
  auto end = std::make_shared<MarkerOperation>(execution_);
  end->grid = std::static_pointer_cast<KernelOperation>(self);
  submission.submit_unordered(end, running);
  return false;
}

// ---- Errors -----------------------------------------------------------------------------------

uint64_t GridLaunches::error_text(CUresult error, bool name) {
  const auto* known = std::find_if(std::begin(kRuntimeErrors), std::end(kRuntimeErrors),
                                   [error](const RuntimeError& e) { return e.code == error; });
  if (name) {
    return execution_->parameters.text(known == std::end(kRuntimeErrors) ? "cudaErrorUnknown"
                                                                         : known->name);
  }
  if (error == kInvalidConfiguration) {
    return execution_->parameters.text("invalid configuration argument");
  }
  if (error == kMaxDepthExceeded) {
    return execution_->parameters.text("launch would exceed maximum depth of nested launches");
  }
  const cuda::ErrorText* text = cuda::find_error_text(error);
  return execution_->parameters.text(text == nullptr ? "unrecognized error code" : text->text);
}

}  // namespace openmps::softgpu
