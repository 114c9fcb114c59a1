// SPDX-License-Identifier: Apache-2.0
// Compiles only if every generated prototype agrees with the toolkit's: cuda/abi.h is the
// stand-in of toolkit_abi/ here, so api/prototypes.h declares each function a second time.
#include "cuda/abi.h"
// cuda.h leaves names behind that stand for others.
#undef cuGraphInstantiate
#include "api/prototypes.h"
