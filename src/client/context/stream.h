// SPDX-License-Identifier: Apache-2.0
// Streams: creation and destruction, what a CUstream argument means on the calling thread, commands
// for a stream's work, and waits for that work. Any thread.
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

  // Held by creation of the default streams, and for attributes of all streams.
  Mutex lock{LockRank::kClientStreams};

  // Errors: CUDA_ERROR_OUT_OF_MEMORY: wire::kFenceSlots streams live.
  [[nodiscard]] CUresult create(Context& context, wire::StreamKind kind, uint32_t flags,
                                int priority, Stream** stream);
  // For cuStreamCreate and the calls like it: checks the program's flags and priority. Errors: also
  // CUDA_ERROR_INVALID_VALUE.
  [[nodiscard]] CUresult create_for_program(Context& context, unsigned int flags, int priority,
                                            CUstream* made);
  // Work that is queued still runs.
  [[nodiscard]] CUresult destroy(Stream* stream);
  // The stream's green context is destroyed: as destroy(), but the handle remains valid for
  // cuStreamDestroy.
  [[nodiscard]] CUresult detach(Stream* stream);

  // The stream of a handle: NULL, CU_STREAM_LEGACY and CU_STREAM_PER_THREAD are default streams of
  // the context, made at first use. Errors: CUDA_ERROR_INVALID_HANDLE,
  // CUDA_ERROR_CONTEXT_IS_DESTROYED (the stream's green context is destroyed).
  [[nodiscard]] CUresult look_up(Context& context, CUstream handle, Stream** stream);
  // A stream that the program has made, of any context.
  [[nodiscard]] CUresult look_up_made(CUstream handle, Stream** stream) const;
  // A stream of the context for this library's own work, kept in `place`.
  [[nodiscard]] CUresult hidden(Context& context, std::atomic<Stream*>& place, Stream** stream);

  // Called before work is given to the stream: blocks while the worker holds too much waiting work
  // of the stream, as the driver does natively. Errors: the session's end.
  [[nodiscard]] CUresult await_backlog_space(const Stream& stream) {
    const std::atomic<uint32_t>& is_full = channel_.view().is_full(stream.fence_slot);
    if (is_full.load(std::memory_order_relaxed) == 0) [[likely]] {
      return CUDA_SUCCESS;
    }
    return channel_.wait([&] { return is_full.load(std::memory_order_acquire) == 0; });
  }
  // Pushes one command of work for a stream, which the stream's next fence covers.
  template <wire::Command C>
  [[nodiscard]] CUresult push(Stream& stream, const C& command, const wire::TailOf<C>& tail = {}) {
    const Channel::Order order = channel_.order();
    const CUresult result = channel_.push(order, command, tail);
    fences_.after_work(order, stream);
    return result;
  }

  // ---- Waits; they return errors of earlier commands ----
  // Until the point is reached, whose fence is pushed.
  [[nodiscard]] CUresult wait(FencePoint point);
  // Until the stream's work has ended; for the legacy stream also the work of its context's
  // blocking streams. The stream is not capturing.
  [[nodiscard]] CUresult synchronize(Stream& stream);
  // Until all work of a context's streams (nullptr: of all contexts) has ended, that of destroyed
  // streams included.
  [[nodiscard]] CUresult synchronize(const Context* context);

 private:
  CUresult legacy(Context& context, Stream** stream);
  CUresult per_thread(Context& context, Stream** stream);
  CUresult made_once(Context& context, std::atomic<Stream*>& place, wire::StreamKind kind,
                     uint32_t flags, Stream** stream);
  CUresult close(Stream* stream);

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
