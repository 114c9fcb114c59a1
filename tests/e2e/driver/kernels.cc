// SPDX-License-Identifier: Apache-2.0
// Embeds the PTX that clang made of kernels.cu (E2E_KERNELS_PTX is its path) as a NUL-terminated
// text.
#include "driver.h"

asm(".pushsection .rodata\n"
    ".globl e2e_kernels_ptx\n"
    ".type e2e_kernels_ptx, @object\n"
    "e2e_kernels_ptx: .incbin \"" E2E_KERNELS_PTX
    "\"\n"
    ".byte 0\n"
    ".size e2e_kernels_ptx, . - e2e_kernels_ptx\n"
    ".popsection\n");
extern "C" __attribute__((visibility("hidden"))) const char e2e_kernels_ptx[];

namespace e2e {
const char* kernels_ptx() { return e2e_kernels_ptx; }
}  // namespace e2e
