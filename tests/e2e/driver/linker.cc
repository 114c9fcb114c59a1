// SPDX-License-Identifier: Apache-2.0
// cuLink*: two PTX modules that need each other's function and variable become one, local symbols
// of the same name keep apart; then every way to get it wrong. Run by run_e2e.py. usage: drv_linker
#include <string>

#include "driver.h"

namespace {

constexpr char kHeader[] = ".version 7.0\n.target sm_70\n.address_size 64\n";

// Calls twice() of the other module, adds its variable and a local constant.
constexpr char kMain[] = R"(
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
  // The code of a failed link differs between drivers.
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
  misuse();
  CHECK_CU(cuDevicePrimaryCtxRelease_v2(0));
  return e2e::finish();
}
