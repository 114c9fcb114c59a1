// SPDX-License-Identifier: Apache-2.0
// cuCtxSetLimit and cuCtxGetLimit: kernels get the limits that were set, and limits that are too
// high are refused. Run by run_e2e.py; `eat` is for scenarios: it leaves the device's heap full.
// usage: drv_limits heap|stack|overflow|fixed|eat [MIB]
#include <array>
#include <string>

#include "driver.h"

namespace {

constexpr char kPtx[] = R"(.version 7.0
.target sm_70
.address_size 64
.extern .func (.param .b64 pointer) malloc (.param .b64 bytes);
// Stores in `count` how many pieces of 64 KiB could be allocated from the heap, at most `most`. They
// are never freed.
.visible .entry eat(.param .u64 count, .param .u32 most) {
  .reg .pred %p<3>;
  .reg .b32 %r<3>;
  .reg .b64 %rd<3>;
  ld.param.u64 %rd1, [count];
  ld.param.u32 %r2, [most];
  mov.u32 %r1, 0;
again:
  setp.ge.u32 %p1, %r1, %r2;
  @%p1 bra done;
  {
  .param .b64 bytes;
  st.param.b64 [bytes], 65536;
  .param .b64 pointer;
  call.uni (pointer), malloc, (bytes);
  ld.param.b64 %rd2, [pointer];
  }
  setp.eq.s64 %p2, %rd2, 0;
  @%p2 bra done;
  add.u32 %r1, %r1, 1;
  bra again;
done:
  st.global.u32 [%rd1], %r1;
  ret;
}
// levels + (levels - 1) + ... + 1, with 256 bytes of stack for each level.
.func (.param .b32 sum) add_up (.param .b32 levels) {
  .local .align 16 .b8 frame[256];
  .reg .pred %p1;
  .reg .b32 %r<6>;
  .reg .b64 %rd<4>;
  ld.param.b32 %r1, [levels];
  and.b32 %r2, %r1, 63;
  mul.wide.u32 %rd1, %r2, 4;
  mov.u64 %rd2, frame;
  add.u64 %rd3, %rd2, %rd1;
  st.local.u32 [%rd3], %r1;
  mov.u32 %r3, 0;
  setp.eq.u32 %p1, %r1, 0;
  @%p1 bra done;
  sub.u32 %r4, %r1, 1;
  {
  .param .b32 levels_below;
  st.param.b32 [levels_below], %r4;
  .param .b32 sum_below;
  call (sum_below), add_up, (levels_below);
  ld.param.b32 %r3, [sum_below];
  }
done:
  ld.local.u32 %r5, [%rd3];
  add.u32 %r3, %r3, %r5;
  st.param.b32 [sum], %r3;
  ret;
}
.visible .entry deep(.param .u64 result, .param .u32 levels) {
  .reg .b32 %r<3>;
  .reg .b64 %rd1;
  ld.param.u64 %rd1, [result];
  ld.param.u32 %r1, [levels];
  {
  .param .b32 levels_below;
  st.param.b32 [levels_below], %r1;
  .param .b32 sum_below;
  call (sum_below), add_up, (levels_below);
  ld.param.b32 %r2, [sum_below];
  }
  st.global.u32 [%rd1], %r2;
  ret;
}
)";

constexpr size_t kMiB = 1 << 20;
constexpr unsigned kPieces = 16;  // per MiB of the heap
constexpr uint32_t kLevels = 100;

size_t limit_of(CUlimit limit) {
  size_t value = 0;
  CHECK_CU(cuCtxGetLimit(&value, limit));
  return value;
}

struct Kernels {
  e2e::Session session;
  CUmodule module = nullptr;
  e2e::Buffer<uint32_t> result{1};
  Kernels() { CHECK_CU(cuModuleLoadData(&module, kPtx)); }
  CUfunction function(const char* name) const {
    CUfunction found = nullptr;
    CHECK_CU(cuModuleGetFunction(&found, module, name));
    return found;
  }
  // How many MiB a kernel can allocate from the heap.
  uint32_t eat(size_t most_mib) const {
    e2e::launch(function("eat"), 1, 1, 0, nullptr, result.address,
                static_cast<uint32_t>(most_mib * kPieces));
    return result.get()[0] / kPieces;
  }
};

