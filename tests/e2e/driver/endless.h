// SPDX-License-Identifier: Apache-2.0
// A kernel that runs until the host stops it, as PTX text.
#pragma once

#include <string>

namespace e2e {

inline const std::string kEndlessPtx = R"(.version 7.0
.target sm_70
.address_size 64
// Stores 1 in flag[0] and runs while flag[1] is 0.
.visible .entry endless(.param .u64 flag) {
  .reg .pred %p1;
  .reg .b32 %r<3>;
  .reg .b64 %rd1;
  ld.param.u64 %rd1, [flag];
  mov.u32 %r1, 1;
  st.volatile.global.u32 [%rd1], %r1;
again:
  ld.volatile.global.u32 %r2, [%rd1+4];
  setp.eq.u32 %p1, %r2, 0;
  @%p1 bra again;
  ret;
}
)";

}  // namespace e2e
