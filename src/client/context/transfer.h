// SPDX-License-Identifier: Apache-2.0
// The copy engine: what every cuMemcpy* call is reduced to. Device and pinned memory are one
// command; pageable memory travels through staging pieces, gathered and scattered on the calling
// thread and, for large copies, the copy helpers. Any thread.
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

  // A copy that was checked, and copies something, in stream order; the stream does not capture.
  // `wait`: the call's name has no Async: then it returns when CUDA says so (pageable to device:
  // once staged; device to device: at once; all others: when done). Between host memory it is done
  // when this returns, whatever the call's name. Errors: the session's end.
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
