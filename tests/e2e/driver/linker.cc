// SPDX-License-Identifier: Apache-2.0
// cuLink*: two PTX modules that use each other's function and variable are linked, and local
// symbols with the same name stay separate; then all kinds of errors. Run by run_e2e.py. usage:
// drv_linker
#include <string>

#include "driver.h"

namespace {

constexpr char kHeader[] = ".version 7.0\n.target sm_70\n.address_size 64\n";

// Calls twice() of the other module, adds its variable and a local constant. It has line
// information
// (.loc), as compilers write it for debuggers.
constexpr char kMain[] = R"(
.file 1 "main.cu"
.extern .func (.param .b32 out) twice (.param .b32 in);
.extern .global .align 4 .u32 bonus;
.global .align 4 .u32 secret = 1000;
.visible .entry apply(.param .u64 words, .param .u32 count) {
  .reg .pred %p<2>;
  .reg .b32 %r<8>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [words];
  ld.param.u32 %r1, [count];
  mov.u32 %r2, %tid.x;
  setp.ge.u32 %p1, %r2, %r1;
  @%p1 bra DONE;
  mul.wide.u32 %rd2, %r2, 4;
  add.s64 %rd1, %rd1, %rd2;
  ld.global.u32 %r3, [%rd1];
  {
    .param .b32 argument;
    .param .b32 result;
    st.param.b32 [argument], %r3;
    call.uni (result), twice, (argument);
    ld.param.b32 %r4, [result];
  }
  .loc 1 5 3
  ld.global.u32 %r5, [bonus];
  add.u32 %r4, %r4, %r5;
  ld.global.u32 %r6, [secret];
  add.u32 %r4, %r4, %r6;
  st.global.u32 [%rd1], %r4;
DONE:
  ret;
}
)";

constexpr char kLibrary[] = R"(
.visible .global .align 4 .u32 bonus = 7;
.global .align 4 .u32 secret = 30000;
.visible .func (.param .b32 out) twice (.param .b32 in) {
  .reg .b32 %r<4>;
  ld.param.b32 %r1, [in];
  add.u32 %r1, %r1, %r1;
  ld.global.u32 %r2, [secret];
  add.u32 %r1, %r1, %r2;
  st.param.b32 [out], %r1;
  ret;
}
)";

// All blocks wait at the barrier of the grid, then each block's first thread adds up the words that
// all blocks had written before. A launch that is not cooperative has no such barrier.
constexpr char kGrid[] = R"(
.extern .func (.param .b64 handle) cudaCGGetIntrinsicHandle (.param .b32 scope);
.extern .func (.param .b32 error) cudaCGSynchronize (.param .b64 handle, .param .b32 flags);
.visible .entry meet(.param .u64 words, .param .u64 sums) {
  .reg .pred %p<4>;
  .reg .b32 %r<12>;
  .reg .b64 %rd<10>;
  ld.param.u64 %rd1, [words];
  ld.param.u64 %rd2, [sums];
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %nctaid.x;
  mov.u32 %r3, %tid.x;
  mul.wide.u32 %rd3, %r1, 4;
  add.s64 %rd4, %rd1, %rd3;
  add.s64 %rd5, %rd2, %rd3;
  setp.ne.u32 %p1, %r3, 0;
  {
    .param .b32 scope;
    .param .b64 handle;
    st.param.b32 [scope], 1;
    call.uni (handle), cudaCGGetIntrinsicHandle, (scope);
    ld.param.b64 %rd6, [handle];
  }
  setp.ne.u64 %p2, %rd6, 0;
  @%p2 bra TOGETHER;
  @%p1 bra DONE;
  st.global.u32 [%rd5], 77;
  bra DONE;
TOGETHER:
  mov.u32 %r4, 0;
ROUND:
  add.u32 %r5, %r1, %r4;
  @!%p1 st.global.u32 [%rd4], %r5;
  {
    .param .b64 handle;
    .param .b32 flags;
    .param .b32 error;
    st.param.b64 [handle], %rd6;
    st.param.b32 [flags], 0;
    call.uni (error), cudaCGSynchronize, (handle, flags);
    ld.param.b32 %r6, [error];
  }
  @%p1 bra ADDED;
  mov.u32 %r7, 0;
  mov.u32 %r8, %r6;
  mov.u64 %rd7, %rd1;
ADD:
  ld.volatile.global.u32 %r9, [%rd7];
  add.u32 %r8, %r8, %r9;
  add.s64 %rd7, %rd7, 4;
  add.u32 %r7, %r7, 1;
  setp.lt.u32 %p3, %r7, %r2;
  @%p3 bra ADD;
  st.global.u32 [%rd5], %r8;
ADDED:
  {
    .param .b64 handle;
    .param .b32 flags;
    .param .b32 error;
    st.param.b64 [handle], %rd6;
    st.param.b32 [flags], 0;
    call.uni (error), cudaCGSynchronize, (handle, flags);
    ld.param.b32 %r6, [error];
  }
  add.u32 %r4, %r4, 1;
  setp.lt.u32 %p3, %r4, 3;
  @%p3 bra ROUND;
DONE:
  ret;
}
)";
constexpr unsigned kGridBlocks = 24;
constexpr uint32_t kNoGrid = 77;

