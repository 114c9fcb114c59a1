// SPDX-License-Identifier: Apache-2.0
// Declarations for the two files of separate_compilation.
#pragma once

extern __device__ int shared_bonus;
extern __constant__ int weights[4];
using Operation = int (*)(int);
extern __device__ Operation operations[2];
__device__ int scaled(int value);
void launch_fill(int* out, int count, int value);
