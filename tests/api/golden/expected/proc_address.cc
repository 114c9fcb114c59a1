// SPDX-License-Identifier: Apache-2.0
// Generated from api/*.toml by api/generate.py; do not edit.
// The tables behind find_proc: a perfect hash of names, versions per name.

#include "api/proc_address.h"

#include <cstddef>

namespace openmps {
namespace {

struct Version {
  int since;
  uint16_t symbol;
};

struct Name {
  std::string_view name;
  uint16_t first;             // of its versions, newest first: default ones, then per-thread ones
  uint8_t default_count;
  uint8_t per_thread_count;
};

constexpr uint16_t kSeeds[] = {
    1, 6, 1,
};

constexpr Version kVersions[] = {
    {3020, 8},  // cuMemsetD8_v2
    {2000, 7},  // cuMemsetD8
    {7000, 9},  // cuMemsetD8_v2_ptds
    {12000, 2},  // cuGraphAddThings
    {2000, 0},  // cuEventRecord
    {7000, 1},  // cuEventRecord_ptsz
    {2000, 3},  // cuInit
    {13000, 4},  // cuLater
    {11060, 5},  // cuLaunchKernelEx
    {11060, 6},  // cuLaunchKernelEx_ptsz
    {13000, 10},  // cuNever
};

constexpr Name kNames[] = {
    {"cuMemsetD8", 0, 2, 1},
    {"cuGraphAddThings", 3, 1, 0},
    {"cuEventRecord", 4, 1, 1},
    {"cuInit", 6, 1, 0},
    {"cuLater", 7, 1, 0},
    {"cuLaunchKernelEx", 8, 1, 1},
    {"cuNever", 10, 1, 0},
};

// The same arithmetic as api/generator/perfect_hash.py.
constexpr uint32_t hash_name(std::string_view name, uint32_t seed) {
  uint32_t value = 0x811C9DC5u ^ seed;
  for (char c : name) value = (value ^ static_cast<unsigned char>(c)) * 0x01000193u;
  value ^= value >> 15;
  return value * 0x2C1B3C6Du;
}

}  // namespace

bool find_proc(std::string_view name, int cuda_version, uint64_t flags, uint16_t* symbol,
               CUdriverProcAddressQueryResult* status) {
  const uint32_t seed = kSeeds[hash_name(name, 0) % std::size(kSeeds)];
  const Name& entry = kNames[hash_name(name, seed) % std::size(kNames)];
  if (entry.name != name) {
    *status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return false;
  }
  const bool per_thread = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0 &&
                          entry.per_thread_count != 0;
  const Version* version = kVersions + entry.first + (per_thread ? entry.default_count : 0);
  const size_t count = per_thread ? entry.per_thread_count : entry.default_count;
  for (size_t i = 0; i < count; ++i) {
    if (version[i].since <= cuda_version) {
      *symbol = version[i].symbol;
      *status = CU_GET_PROC_ADDRESS_SUCCESS;
      return true;
    }
  }
  *status = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
  return false;
}

}  // namespace openmps
