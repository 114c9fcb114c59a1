// SPDX-License-Identifier: Apache-2.0
// Frames: the registers of one function, and its variables in the lanes' local memory. A call gets
// a frame of its own for the fragment that calls, so the lanes of a warp may be in different
// functions and at different depths. Run by the interpreter, on its thread.
#pragma once

#include "softgpu/interp/block.h"

namespace openmps::softgpu {

// Null: more local memory than there can be.
Frame* make_frame(WarpState* warp, const Code* code, uint64_t local_base);
// What a frame does not hold yet: everything; all but its code's constants; only the block's place,
// because it ran the same code in another block of the same launch, or of one just like it.
enum class Fill : uint8_t { kAll, kSpecials, kBlockPlace };
void fill_frame(WarpState* warp, Frame* frame, Fill fill);
void free_frame(WarpState* warp, Frame* frame);
// `lanes` have exited: they are in none of the frames from `frame` up any more.
void leave_frames(WarpState* warp, Frame* frame, uint32_t lanes);

}  // namespace openmps::softgpu