void heap() {
  const Kernels kernels;
  e2e::expect(limit_of(CU_LIMIT_MALLOC_HEAP_SIZE) == 8 * kMiB, "8 MiB to begin with");
  CHECK_CU(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 64 * kMiB));
  e2e::expect(limit_of(CU_LIMIT_MALLOC_HEAP_SIZE) == 64 * kMiB, "64 MiB after asking for them");
  // The heap's own bookkeeping takes up to half of it.
  const uint32_t got = kernels.eat(1024);
  e2e::expect(got >= 32 && got <= 64, "a kernel gets them");
  printf("# %u MiB\n", got);
  e2e::expect_result("more, once a kernel has used it",
                     cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 128 * kMiB),
                     CUDA_ERROR_INVALID_VALUE);
  e2e::expect(limit_of(CU_LIMIT_MALLOC_HEAP_SIZE) == 64 * kMiB, "64 MiB still");
  e2e::expect(kernels.eat(1024) == 0, "what kernels keep is gone for the next one");
}

void stack() {
  const Kernels kernels;
  e2e::expect(limit_of(CU_LIMIT_STACK_SIZE) == 1024, "1 KiB to begin with");
  CHECK_CU(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 64 << 10));
  e2e::expect(limit_of(CU_LIMIT_STACK_SIZE) == 64 << 10, "64 KiB after asking for them");
  e2e::launch(kernels.function("deep"), 1, 1, 0, nullptr, kernels.result.address, kLevels);
  CHECK_CU(cuCtxSynchronize());
  e2e::expect(kernels.result.get()[0] == kLevels * (kLevels + 1) / 2, "a kernel gets them");
  e2e::expect_result("1 MiB for each thread", cuCtxSetLimit(CU_LIMIT_STACK_SIZE, kMiB),
                     CUDA_ERROR_INVALID_VALUE);
  e2e::expect(limit_of(CU_LIMIT_STACK_SIZE) == 64 << 10, "64 KiB still");
}

// A limit that no call changes has one value, in each query and in contexts that are made later.
void fixed() {
  const e2e::Session session;
  const auto all = [] {
    return std::array{limit_of(CU_LIMIT_CIG_ENABLED), limit_of(CU_LIMIT_SHMEM_SIZE),
                      limit_of(CU_LIMIT_MAX_L2_FETCH_GRANULARITY),
                      limit_of(CU_LIMIT_PERSISTING_L2_CACHE_SIZE)};
  };
  const auto first = all();
  e2e::expect(first[0] == 0, "graphics do not share the context");
  e2e::expect(all() == first && all() == first, "the same, asked again");
  CUcontext other = nullptr;
  CHECK_CU(cuCtxCreate_v2(&other, 0, session.device));
  e2e::expect(all() == first, "the same in another context");
  CHECK_CU(cuCtxDestroy_v2(other));
}

void overflow() {
  const Kernels kernels;
  e2e::launch(kernels.function("deep"), 1, 1, 0, nullptr, kernels.result.address, kLevels);
  e2e::expect_result("recursion into 25 KiB of a stack of 1 KiB", cuCtxSynchronize(),
                     CUDA_ERROR_ILLEGAL_ADDRESS);
  quick_exit(e2e::finish());  // after a fault no object can be released
}

// For scenarios: expects that at least `mib` can be allocated, and frees none of it.
void eat(size_t mib) {
  const Kernels kernels;
  const uint32_t got = kernels.eat(1024);
  printf("# %u MiB of %zu\n", got, limit_of(CU_LIMIT_MALLOC_HEAP_SIZE) / kMiB);
  e2e::expect(got >= mib, "%zu MiB", mib);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string group = argc > 1 ? argv[1] : "";
  if (group == "heap") heap();
  if (group == "stack") stack();
  if (group == "overflow") overflow();
  if (group == "fixed") fixed();
  if (group == "eat") eat(e2e::argument(argc, argv, 2, 4));
  return e2e::finish();
}
