// SPDX-License-Identifier: Apache-2.0
// Generated from api/*.toml by api/generate.py; do not edit.
// What the client library does for each symbol when it is connected. Functions of
// the classes local and service are written by hand in src/client, all others are
// generated (client_entry.cc).
#pragma once

#include "api/client_hooks.h"
#include "api/driver_table.h"
#include "cuda/abi.h"

namespace openmps::client::impl {

// Has a stream: the variant replaces NULL.
CUresult cuEventRecord(CUevent hEvent, CUstream hStream);
CUresult cuEventRecord_ptsz(CUevent hEvent, CUstream hStream);
CUresult cuGraphAddThings(CUgraphNode* node, CUgraph graph, const CUgraphNode* before,
    size_t count, const CUDA_MEMSET_NODE_PARAMS* fill, const char* label, char* text, int bytes,
    int* state, float* pairs, void* place, CUdevice dev, unsigned char* tag);
// Starts.
CUresult cuInit(unsigned int Flags);
CUresult cuLater();
// Has its stream in a structure.
CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction f, void** kernelParams,
    void** extra);
CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig* config, CUfunction f, void** kernelParams,
    void** extra);
CUresult cuMemsetD8(CUdeviceptr dstDevice, unsigned char uc, size_t N);
// Has no stream: the variant opens a scope.
CUresult cuMemsetD8_v2(CUdeviceptr dstDevice, unsigned char uc, size_t N);
CUresult cuMemsetD8_v2_ptds(CUdeviceptr dstDevice, unsigned char uc, size_t N);
CUresult cuNever(int x);

}  // namespace openmps::client::impl
