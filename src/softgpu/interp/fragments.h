// SPDX-License-Identifier: Apache-2.0
// The fragments of a warp, and the records of where those that parted meet. Run by the interpreter,
// on its thread.
//
// Lanes that part open a Record and meet again at the branch's immediate post-dominator (a `join`
// op). Lanes that wait there are let go early when other lanes might be waiting for them: at a back
// edge that went round often, at a barrier, at a *.sync that names them. So independent thread
// scheduling holds: no fragment can keep another from running for ever.
#pragma once

#include "softgpu/interp/block.h"

namespace openmps::softgpu {

inline void update_mask(Warp* warp) {
  warp->mask = warp->active | ~(warp->frame->lanes & warp->alive);
}
const Op* switch_fragment(WarpState* warp);  // nullptr: nothing can run now
void release_parked(WarpState* warp);        // lanes that wait at joins go on alone
Record* open_record(WarpState* warp, const Op* meet);
// `lanes` will not reach the records from `record` up to but without `until`: lanes that wait only
// for them go on.
void leave_record(WarpState* warp, Record* record, Record* until, uint32_t lanes);
// Give up the processor in favour of other fragments and warps; continue at `pc` later.
const Op* give_way(WarpState* warp, const Op* pc);

}  // namespace openmps::softgpu
