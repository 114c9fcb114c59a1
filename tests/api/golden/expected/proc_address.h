// SPDX-License-Identifier: Apache-2.0
// Generated from api/*.toml by api/generate.py; do not edit.
// Which symbol cuGetProcAddress hands out for a name, a CUDA version and flags.
// Pure look-up in constant tables; any thread.
#pragma once

#include <cstdint>
#include <string_view>

#include "cuda/abi.h"

namespace openmps {

// True, *symbol (a DriverSymbol as number) and *status = CU_GET_PROC_ADDRESS_SUCCESS when the name
// has a symbol for the version: the newest that is not newer than `cuda_version`. With the flag
// CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM (with or without the flag for legacy streams) a
// name that has per-thread variants gives only those. Otherwise false with the reason in *status and *symbol untouched.
// The rest is the caller's. As measured on NVIDIA's driver 580, cuGetProcAddress_v2 returns
// CUDA_SUCCESS with a null pointer for what is not found, and CUDA_ERROR_INVALID_VALUE for flags
// above 3 and for a version newer than the driver.
bool find_proc(std::string_view name, int cuda_version, uint64_t flags, uint16_t* symbol,
               CUdriverProcAddressQueryResult* status);

}  // namespace openmps
