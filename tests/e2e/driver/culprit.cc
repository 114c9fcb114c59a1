// SPDX-License-Identifier: Apache-2.0
// A client whose kernel faults. It prints "ready", waits for a line on standard input, launches the
// kernel, and prints the error that synchronising gives. `busy`: a kernel that takes a while;
// "running" is printed behind its launch. Run by bench/faults.py and scenarios.
// usage: drv_culprit read|write|null|misaligned|trap|assert|stack|busy
#include <string>

#include "driver.h"

namespace {

// Kernels named like the faults that they make, with the address of good memory as parameter.
constexpr char kPtx[] = R"(.version 7.0
.target sm_70
.address_size 64
.extern .func __assertfail(.param .b64 message, .param .b64 file, .param .b32 line,
                           .param .b64 function, .param .b64 size);
.global .align 1 .b8 message[6] = {119, 114, 111, 110, 103, 0};

.visible .entry read(.param .u64 good) {
  .reg .b32 %r1;
  .reg .b64 %rd1;
  ld.param.u64 %rd1, [good];
  xor.b64 %rd1, %rd1, 0x400000000000;
  ld.volatile.global.u32 %r1, [%rd1];
  ret;
}
.visible .entry write(.param .u64 good) {
  .reg .b64 %rd1;
  ld.param.u64 %rd1, [good];
  xor.b64 %rd1, %rd1, 0x400000000000;
  st.volatile.global.u32 [%rd1], 1;
  ret;
}
.visible .entry null(.param .u64 good) {
  .reg .b64 %rd1;
  mov.u64 %rd1, 0;
  st.volatile.global.u32 [%rd1], 1;
  ret;
}
.visible .entry misaligned(.param .u64 good) {
  .reg .b64 %rd1;
  ld.param.u64 %rd1, [good];
  add.u64 %rd1, %rd1, 2;
  st.volatile.global.u32 [%rd1], 1;
  ret;
}
.visible .entry trap(.param .u64 good) {
  trap;
  ret;
}
.visible .entry assert(.param .u64 good) {
  .reg .b64 %rd1;
  mov.u64 %rd1, message;
  cvta.global.u64 %rd1, %rd1;
  .param .b64 p0;
  .param .b64 p1;
  .param .b32 p2;
  .param .b64 p3;
  .param .b64 p4;
  st.param.b64 [p0], %rd1;
  st.param.b64 [p1], %rd1;
  st.param.b32 [p2], 7;
  st.param.b64 [p3], %rd1;
  st.param.b64 [p4], 1;
  call.uni __assertfail, (p0, p1, p2, p3, p4);
  ret;
}
.func (.param .b32 out) deeper(.param .b32 in)
{
  .local .align 16 .b8 frame[4096];
  .reg .b32 %r<4>;
  .reg .pred %p1;
  ld.param.b32 %r1, [in];
  st.local.u32 [frame], %r1;
  setp.eq.u32 %p1, %r1, 0;
  @%p1 bra done;
  sub.u32 %r1, %r1, 1;
  {
    .param .b32 given;
    .param .b32 got;
    st.param.b32 [given], %r1;
    call.uni (got), deeper, (given);
    ld.param.b32 %r2, [got];
  }
  ld.local.u32 %r3, [frame];
  add.u32 %r1, %r2, %r3;
done:
  st.param.b32 [out], %r1;
  ret;
}
.visible .entry stack(.param .u64 good) {
  .reg .b32 %r<2>;
  .reg .b64 %rd1;
  ld.param.u64 %rd1, [good];
  mov.u32 %r0, 1000000;
  {
    .param .b32 given;
    .param .b32 got;
    st.param.b32 [given], %r0;
    call.uni (got), deeper, (given);
    ld.param.b32 %r1, [got];
  }
  st.volatile.global.u32 [%rd1], %r1;
  ret;
}
// Some 0.5 s.
.visible .entry busy(.param .u64 good) {
  .reg .pred %p1;
  .reg .b32 %r1;
  .reg .b64 %rd1;
  ld.param.u64 %rd1, [good];
  mov.u32 %r1, 0;
again:
  add.u32 %r1, %r1, 1;
  setp.lt.u32 %p1, %r1, 50000000;
  @%p1 bra again;
  st.volatile.global.u32 [%rd1], %r1;
  ret;
}
)";

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: drv_culprit read|write|null|misaligned|trap|assert|stack|busy\n");
    return 2;
  }
  const std::string kind = argv[1];
  // The process ends with a failed context: nothing is given back.
  auto& session = *new e2e::Session(kPtx);
  const CUfunction kernel = session.function(kind.c_str());
  auto& good = *new e2e::Buffer<uint32_t>(std::vector<uint32_t>(16));
  CUstream stream = nullptr;
  CHECK_CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  printf("ready\n");
  if (getchar() == EOF) return 2;
  e2e::launch(kernel, 1, 32, 0, stream, good.address);
  if (kind == "busy") printf("running\n");
  const CUresult result = cuStreamSynchronize(stream);
  printf("%s %d\n", e2e::name(result), static_cast<int>(result));
  fflush(stdout);
  exit(result == CUDA_SUCCESS ? 1 : 0);
}
