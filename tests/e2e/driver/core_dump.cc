// SPDX-License-Identifier: Apache-2.0
// The contents of a program's core dump: the program's memory, including pinned and managed memory,
// and no more than some MB of the driver's. The size of a dump is computed from the mappings by the
// kernel's rules. Run by run_e2e.py. usage: drv_core_dump
#include <sys/mman.h>

#include <string>

#include "driver.h"

namespace {

constexpr size_t kBytes = 4 << 20;
constexpr uint64_t kMostBytes = 512ull << 20;

struct Dump {
  uint64_t bytes = 0;
  bool has_it = false;  // the dump has the address
};

// The kernel dumps shared memory as a whole, also pages that were never touched, and of private
// memory the pages that exist.
Dump dump_with(const void* address) {
  Dump dump;
  FILE* maps = fopen("/proc/self/smaps", "re");
  if (maps == nullptr) exit(1);
  char line[1024];
  uint64_t begin = 0;
  uint64_t end = 0;
  uint64_t resident = 0;
  char access[8] = {};
  while (fgets(line, sizeof(line), maps) != nullptr) {
    unsigned long from = 0;
    unsigned long to = 0;
    char how[8] = {};
    if (sscanf(line, "%lx-%lx %7s", &from, &to, how) == 3) {
      begin = from;
      end = to;
      memcpy(access, how, sizeof(access));
    } else if (strncmp(line, "Rss:", 4) == 0) {
      resident = strtoull(line + 4, nullptr, 10) << 10;
    } else if (strncmp(line, "VmFlags:", 8) == 0) {
      const std::string flags = line;
      // Excluded by madvise(), or not backed by memory.
      const bool left_out = flags.find(" dd") != std::string::npos;
      if (left_out || flags.find(" io") != std::string::npos) continue;
      dump.bytes += access[3] == 's' ? end - begin : resident;
      const auto wanted = reinterpret_cast<uint64_t>(address);
      dump.has_it = dump.has_it || (wanted >= begin && wanted < end);
    }
  }
  fclose(maps);
  return dump;
}

}  // namespace

int main() {
  e2e::Session session;
  const e2e::Buffer<unsigned char> device(16 * kBytes);
  CHECK_CU(cuMemsetD8_v2(device.address, 1, device.bytes()));

  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  constexpr size_t kReserved = 2ull << 30;
  CUdeviceptr reserved = 0;
  CUmemGenericAllocationHandle physical = 0;
  CHECK_CU(cuMemAddressReserve(&reserved, kReserved, 0, 0, 0));
  CHECK_CU(cuMemCreate(&physical, kReserved, &properties, 0));
  CHECK_CU(cuMemMap(reserved, kReserved, 0, physical, 0));
  const CUmemAccessDesc access = {properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CHECK_CU(cuMemSetAccess(reserved, kReserved, &access, 1));

  void* pinned = nullptr;
  CHECK_CU(cuMemAllocHost_v2(&pinned, kBytes));
  memset(pinned, 1, kBytes);
  void* small = nullptr;
  CHECK_CU(cuMemAllocHost_v2(&small, 64));
  memset(small, 1, 64);
  CUdeviceptr managed = 0;
  CHECK_CU(cuMemAllocManaged(&managed, kBytes, CU_MEM_ATTACH_GLOBAL));
  memset(reinterpret_cast<void*>(managed), 1, kBytes);
  void* registered =
      mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  memset(registered, 1, kBytes);
  CHECK_CU(cuMemHostRegister_v2(registered, kBytes, 0));
  CHECK_CU(cuCtxSynchronize());

  const Dump dump = dump_with(pinned);
  e2e::expect(dump.bytes < kMostBytes, "a dump is small");
  printf("# %llu MiB\n", static_cast<unsigned long long>(dump.bytes >> 20));
  e2e::expect(dump.has_it, "pinned memory is in it");
  e2e::expect(dump_with(small).has_it, "a little of it as well");
  e2e::expect(dump_with(reinterpret_cast<void*>(managed)).has_it, "managed memory is in it");
  e2e::expect(dump_with(registered).has_it, "registered memory is in it");

  CHECK_CU(cuMemHostUnregister(registered));
  CHECK_CU(cuMemFree_v2(managed));
  CHECK_CU(cuMemFreeHost(small));
  CHECK_CU(cuMemFreeHost(pinned));
  CHECK_CU(cuMemUnmap(reserved, kReserved));
  CHECK_CU(cuMemRelease(physical));
  CHECK_CU(cuMemAddressFree(reserved, kReserved));
  return e2e::finish();
}
