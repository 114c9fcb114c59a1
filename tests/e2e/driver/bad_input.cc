// SPDX-License-Identifier: Apache-2.0
// Bad input of every kind gets the error that CUDA documents, and the context works afterwards.
// "images" are broken modules, "handles" are null and invented handles, "destroyed" are handles
// after their end (NVIDIA's driver may crash on some of those, so that group is not run natively),
// "memory" and "launches" are bad ranges and bad configurations. Run by run_e2e.py. usage:
// drv_bad_input images|handles|destroyed|memory|launches
#include <string>

#include "driver.h"

namespace {

using e2e::expect_result;

bool device_works(const e2e::Session& session) {
  e2e::Buffer<uint32_t> word(std::vector<uint32_t>{3});
  e2e::launch(session.function("mix"), 1, 32, 0, nullptr, word.address, 1u, 4u);
  return word.get()[0] == 19;
}

// The header of a fatbin container, as nvcc writes it: magic, version 1, header of 16 bytes.
std::vector<unsigned char> fatbin(uint64_t payload_claimed, size_t payload_present) {
  std::vector<unsigned char> image(16 + payload_present, 0x5a);
  const uint32_t magic = 0xba55ed50u;
  const uint16_t version = 1, header = 16;
  memcpy(&image[0], &magic, 4);
  memcpy(&image[4], &version, 2);
  memcpy(&image[6], &header, 2);
  memcpy(&image[8], &payload_claimed, 8);
  return image;
}

void images(const e2e::Session&) {
  const std::string good = e2e::kernels_ptx();
  const auto load = [](const char* text) {
    CUmodule module = nullptr;
    return cuModuleLoadData(&module, text);
  };
  expect_result("syntax error in PTX", load((good + "\n.visible .entry broken( {\n").c_str()),
                CUDA_ERROR_INVALID_PTX);
  std::string garbled = good;
  garbled.replace(garbled.find("ld.global"), 9, "ld , global");
  expect_result("misplaced comma in PTX", load(garbled.c_str()), CUDA_ERROR_INVALID_PTX);
  expect_result("PTX cut in the middle", load(good.substr(0, good.size() / 2).c_str()),
                CUDA_ERROR_INVALID_PTX);
  std::string future = good;
  const size_t version_at = future.find(".version ");
  future.replace(version_at, future.find('\n', version_at) - version_at, ".version 99.0");
  expect_result("PTX of a future version", load(future.c_str()),
                CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
  expect_result("text that is no PTX", load("This is not a module at all.\n"),
                {CUDA_ERROR_INVALID_IMAGE, CUDA_ERROR_INVALID_PTX});
  expect_result("empty image", load(""), {CUDA_ERROR_INVALID_IMAGE, CUDA_ERROR_INVALID_PTX});
  expect_result("null image", load(nullptr), CUDA_ERROR_INVALID_VALUE);

  CUmodule module = nullptr;
  const std::vector<unsigned char> garbage = fatbin(256, 256), no_entries = fatbin(0, 64);
  expect_result("fatbin of garbage", cuModuleLoadFatBinary(&module, garbage.data()),
                {CUDA_ERROR_INVALID_IMAGE, CUDA_ERROR_NO_BINARY_FOR_GPU});
  expect_result("fatbin without entries", cuModuleLoadData(&module, no_entries.data()),
                {CUDA_ERROR_NO_BINARY_FOR_GPU, CUDA_ERROR_INVALID_IMAGE});
  CUlibrary library = nullptr;
  // A library may be loaded lazily. Then the error is reported when it is first used.
  CUresult lazily =
      cuLibraryLoadData(&library, garbage.data(), nullptr, nullptr, 0, nullptr, nullptr, 0);
  CUkernel kernel = nullptr;
  if (lazily == CUDA_SUCCESS) lazily = cuLibraryGetKernel(&kernel, library, "mix");
  expect_result("library of garbage", lazily,
                {CUDA_ERROR_INVALID_IMAGE, CUDA_ERROR_NO_BINARY_FOR_GPU, CUDA_ERROR_NOT_FOUND});

  // The JIT log names the line with the error.
  char log[512] = "";
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {log, reinterpret_cast<void*>(sizeof log)};
  expect_result("syntax error with a log",
                cuModuleLoadDataEx(&module, garbled.c_str(), 2, options, values),
                CUDA_ERROR_INVALID_PTX);
  e2e::expect(strstr(log, "line") != nullptr, "the log names a line");
  printf("# log: %.*s\n", static_cast<int>(strcspn(log, "\n")), log);
}

void handles(const e2e::Session& session) {
  CUfunction function = nullptr;
  CUdevice device = 0;
  expect_result("device 99", cuDeviceGet(&device, 99), CUDA_ERROR_INVALID_DEVICE);
  expect_result("device -1", cuDeviceGet(&device, -1), CUDA_ERROR_INVALID_DEVICE);
  int value = 0;
  expect_result("attribute 9999",
                cuDeviceGetAttribute(&value, static_cast<CUdevice_attribute>(9999), 0),
                CUDA_ERROR_INVALID_VALUE);
  expect_result("attribute of device 99",
                cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 99),
                CUDA_ERROR_INVALID_DEVICE);
  CUcontext context = nullptr;
  expect_result("context on device 99", cuCtxCreate_v2(&context, 0, 99), CUDA_ERROR_INVALID_DEVICE);
  expect_result("primary context of device 99", cuDevicePrimaryCtxRetain(&context, 99),
                CUDA_ERROR_INVALID_DEVICE);
  expect_result("null module", cuModuleGetFunction(&function, nullptr, "mix"),
                {CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_INVALID_VALUE});
  expect_result("unload of null", cuModuleUnload(nullptr),
                {CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_INVALID_VALUE});
  expect_result("null kernel name", cuModuleGetFunction(&function, session.module, nullptr),
                CUDA_ERROR_INVALID_VALUE);
  expect_result("launch of null",
                cuLaunchKernel(nullptr, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr),
                {CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_INVALID_VALUE});
  expect_result("null event", cuEventSynchronize(nullptr), CUDA_ERROR_INVALID_HANDLE);
  expect_result("record of null", cuEventRecord(nullptr, nullptr), CUDA_ERROR_INVALID_HANDLE);
  expect_result("query of null", cuEventQuery(nullptr), CUDA_ERROR_INVALID_HANDLE);
  CUstream stream = nullptr;
  CUevent event = nullptr;
  expect_result("stream flags", cuStreamCreate(&stream, 0x80), CUDA_ERROR_INVALID_VALUE);
  expect_result("event flags", cuEventCreate(&event, 0x80), CUDA_ERROR_INVALID_VALUE);
  expect_result("null result", cuStreamCreate(nullptr, 0), CUDA_ERROR_INVALID_VALUE);
  expect_result("null result of an allocation", cuMemAlloc_v2(nullptr, 16),
                CUDA_ERROR_INVALID_VALUE);
  const char* text = nullptr;
  expect_result("name of no error", cuGetErrorName(static_cast<CUresult>(12345), &text),
                CUDA_ERROR_INVALID_VALUE);
  expect_result("graph launch of null", cuGraphLaunch(nullptr, nullptr),
                {CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_INVALID_VALUE});
  expect_result("library unload of null", cuLibraryUnload(nullptr),
                {CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_INVALID_VALUE});
  expect_result("unknown flags of cuInit", cuInit(77), CUDA_ERROR_INVALID_VALUE);
}

template <typename Handle>
Handle invented() {
  return reinterpret_cast<Handle>(static_cast<uintptr_t>(0xdeadbee0));
}

void destroyed(const e2e::Session& session) {
  CUstream stream = nullptr;
  CUevent event = nullptr;
  CUmodule module = nullptr;
  CUcontext context = nullptr;
  CUfunction function = nullptr;
  const CUfunction mix = session.function("mix");
  CHECK_CU(cuStreamCreate(&stream, 0));
  CHECK_CU(cuStreamDestroy_v2(stream));
  const std::initializer_list<CUresult> gone = {
      CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_CONTEXT_IS_DESTROYED, CUDA_ERROR_INVALID_CONTEXT};
  expect_result("synchronising a destroyed stream", cuStreamSynchronize(stream), gone);
  expect_result("destroying a stream twice", cuStreamDestroy_v2(stream), gone);
  expect_result(
      "launch into a destroyed stream",
      cuLaunchKernel(mix, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr),
      {CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_CONTEXT_IS_DESTROYED, CUDA_ERROR_INVALID_VALUE});
  expect_result("invented stream", cuStreamQuery(invented<CUstream>()), gone);
  CHECK_CU(cuEventCreate(&event, 0));
  CHECK_CU(cuEventDestroy_v2(event));
  expect_result("recording a destroyed event", cuEventRecord(event, nullptr), gone);
  expect_result("destroying an event twice", cuEventDestroy_v2(event), gone);
  expect_result("invented event", cuEventQuery(invented<CUevent>()), gone);
  CHECK_CU(cuModuleLoadData(&module, e2e::kernels_ptx()));
  CHECK_CU(cuModuleGetFunction(&function, module, "mix"));
  CHECK_CU(cuModuleUnload(module));
  expect_result("function of an unloaded module", cuModuleGetFunction(&function, module, "mix"),
                gone);
  expect_result("unloading twice", cuModuleUnload(module), gone);
  e2e::Buffer<uint32_t> word(1);
  expect_result("launch of an unloaded function",
                e2e::try_launch(function, 1, 1, 0, nullptr, word.address, 1u, 1u), gone);
  expect_result("invented function",
                e2e::try_launch(invented<CUfunction>(), 1, 1, 0, nullptr, word.address, 1u, 1u),
                gone);
  CHECK_CU(cuCtxCreate_v2(&context, 0, session.device));
  CHECK_CU(cuCtxDestroy_v2(context));
  const std::initializer_list<CUresult> no_context = {
      CUDA_ERROR_INVALID_CONTEXT, CUDA_ERROR_CONTEXT_IS_DESTROYED, CUDA_ERROR_INVALID_VALUE};
  expect_result("making a destroyed context current", cuCtxSetCurrent(context), no_context);
  expect_result("destroying a context twice", cuCtxDestroy_v2(context), no_context);
  expect_result("invented context", cuCtxPushCurrent_v2(invented<CUcontext>()), no_context);
  CHECK_CU(cuCtxSetCurrent(session.context));
}

void memory(const e2e::Session&) {
  CUdeviceptr address = 0;
  expect_result("allocation of 0 bytes", cuMemAlloc_v2(&address, 0), CUDA_ERROR_INVALID_VALUE);
  expect_result("allocation of 1 EiB", cuMemAlloc_v2(&address, 1ull << 60),
                CUDA_ERROR_OUT_OF_MEMORY);
  CHECK_CU(cuMemAlloc_v2(&address, 1000));
  CHECK_CU(cuMemFree_v2(address));
  expect_result("double free", cuMemFree_v2(address), CUDA_ERROR_INVALID_VALUE);
  expect_result("free of address 1", cuMemFree_v2(1), CUDA_ERROR_INVALID_VALUE);
  constexpr size_t kSize =
      4 << 20;  // an allocation of its own, so that its end is the end of a mapping
  CHECK_CU(cuMemAlloc_v2(&address, kSize));
  expect_result("free inside an allocation", cuMemFree_v2(address + 512), CUDA_ERROR_INVALID_VALUE);
  std::vector<unsigned char> host(kSize * 2);
  expect_result("copy in past the end", cuMemcpyHtoD_v2(address + kSize - 100, host.data(), kSize),
                CUDA_ERROR_INVALID_VALUE);
  expect_result("copy out past the end", cuMemcpyDtoH_v2(host.data(), address, kSize + (1 << 20)),
                CUDA_ERROR_INVALID_VALUE);
  expect_result("copy to address 64", cuMemcpyHtoD_v2(64, host.data(), 16),
                CUDA_ERROR_INVALID_VALUE);
  expect_result("set past the end", cuMemsetD8_v2(address + kSize / 2, 0, kSize),
                CUDA_ERROR_INVALID_VALUE);
  expect_result(
      "2D copy wider than its pitch",
      [&] {
        CUDA_MEMCPY2D copy = {};
        copy.srcMemoryType = CU_MEMORYTYPE_HOST;
        copy.srcHost = host.data();
        copy.srcPitch = 10;
        copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
        copy.dstDevice = address;
        copy.dstPitch = 100;
        copy.WidthInBytes = 50;
        copy.Height = 2;
        return cuMemcpy2D_v2(&copy);
      }(),
      CUDA_ERROR_INVALID_VALUE);
  void* never_pinned = host.data();
  expect_result("free of pageable memory", cuMemFreeHost(never_pinned), CUDA_ERROR_INVALID_VALUE);
  CUdeviceptr base = 0;
  size_t size = 0;
  expect_result("range of no allocation", cuMemGetAddressRange_v2(&base, &size, 4096),
                {CUDA_ERROR_NOT_FOUND, CUDA_ERROR_INVALID_VALUE});
  CHECK_CU(cuMemFree_v2(address));
}

void launches(const e2e::Session& session) {
  e2e::Buffer<uint32_t> word(1);
  const CUfunction mix = session.function("mix");
  const auto with = [&](unsigned gx, unsigned gy, unsigned bx, unsigned bz, unsigned shared) {
    uint32_t n = 1, key = 1;
    CUdeviceptr address = word.address;
    void* parameters[] = {&address, &n, &key};
    return cuLaunchKernel(mix, gx, gy, 1, bx, 1, bz, shared, nullptr, parameters, nullptr);
  };
  expect_result("1025 threads", with(1, 1, 1025, 1, 0), CUDA_ERROR_INVALID_VALUE);
  expect_result("512 x 3 threads", with(1, 1, 512, 3, 0), CUDA_ERROR_INVALID_VALUE);
  expect_result("block depth 65", with(1, 1, 1, 65, 0), CUDA_ERROR_INVALID_VALUE);
  expect_result("no threads", with(1, 1, 0, 1, 0), CUDA_ERROR_INVALID_VALUE);
  expect_result("no blocks", with(0, 1, 32, 1, 0), CUDA_ERROR_INVALID_VALUE);
  expect_result("grid height 65536", with(1, 65536, 32, 1, 0), CUDA_ERROR_INVALID_VALUE);
  expect_result("1 MiB of shared memory", with(1, 1, 32, 1, 1 << 20), CUDA_ERROR_INVALID_VALUE);
  size_t bytes = 3;  // too few for the kernel's parameters
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &word, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                   CU_LAUNCH_PARAM_END};
  void* both[] = {&bytes};
  expect_result("parameters given twice",
                cuLaunchKernel(mix, 1, 1, 1, 1, 1, 1, 0, nullptr, both, extra),
                CUDA_ERROR_INVALID_VALUE);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string group = argc > 1 ? argv[1] : "";
  e2e::Session session;
  if (group == "images") {
    images(session);
  } else if (group == "handles") {
    handles(session);
  } else if (group == "destroyed") {
    destroyed(session);
  } else if (group == "memory") {
    memory(session);
  } else if (group == "launches") {
    launches(session);
  } else {
    return fprintf(stderr, "drv_bad_input: unknown group '%s'\n", group.c_str()), 2;
  }
  e2e::expect(device_works(session), "the context works afterwards");
  return e2e::finish();
}
