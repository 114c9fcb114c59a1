// SPDX-License-Identifier: Apache-2.0
// Streams: their creation and end, what a CUstream argument means on the calling thread, work for
// them, and waiting for it. Any thread.
#pragma once

#include <atomic>

#include "base/mutex.h"
#include "client/devices.h"
#include "client/graphs/capture.h"
#include "client/handle_table.h"
#include "client/link/channel.h"
#include "client/link/fence.h"
#include "client/link/kernel_output.h"
#include "client/objects.h"
#include "cuda/abi.h"

namespace openmps::client {

class Streams : public HandleTable<Stream> {
 public:
  Streams(Channel& channel, Fences& fences, const Devices& devices, Captures& captures,
          KernelOutput& output)
      : HandleTable<Stream>(HandleKind::kStream),
        channel_(channel),
        fences_(fences),
        devices_(devices),
        captures_(captures),
        output_(output) {}

  Mutex lock{LockRank::kClientStreams};  // creation of the contexts' own streams, attributes of all

  // Errors: CUDA_ERROR_OUT_OF_MEMORY: wire::kFenceSlots streams live.
  [[nodiscard]] CUresult create(Context& context, wire::StreamKind kind, uint32_t flags,
                                int priority, Stream** stream);
  // The same for cuStreamCreate and its like: flags and priority are the program's.
  // Errors: CUDA_ERROR_INVALID_VALUE.
  [[nodiscard]] CUresult create_for_program(Context& context, unsigned int flags, int priority,
                                            CUstream* made);
  // What is queued still runs.
  [[nodiscard]] CUresult destroy(Stream* stream);
  // The same, but the handle stays: its green context is destroyed, and only destroying it is left.
  [[nodiscard]] CUresult detach(Stream* stream);

  // The stream that a handle means: NULL, CU_STREAM_LEGACY and CU_STREAM_PER_THREAD are the
  // context's own, made at first use. Errors: CUDA_ERROR_INVALID_HANDLE,
  // CUDA_ERROR_CONTEXT_IS_DESTROYED (of its green context).
  [[nodiscard]] CUresult look_up(Context& context, CUstream handle, Stream** stream);
  // One that the program has made, whatever context it is of.
  [[nodiscard]] CUresult look_up_made(CUstream handle, Stream** stream) const;
  // A stream of the context that the program does not know, kept in `place`.
  [[nodiscard]] CUresult hidden(Context& context, std::atomic<Stream*>& place, Stream** stream);

  // Before work is given to the stream: until the worker does not hold too much of it that waits,
  // as the driver does natively. Other threads go on. Errors: the session's end.
  [[nodiscard]] CUresult await_room(const Stream& stream) {
    const std::atomic<uint32_t>& is_full = channel_.view().is_full(stream.fence_slot);
    if (is_full.load(std::memory_order_relaxed) == 0) [[likely]] {
      return CUDA_SUCCESS;
    }
    return channel_.wait([&] { return is_full.load(std::memory_order_acquire) == 0; });
  }
  // One command of work for a stream, counted by its fences.
  template <wire::Command C>
  [[nodiscard]] CUresult push(Stream& stream, const C& command, const wire::TailOf<C>& tail = {}) {
    const Channel::Order order = channel_.order();
    const CUresult result = channel_.push(order, command, tail);
    fences_.after_work(order, stream);
    return result;
  }

  // ---- Waiting; reports errors of earlier commands ----
  // Until the point, whose fence is under way in the stream.
  [[nodiscard]] CUresult wait(FencePoint point);
  // Until the stream's work is done, of the legacy stream that of its context's blocking streams as
  // well. It does not capture.
  [[nodiscard]] CUresult synchronize(Stream& stream);
  // All work of a context's streams (nullptr: of all contexts), destroyed streams included.
  [[nodiscard]] CUresult synchronize(const Context* context);

 private:
  CUresult legacy(Context& context, Stream** stream);
  CUresult per_thread(Context& context, Stream** stream);
  CUresult made_once(Context& context, std::atomic<Stream*>& place, wire::StreamKind kind,
                     uint32_t flags, Stream** stream);
  CUresult take_down(Stream* stream);

  Channel& channel_;
  Fences& fences_;
  const Devices& devices_;
  Captures& captures_;
  KernelOutput& output_;
  std::atomic<uint64_t> next_id_{1};
};

[[nodiscard]] inline bool is_default_stream(CUstream handle) {
  return handle == nullptr || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD;
}

}  // namespace openmps::client
