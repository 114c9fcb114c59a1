// SPDX-License-Identifier: Apache-2.0
// Embeds the PTX that clang made of the kernels (in E2E_PTX_FOLDER) as NUL-terminated texts.
#include "driver.h"

#define EMBED(kernels)                                                               \
  asm(".pushsection .rodata\n"                                                       \
      ".globl e2e_" #kernels                                                         \
      "_ptx\n"                                                                       \
      ".type e2e_" #kernels                                                          \
      "_ptx, @object\n"                                                              \
      "e2e_" #kernels "_ptx: .incbin \"" E2E_PTX_FOLDER "/" #kernels                 \
      ".ptx\"\n"                                                                     \
      ".byte 0\n"                                                                    \
      ".size e2e_" #kernels "_ptx, . - e2e_" #kernels                                \
      "_ptx\n"                                                                       \
      ".popsection\n");                                                              \
  extern "C" __attribute__((visibility("hidden"))) const char e2e_##kernels##_ptx[]; \
  namespace e2e {                                                                    \
  const char* kernels##_ptx() { return e2e_##kernels##_ptx; }                        \
  }

EMBED(kernels)
EMBED(condition_kernels)
EMBED(stateless_kernels)
