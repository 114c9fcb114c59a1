// SPDX-License-Identifier: Apache-2.0
// Prints its number from a kernel repeatedly, and checks nothing: the scenario checks which
// program's output has which lines. With `endless`, a kernel follows that prints once and does not
// end before standard input has a line. usage: drv_printing NUMBER ROUNDS [endless]
#include <cstdio>

#include "driver.h"

namespace {

constexpr char kPtx[] = R"(
.version 7.0
.target sm_70
.address_size 64
.extern .func (.param .b32 result) vprintf (.param .b64 format, .param .b64 arguments);
.global .align 1 .b8 text[23] = {99, 108, 105, 101, 110, 116, 32, 37, 117, 32, 114, 111, 117, 110,
                                 100, 32, 37, 117, 32, 111, 107, 10, 0};
.visible .entry speak(.param .u32 client, .param .u32 round) {
  .local .align 8 .b8 arguments[8];
  .reg .b32 %r<4>;
  .reg .b64 %rd<6>;
  ld.param.u32 %r1, [client];
  ld.param.u32 %r2, [round];
  mov.u64 %rd1, arguments;
  st.local.u32 [%rd1], %r1;
  st.local.u32 [%rd1+4], %r2;
  cvta.local.u64 %rd2, %rd1;
  mov.u64 %rd3, text;
  cvta.global.u64 %rd4, %rd3;
  {
    .param .b64 format;
    .param .b64 packed;
    .param .b32 result;
    st.param.b64 [format], %rd4;
    st.param.b64 [packed], %rd2;
    call.uni (result), vprintf, (format, packed);
    ld.param.b32 %r3, [result];
  }
  ret;
}
.visible .entry speak_and_stay(.param .u32 client, .param .u32 round, .param .u64 flag) {
  .local .align 8 .b8 arguments[8];
  .reg .b32 %r<5>;
  .reg .b64 %rd<6>;
  .reg .pred %p1;
  ld.param.u32 %r1, [client];
  ld.param.u32 %r2, [round];
  ld.param.u64 %rd5, [flag];
  mov.u64 %rd1, arguments;
  st.local.u32 [%rd1], %r1;
  st.local.u32 [%rd1+4], %r2;
  cvta.local.u64 %rd2, %rd1;
  mov.u64 %rd3, text;
  cvta.global.u64 %rd4, %rd3;
  {
    .param .b64 format;
    .param .b64 packed;
    .param .b32 result;
    st.param.b64 [format], %rd4;
    st.param.b64 [packed], %rd2;
    call.uni (result), vprintf, (format, packed);
    ld.param.b32 %r3, [result];
  }
again:
  nanosleep.u32 100000;
  ld.volatile.global.u32 %r4, [%rd5];
  setp.eq.u32 %p1, %r4, 0;
  @%p1 bra again;
  ret;
}
)";

// Launches a kernel that prints and keeps running. Its text appears at the next synchronisation, of
// whatever stream.
void stay(CUmodule module, unsigned client, unsigned round) {
  CUfunction kernel = nullptr;
  CUstream endless = nullptr;
  CUstream other = nullptr;
  CHECK_CU(cuModuleGetFunction(&kernel, module, "speak_and_stay"));
  CHECK_CU(cuStreamCreate(&endless, CU_STREAM_NON_BLOCKING));
  CHECK_CU(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
  const e2e::Buffer<uint32_t> flag(std::vector<uint32_t>{0});
  e2e::launch(kernel, 1, 1, 0, endless, client, round, flag.address);
  CHECK_CU(cuMemsetD32Async(flag.address, 0, 1, other));
  CHECK_CU(cuStreamSynchronize(other));
  printf("ready\n");
  fflush(stdout);
  getchar();
  CHECK_CU(cuMemsetD32Async(flag.address, 1, 1, other));
  CHECK_CU(cuStreamSynchronize(endless));
  CHECK_CU(cuStreamDestroy_v2(endless));
  CHECK_CU(cuStreamDestroy_v2(other));
}

}  // namespace

int main(int argc, char** argv) {
  const auto client = static_cast<unsigned>(e2e::argument(argc, argv, 1, 1));
  const auto rounds = static_cast<unsigned>(e2e::argument(argc, argv, 2, 20));
  CUcontext context = nullptr;
  CUmodule module = nullptr;
  CUfunction speak = nullptr;
  CHECK_CU(cuInit(0));
  CHECK_CU(cuDevicePrimaryCtxRetain(&context, 0));
  CHECK_CU(cuCtxSetCurrent(context));
  CHECK_CU(cuModuleLoadData(&module, kPtx));
  CHECK_CU(cuModuleGetFunction(&speak, module, "speak"));
  for (unsigned round = 0; round < rounds; round++) {
    e2e::launch(speak, 1, 1, 0, nullptr, client, round);
    if (round % 4 == 3) CHECK_CU(cuCtxSynchronize());
  }
  CHECK_CU(cuCtxSynchronize());
  if (argc > 3) stay(module, client, rounds);
  CHECK_CU(cuModuleUnload(module));
  CHECK_CU(cuDevicePrimaryCtxRelease_v2(0));
  return 0;
}
