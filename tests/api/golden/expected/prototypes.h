// SPDX-License-Identifier: Apache-2.0
// Generated from api/*.toml by api/generate.py; do not edit.
// Prototypes of every exported symbol of the driver library, for both of ours.
#pragma once

#include "cuda/abi.h"

#define OPENMPS_EXPORT __attribute__((visibility("default")))

extern "C" {

OPENMPS_EXPORT CUresult cuEventRecord(CUevent hEvent, CUstream hStream);
OPENMPS_EXPORT CUresult cuEventRecord_ptsz(CUevent hEvent, CUstream hStream);
OPENMPS_EXPORT CUresult cuGraphAddThings(CUgraphNode* node, CUgraph graph,
    const CUgraphNode* before, size_t count, const CUDA_MEMSET_NODE_PARAMS* fill,
    const char* label, char* text, int bytes, int* state, float* pairs, void* place,
    CUdevice dev, unsigned char* tag);
OPENMPS_EXPORT CUresult cuInit(unsigned int Flags);
OPENMPS_EXPORT CUresult cuLater();
OPENMPS_EXPORT CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction f,
    void** kernelParams, void** extra);
OPENMPS_EXPORT CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig* config, CUfunction f,
    void** kernelParams, void** extra);
OPENMPS_EXPORT CUresult cuMemsetD8(CUdeviceptr dstDevice, unsigned char uc, size_t N);
OPENMPS_EXPORT CUresult cuMemsetD8_v2(CUdeviceptr dstDevice, unsigned char uc, size_t N);
OPENMPS_EXPORT CUresult cuMemsetD8_v2_ptds(CUdeviceptr dstDevice, unsigned char uc, size_t N);
OPENMPS_EXPORT CUresult cuNever(int x);

}  // extern "C"
