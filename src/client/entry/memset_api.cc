// SPDX-License-Identifier: Apache-2.0
// cuMemset*: one command each, checked against the allocation. On the program's threads.
#include "client/context/transfer.h"
#include "client/context/work_check.h"
#include "client/entry/families.h"
#include "client/session/enter.h"
#include "client/session/submit.h"

namespace openmps::client {
namespace {

struct Fill : FillWork {
  bool wait = false;

  static bool is_launch() { return true; }
  // Where it writes is looked at when the graph is instantiated: cuDNN captures its work with
  // made-up addresses to learn the size of its grids, and throws the graph away.
  CUresult describe(Session&, Work* work) const {
    OPENMPS_CUDA_CHECK(check_fill(parameters));
    *work = FillWork{parameters};
    return CUDA_SUCCESS;
  }
  CUresult issue(Session& session, Stream& stream) const {
    OPENMPS_CUDA_CHECK(check_fill(session.places, parameters));
    const bool pinned = session.places.is_pinned(parameters.dst);
    OPENMPS_CUDA_CHECK(session.streams.push(stream, fill_command(parameters, stream.id)));
    // CUDA's synchronous fills return at once, except for host memory.
    return wait && (pinned || session.places.ends_before_return(stream, parameters.dst))
               ? session.synchronize(stream)
               : CUDA_SUCCESS;
  }
};

}  // namespace

CUresult fill(const CUDA_MEMSET_NODE_PARAMS& what, StreamOrder order) {
  Session* session = nullptr;
  Context* context = nullptr;
  Stream* stream = nullptr;
  OPENMPS_CUDA_CHECK(enter(&session, &context, order.stream, &stream));
  if (what.width == 0 || what.height == 0) return CUDA_SUCCESS;
  return submit(*session, *stream, Fill{{what}, order.waits});
}

}  // namespace openmps::client
