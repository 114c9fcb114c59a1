// SPDX-License-Identifier: Apache-2.0
// The driver of this process, which records and which knows the numbers of contexts and streams.
// Any thread.
#pragma once

#include "cupti/activity.h"

namespace openmps::cupti {

// Of the libcuda.so.1 that the program has loaded, or would load. Null: it records nothing for us:
// it is NVIDIA's, or OpenMPS's in a program that runs without a daemon.
const ActivityTable* activity_table();

// One of that library's functions, or null.
void* driver_symbol(const char* name);

template <typename Function>
Function* driver_function(const char* name) {
  return reinterpret_cast<Function*>(driver_symbol(name));
}

}  // namespace openmps::cupti
