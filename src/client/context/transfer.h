// SPDX-License-Identifier: Apache-2.0
// The copy engine, which executes all cuMemcpy* calls. A copy between device and pinned memory is
// one command. Pageable memory is copied through staging pieces, on the calling thread and, for
// large copies, on the copy helpers as well. Any thread.
#pragma once

#include "client/context/contexts.h"
#include "client/context/stream.h"
#include "client/link/channel.h"
#include "client/link/copy_pool.h"
#include "client/link/fence.h"
#include "client/link/kernel_output.h"
#include "client/link/staging.h"
#include "client/memory/copy.h"
#include "client/memory/places.h"
#include "cuda/abi.h"

namespace openmps::client {

class Transfers {
 public:
  Transfers(Channel& channel, Fences& fences, Staging& staging, const Contexts& contexts,
            const Places& places, Streams& streams, KernelOutput& output)
      : channel_(channel),
        fences_(fences),
        staging_(staging),
        contexts_(contexts),
        places_(places),
        streams_(streams),
        output_(output) {}

  // Copies in stream order. The copy is checked and not empty, and the stream is not capturing.
  // `wait`: the call's name has no Async, so it returns when CUDA documents that it does (pageable
  // to device: once staged; device to device: at once; all others: when done). A copy between host
  // memory is done when this returns, for both kinds of calls. Errors: the session's end.
  [[nodiscard]] CUresult copy(Stream& stream, const Copy& copy, bool wait);

 private:
  CUresult send_run(Stream& stream, const Copy& run, uint32_t flags);
  CUresult send(Stream& stream, const Copy& copy, bool order_all);
  CUresult receive(Stream& stream, const Copy& copy);
  CUresult push(Stream& stream, const Copy& copy);
  CUresult copy_on_host(Stream& stream, const Copy& copy);

  Channel& channel_;
  Fences& fences_;
  Staging& staging_;
  const Contexts& contexts_;
  const Places& places_;
  Streams& streams_;
  KernelOutput& output_;
  CopyPool copy_pool_;
};

}  // namespace openmps::client
