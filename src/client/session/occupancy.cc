// SPDX-License-Identifier: Apache-2.0
// See occupancy.h.
#include "client/session/occupancy.h"

#include "client/check.h"

namespace openmps::client {

CUresult occupancy(Session& session, const Function& function, int threads,
                   size_t dynamic_shared_bytes, unsigned int flags, uint64_t* blocks) {
  KnownOccupancy& known = function.occupancy;
  const KnownOccupancy::Shape shape{threads, flags, dynamic_shared_bytes};
  uint32_t settings = 0;
  if (session.keeps_answers && known.find(shape, blocks, &settings)) return CUDA_SUCCESS;
  wire::Occupancy::Reply reply{};
  OPENMPS_CUDA_CHECK(session.channel.call(
      wire::Occupancy{function.id, threads, dynamic_shared_bytes, flags}, &reply));
  *blocks = reply.value;
  known.remember(shape, reply.value, settings);
  return CUDA_SUCCESS;
}

}  // namespace openmps::client
