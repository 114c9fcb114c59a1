// SPDX-License-Identifier: Apache-2.0
// What a grid launches (dynamic parallelism): its kernels and copies are operations like any other,
// and the grid is not done before they are. Workers call from inside the engine; the rest is
// called under the Scheduler's mutex.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "softgpu/device/schedule/execution_context.h"
#include "softgpu/device/schedule/operation.h"
#include "softgpu/device/work/work.h"

namespace openmps::softgpu {

class AddressSpace;
struct Config;
struct Module;
class Scheduler;
class Submission;

// Of one grid. Streams belong to the block that uses them: the default one, whose number is 0, and
// those that it makes.
class GridLaunches final : public NestedLaunches, public Offspring {
 public:
  // `stream`: where the grid was launched; `sms`: where it runs, and what it launches; `origin`: of
  // what it launches.
  GridLaunches(Scheduler& scheduler, const Config& config, const AddressSpace& memory,
               const std::shared_ptr<Module>& module, std::shared_ptr<ExecutionContext> execution,
               const StreamQueue& stream, const SmSet& sms, const WorkOrigin& origin,
               MakeOperation make);

  uint64_t open(const NestedShape& shape, CUresult* error) override;
  CUresult launch(uint64_t parameters, uint64_t block, uint64_t stream) override;
  CUresult copy(uint64_t to, uint64_t from, uint64_t bytes, uint64_t block,
                uint64_t stream) override;
  CUresult fill(uint64_t to, uint8_t value, uint64_t bytes, uint64_t block,
                uint64_t stream) override;
  uint64_t create_stream() override;
  CUresult destroy_stream(uint64_t stream) override;
  uint64_t create_event() override;
  CUresult destroy_event(uint64_t event) override;
  CUresult record(uint64_t event, uint64_t block, uint64_t stream) override;
  CUresult wait(uint64_t block, uint64_t stream, uint64_t event) override;
  uint64_t error_text(CUresult error, bool name) override;
  int device() override;

  // Of the grid `self`, whose blocks have all ended.
  [[nodiscard]] bool finish(Submission& submission, const OperationPtr& self) override
      REQUIRES(scheduler_mutex);

 private:
  OperationPtr prepare(const NestedShape& nested, uint64_t parameters, CUresult* error);
  // `operation` goes to a stream of `block`. CUDA_ERROR_INVALID_HANDLE.
  CUresult submit(const OperationPtr& operation, uint64_t block, uint64_t stream);
  // What the stream's next operation waits for; null: no such stream.
  OperationPtr* tail_locked(uint64_t block, uint64_t stream) REQUIRES(scheduler_mutex);
  void remember_locked(const OperationPtr& operation) REQUIRES(scheduler_mutex);

  Scheduler& scheduler_;
  const Config& config_;
  const AddressSpace& memory_;
  const std::weak_ptr<Module> module_;  // lives while the grid runs
  const std::shared_ptr<ExecutionContext> execution_;
  StreamQueue stream_;
  const WorkOrigin origin_;
  const MakeOperation make_;
  uint32_t depth_ = 0;  // grids around this one, which wait for it

  Mutex opened_mutex_{LockRank::kSoftNestedLaunches};
  std::unordered_map<uint64_t, NestedShape> opened_
      GUARDED_BY(opened_mutex_);  // by the address of the parameters

  // Guarded by the Scheduler.
  uint64_t next_handle_ GUARDED_BY(scheduler_mutex);
  // By block: the last operation of its default stream.
  std::unordered_map<uint64_t, OperationPtr> defaults_ GUARDED_BY(scheduler_mutex);
  std::unordered_map<uint64_t, OperationPtr> streams_ GUARDED_BY(scheduler_mutex);  // by handle
  // By handle: the operation that was recorded.
  std::unordered_map<uint64_t, OperationPtr> events_ GUARDED_BY(scheduler_mutex);
  std::vector<OperationPtr> running_ GUARDED_BY(scheduler_mutex);  // that the grid waits for
  // Launches into cudaStreamTailLaunch: one by one, at last.
  std::deque<OperationPtr> tails_ GUARDED_BY(scheduler_mutex);
};

}  // namespace openmps::softgpu
