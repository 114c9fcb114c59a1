// SPDX-License-Identifier: Apache-2.0
// What a program sees of its limits, and of its termination by the service: prints the number of
// SMs and the memory that it is told and, after a line on standard input, the results of a launch
// and an allocation. With `device` it prints the device's PCI address, UUID and name instead,
// separated by tabs. Run by the scenario `transcript`. usage: drv_limited [device]
#include <unistd.h>

#include "driver.h"

namespace {

int print_device(CUdevice device) {
  char pci[32] = "";
  char name[256] = "";
  CUuuid uuid{};
  CHECK_CU(cuDeviceGetPCIBusId(pci, sizeof(pci), device));
  CHECK_CU(cuDeviceGetUuid_v2(&uuid, device));
  CHECK_CU(cuDeviceGetName(name, sizeof(name), device));
  printf("%s\tGPU-", pci);
  for (int i = 0; i < 16; i++) {
    printf(i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x",
           static_cast<unsigned char>(uuid.bytes[i]));
  }
  printf("\t%s\n", name);
  return 0;
}

}  // namespace

int main(int argc, char**) {
  e2e::Session session;
  if (argc > 1) return print_device(session.device);
  const CUfunction kernel = session.function("empty");
  int sms = 0;
  size_t free = 0;
  size_t total = 0;
  CHECK_CU(cuDeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, session.device));
  CHECK_CU(cuMemGetInfo_v2(&free, &total));
  printf("sms %d mem (%zu, %zu)\n", sms, free, total);
  if (getchar() == EOF) return 2;
  CUresult result = e2e::try_launch(kernel, 1, 1, 0, nullptr);
  if (result == CUDA_SUCCESS) result = cuCtxSynchronize();
  printf("EXC %s\n", e2e::name(result));
  CUdeviceptr address = 0;
  printf("ALLOC %s\n", e2e::name(cuMemAlloc_v2(&address, 1 << 20)));
  fflush(stdout);
  _exit(0);  // objects of a terminated session can't be released
}