std::string with_header(const char* body) { return std::string(kHeader) + body; }

CUresult add(CUlinkState link, const std::string& ptx, const char* name) {
  return cuLinkAddData_v2(link, CU_JIT_INPUT_PTX, const_cast<char*>(ptx.c_str()), ptx.size() + 1,
                          name, 0, nullptr, nullptr);
}

void check_module(const void* cubin) {
  CUmodule module = nullptr;
  CUfunction apply = nullptr;
  CHECK_CU(cuModuleLoadData(&module, cubin));
  CHECK_CU(cuModuleGetFunction(&apply, module, "apply"));
  std::vector<uint32_t> words(64);
  for (size_t i = 0; i < words.size(); i++) words[i] = static_cast<uint32_t>(i * i);
  e2e::Buffer<uint32_t> buffer(words);
  e2e::launch(apply, 1, 64, 0, nullptr, buffer.address, 64u);
  const std::vector<uint32_t> got = buffer.get();
  bool right = true;
  for (size_t i = 0; i < words.size(); i++) right &= got[i] == words[i] * 2 + 30000 + 7 + 1000;
  e2e::expect(right, "64 results of a linked kernel");
  CUdeviceptr address = 0;
  size_t bytes = 0;
  CHECK_CU(cuModuleGetGlobal_v2(&address, &bytes, module, "bonus"));
  e2e::expect(bytes == 4, "a variable of the linked module has %zu bytes", bytes);
  CHECK_CU(cuModuleUnload(module));
}

void link_in_memory() {
  CUlinkState link = nullptr;
  CHECK_CU(cuLinkCreate_v2(0, nullptr, nullptr, &link));
  CHECK_CU(add(link, with_header(kMain), "main.ptx"));
  CHECK_CU(add(link, with_header(kLibrary), "library.ptx"));
  void* cubin = nullptr;
  size_t bytes = 0;
  CHECK_CU(cuLinkComplete(link, &cubin, &bytes));
  e2e::expect(cubin != nullptr && bytes > 0, "a linked image");
  check_module(cubin);
  CHECK_CU(cuLinkDestroy(link));
}

void link_files() {
  char path[] = "/tmp/linker-XXXXXX";
  const int file = mkstemp(path);
  FILE* out = fdopen(file, "w");
  fputs(with_header(kLibrary).c_str(), out);
  fclose(out);
  CUlinkState link = nullptr;
  CHECK_CU(cuLinkCreate_v2(0, nullptr, nullptr, &link));
  CHECK_CU(add(link, with_header(kMain), "main.ptx"));
  CHECK_CU(cuLinkAddFile_v2(link, CU_JIT_INPUT_PTX, path, 0, nullptr, nullptr));
  remove(path);
  e2e::expect_result("a file that is not there",
                     cuLinkAddFile_v2(link, CU_JIT_INPUT_PTX, path, 0, nullptr, nullptr),
                     CUDA_ERROR_FILE_NOT_FOUND);
  CHECK_CU(cuLinkDestroy(link));
}

// The library is a part of CUDA's toolkit. A driver that implements its functions does not need it.
CUresult add_device_runtime(CUlinkState link) {
  constexpr const char* kPaths[] = {"/usr/local/cuda/lib64/libcudadevrt.a",
                                    "/usr/lib/x86_64-linux-gnu/libcudadevrt.a"};
  for (const char* path : kPaths) {
    const CUresult added = cuLinkAddFile_v2(link, CU_JIT_INPUT_LIBRARY, path, 0, nullptr, nullptr);
    if (added != CUDA_ERROR_FILE_NOT_FOUND) return added;
  }
  return CUDA_SUCCESS;
}

