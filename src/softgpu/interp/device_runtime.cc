// SPDX-License-Identifier: Apache-2.0
// Calls of the device runtime: a lane that launches a kernel, makes a stream or an event, copies,
// or asks what went wrong. What they do is up to the device model (NestedLaunches); errors are kept
// by thread here. Run by the interpreter, on its thread.
#include <algorithm>
#include <cstring>

#include "softgpu/interp/address.h"
#include "softgpu/interp/block.h"
#include "softgpu/interp/call.h"
#include "softgpu/ptx/device_calls.h"

namespace openmps::softgpu {

using ptx::DeviceCall;

namespace {

// cudaErrorInvalidDeviceFunction, which is no CUresult.
constexpr auto kInvalidFunction = static_cast<CUresult>(98);

struct Call {
  Warp* warp;
  const Op* op;
  const CallSite& site;
  uint32_t lane;

  [[nodiscard]] uint64_t argument(size_t i) const { return call_argument(warp, site, i, lane); }
  void result(uint64_t value) const { set_call_result(warp, site, lane, value); }
  [[nodiscard]] NestedLaunches& nested() const { return *warp->block->nested; }
  [[nodiscard]] uint64_t block() const {
    const Block& b = *warp->block;
    return b.index[0] + b.shape.grid[0] * (b.index[1] + uint64_t{b.shape.grid[1]} * b.index[2]);
  }
  // Of the calling thread.
  [[nodiscard]] CUresult& last_error() const {
    std::vector<CUresult>& errors = warp->block->last_errors;
    if (errors.empty()) errors.resize(warp->block->threads, CUDA_SUCCESS);
    return errors[warp->index * kWarpSize + lane];
  }
  void note(CUresult error) const {
    if (error != CUDA_SUCCESS) last_error() = error;
  }
  void finish(CUresult error) const {
    note(error);
    result(error);
  }
  // False: the pointer that the kernel gave is none, which is a fault.
  template <typename T>
  [[nodiscard]] bool store(size_t pointer, T value) const {
    if (write_generic(warp, lane, argument(pointer), &value, sizeof value)) return true;
    warp->block->raise(warp, op, CUDA_ERROR_ILLEGAL_ADDRESS, argument(pointer),
                       "no place for the result of a runtime call", 1u << lane);
    return false;
  }
};

// The index among the program's kernels of what a function pointer names; false: no kernel.
bool find_kernel(const Block& block, uint64_t function, uint32_t* kernel) {
  const auto& kernels = block.program->compiled->kernel_functions;
  const uint64_t number = (function - kFunctionWindow) / 16;
  const auto found = std::find(kernels.begin(), kernels.end(), static_cast<int32_t>(number));
  if (function < kFunctionWindow || number > INT32_MAX || found == kernels.end()) return false;
  *kernel = static_cast<uint32_t>(found - kernels.begin());
  return true;
}

// An argument that is a structure.
void copy_argument(const Call& call, size_t index, void* to, uint64_t bytes) {
  const Argument& argument = call.site.arguments[index];
  std::memcpy(to,
              call.warp->block->local_at(call.warp, call.lane,
                                         call.warp->frame->local_base + argument.offset),
              std::min<uint64_t>(argument.bytes, bytes));
}

// function, grid, block, bytes of dynamic shared memory
void parameter_buffer(const Call& call) {
  NestedShape shape;
  copy_argument(call, 1, shape.grid, sizeof shape.grid);
  copy_argument(call, 2, shape.block, sizeof shape.block);
  shape.dynamic_shared_bytes = static_cast<uint32_t>(call.argument(3));
  CUresult error = kInvalidFunction;
  uint64_t address = 0;
  if (find_kernel(*call.warp->block, call.argument(0), &shape.kernel)) {
    address = call.nested().open(shape, &error);
  }
  if (address == 0) call.note(error);
  call.result(address);
}

bool make_handle(const Call& call, uint64_t handle) {
  if (!call.store(0, handle)) return false;
  call.finish(CUDA_SUCCESS);
  return true;
}

bool allocate(const Call& call) {
  DeviceServices* services = call.warp->block->services;
  const uint64_t address = services->allocate_device_heap(call.argument(1));
  if (!call.store(0, address)) return false;
  call.finish(address != 0 ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
  return true;
}

bool store_device(const Call& call) {
  if (!call.store(0, call.nested().device())) return false;
  call.finish(CUDA_SUCCESS);
  return true;
}

// ---- Nodes of graphs --------------------------------------------------------------------------

// More than the parameters of any kernel: 32,764 bytes is CUDA's limit.
constexpr uint64_t kMostParameterBytes = 32 << 10;

// cudaGraphKernelNodeUpdate.
struct UpdateEntry {
  uint64_t node;
  uint32_t field;
  uint32_t reserved;
  union {
    uint32_t grid[3];
    struct {
      uint64_t value, offset, bytes;
    } parameter;
    uint32_t enabled;
  };
};
static_assert(sizeof(UpdateEntry) == 40);

// False: a pointer that can't be read, which is a fault.
bool load(const Call& call, uint64_t from, void* to, uint64_t bytes) {
  if (read_generic(call.warp, call.lane, from, to, bytes)) return true;
  call.warp->block->raise(call.warp, call.op, CUDA_ERROR_ILLEGAL_ADDRESS, from,
                          "an update of a node can't be read", 1u << call.lane);
  return false;
}

// False: a fault. `error`: an earlier error is kept.
bool update_node(const Call& call, const UpdateEntry& entry, CUresult* error) {
  if (*error != CUDA_SUCCESS) return true;
  NodeUpdate update;
  update.field = static_cast<NodeUpdate::Field>(entry.field);
  switch (update.field) {
    case NodeUpdate::Field::kGrid:
      std::copy(std::begin(entry.grid), std::end(entry.grid), update.grid.begin());
      break;
    case NodeUpdate::Field::kParameter:
      if (entry.parameter.bytes > kMostParameterBytes) {
        *error = CUDA_ERROR_INVALID_VALUE;
        return true;
      }
      update.offset = entry.parameter.offset;
      update.value.resize(entry.parameter.bytes);
      if (!load(call, entry.parameter.value, update.value.data(), update.value.size())) {
        return false;
      }
      break;
    case NodeUpdate::Field::kEnabled: update.enabled = entry.enabled != 0; break;
  }
  DeviceServices* services = call.warp->block->services;
  *error =
      services == nullptr ? CUDA_ERROR_NOT_SUPPORTED : services->update_node(entry.node, update);
  return true;
}

// False: a fault.
bool update_nodes(const Call& call) {
  UpdateEntry entry{};
  entry.node = call.argument(0);
  CUresult error = CUDA_SUCCESS;
  switch (call.site.device_call) {
    case DeviceCall::kNodeParameter:  // node, offset, value, bytes
      entry.field = static_cast<uint32_t>(NodeUpdate::Field::kParameter);
      entry.parameter = {call.argument(2), call.argument(1), call.argument(3)};
      if (!update_node(call, entry, &error)) return false;
      break;
    case DeviceCall::kNodeGrid:  // node, grid
      entry.field = static_cast<uint32_t>(NodeUpdate::Field::kGrid);
      copy_argument(call, 1, entry.grid, sizeof entry.grid);
      if (!update_node(call, entry, &error)) return false;
      break;
    case DeviceCall::kNodeEnabled:  // node, enabled
      entry.field = static_cast<uint32_t>(NodeUpdate::Field::kEnabled);
      entry.enabled = static_cast<uint8_t>(call.argument(1));
      if (!update_node(call, entry, &error)) return false;
      break;
    default:  // updates, how many
      for (uint64_t i = 0; i < call.argument(1) && error == CUDA_SUCCESS; ++i) {
        if (!load(call, call.argument(0) + i * sizeof entry, &entry, sizeof entry) ||
            !update_node(call, entry, &error)) {
          return false;
        }
      }
      break;
  }
  call.finish(error);
  return true;
}

// False: a fault.
bool serve(const Call& call) {
  NestedLaunches& nested = call.nested();
  const uint64_t block = call.block();
  switch (call.site.device_call) {
    case DeviceCall::kParameterBuffer: parameter_buffer(call); return true;
    case DeviceCall::kLaunch:
      call.finish(nested.launch(call.argument(0), block, call.argument(1)));
      return true;
    case DeviceCall::kGetLastError:
      call.result(std::exchange(call.last_error(), CUDA_SUCCESS));
      return true;
    case DeviceCall::kPeekAtLastError: call.result(call.last_error()); return true;
    case DeviceCall::kErrorString:
    case DeviceCall::kErrorName:
      call.result(nested.error_text(static_cast<CUresult>(call.argument(0)),
                                    call.site.device_call == DeviceCall::kErrorName));
      return true;
    case DeviceCall::kGetDevice: return store_device(call);
    case DeviceCall::kStreamCreate: return make_handle(call, nested.create_stream());
    case DeviceCall::kEventCreate: return make_handle(call, nested.create_event());
    case DeviceCall::kStreamDestroy:
      call.finish(nested.destroy_stream(call.argument(0)));
      return true;
    case DeviceCall::kEventDestroy:
      call.finish(nested.destroy_event(call.argument(0)));
      return true;
    case DeviceCall::kEventRecord:
      call.finish(nested.record(call.argument(0), block, call.argument(1)));
      return true;
    case DeviceCall::kStreamWaitEvent:
      call.finish(nested.wait(block, call.argument(0), call.argument(1)));
      return true;
    case DeviceCall::kMalloc: return allocate(call);
    case DeviceCall::kFree:
      if (call.argument(0) != 0) call.warp->block->services->free_device_heap(call.argument(0));
      call.finish(CUDA_SUCCESS);
      return true;
    case DeviceCall::kCopy:
      call.finish(nested.copy(call.argument(0), call.argument(1), call.argument(2), block,
                              call.argument(4)));
      return true;
    case DeviceCall::kFill:
      call.finish(nested.fill(call.argument(0), static_cast<uint8_t>(call.argument(1)),
                              call.argument(2), block, call.argument(3)));
      return true;
    default: break;  // others are served elsewhere
  }
  return false;
}

void launch_graphs(Warp* warp, const Op* op, const CallSite& site) {
  GraphLaunches* graph = warp->block->graph;
  for (uint32_t left = warp->active; left; left &= left - 1) {
    const Call call{warp, op, site, static_cast<uint32_t>(__builtin_ctz(left))};
    call.finish(graph == nullptr ? CUDA_ERROR_INVALID_VALUE
                                 : graph->launch_graph(call.argument(0), call.argument(1)));
  }
}

const Op* h_call_runtime(const Op* op, Warp* warp, std::byte*, uint32_t) {
  const CallSite& site = warp->frame->code->call_sites[op->imm];
  if (site.device_call == DeviceCall::kGraphLaunch) {
    launch_graphs(warp, op, site);
    return op + 1;
  }
  if (ptx::updates_node(site.device_call)) {
    for (uint32_t left = warp->active; left; left &= left - 1) {
      if (!update_nodes({warp, op, site, static_cast<uint32_t>(__builtin_ctz(left))})) {
        return nullptr;
      }
    }
    return op + 1;
  }
  if (warp->block->nested == nullptr || warp->block->services == nullptr) {
    return warp->block->raise(warp, op, CUDA_ERROR_NOT_SUPPORTED, 0,
                              "a runtime call where there is no device runtime");
  }
  for (uint32_t left = warp->active; left; left &= left - 1) {
    const auto lane = static_cast<uint32_t>(__builtin_ctz(left));
    if (!serve({warp, op, site, lane})) return nullptr;
  }
  return op + 1;
}

}  // namespace

void add_runtime_handlers(HandlerTable* table) {
  table->handlers[static_cast<size_t>(IrOp::k_call_runtime)] = h_call_runtime;
}

}  // namespace openmps::softgpu