void link_device_runtime() {
  CUlinkState link = nullptr;
  CUmodule module = nullptr;
  CUfunction meet = nullptr;
  void* cubin = nullptr;
  size_t bytes = 0;
  CHECK_CU(cuLinkCreate_v2(0, nullptr, nullptr, &link));
  CHECK_CU(add(link, with_header(kGrid), "grid.ptx"));
  CHECK_CU(add_device_runtime(link));
  CHECK_CU(cuLinkComplete(link, &cubin, &bytes));
  CHECK_CU(cuModuleLoadData(&module, cubin));
  CHECK_CU(cuModuleGetFunction(&meet, module, "meet"));
  CHECK_CU(cuLinkDestroy(link));
  e2e::Buffer<uint32_t> words(std::vector<uint32_t>(kGridBlocks, 0));
  e2e::Buffer<uint32_t> sums(std::vector<uint32_t>(kGridBlocks, 0));
  const auto all_are = [&sums](uint32_t wanted) {
    bool right = true;
    for (const uint32_t sum : sums.get()) right &= sum == wanted;
    return right;
  };
  e2e::launch(meet, kGridBlocks, 64, 0, nullptr, words.address, sums.address);
  CHECK_CU(cuCtxSynchronize());
  e2e::expect(all_are(kNoGrid), "a launch that is not cooperative has no grid");
  void* parameters[] = {&words.address, &sums.address};
  CHECK_CU(cuLaunchCooperativeKernel(meet, kGridBlocks, 1, 1, 64, 1, 1, 0, nullptr, parameters));
  CHECK_CU(cuCtxSynchronize());
  // The sum after the third round: the numbers of the blocks, each with 2 added.
  e2e::expect(all_are(kGridBlocks * (kGridBlocks - 1) / 2 + 2 * kGridBlocks),
              "each block of a grid sees what all wrote before they met");
  CHECK_CU(cuModuleUnload(module));
}

void misuse() {
  char log[1024] = "";
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {log, reinterpret_cast<void*>(sizeof(log))};
  CUlinkState link = nullptr;
  e2e::expect_result("no place for a link", cuLinkCreate_v2(0, nullptr, nullptr, nullptr),
                     CUDA_ERROR_INVALID_VALUE);
  CHECK_CU(cuLinkCreate_v2(2, options, values, &link));
  e2e::expect_result("no input",
                     cuLinkAddData_v2(link, CU_JIT_INPUT_PTX, nullptr, 0, "x", 0, nullptr, nullptr),
                     CUDA_ERROR_INVALID_VALUE);
  e2e::expect_result("PTX with an error", add(link, with_header("nonsense;"), "bad.ptx"),
                     CUDA_ERROR_INVALID_PTX);
  e2e::expect(log[0] != '\0', "the log says why");
  CHECK_CU(cuLinkDestroy(link));

  log[0] = '\0';
  values[1] = reinterpret_cast<void*>(sizeof(log));
  CHECK_CU(cuLinkCreate_v2(2, options, values, &link));
  CHECK_CU(add(link, with_header(kMain), "main.ptx"));
  void* cubin = nullptr;
  size_t bytes = 0;
  // The error code of a failed link differs between drivers.
  const CUresult unresolved = cuLinkComplete(link, &cubin, &bytes);
  e2e::expect(unresolved != CUDA_SUCCESS, "a symbol that nobody defines");
  e2e::expect(strstr(log, "twice") != nullptr || strstr(log, "bonus") != nullptr,
              "the log names the symbol");
  CHECK_CU(cuLinkDestroy(link));
}

}  // namespace

int main() {
  CUcontext context = nullptr;
  CHECK_CU(cuInit(0));
  CHECK_CU(cuDevicePrimaryCtxRetain(&context, 0));
  CHECK_CU(cuCtxSetCurrent(context));
  link_in_memory();
  link_files();
  link_device_runtime();
  misuse();
  CHECK_CU(cuDevicePrimaryCtxRelease_v2(0));
  return e2e::finish();
}
