// SPDX-License-Identifier: Apache-2.0
// What the worker must know of an image's code, read from its symbols: does it print, assert,
// allocate, have variables? When the image does not say, the answer is yes. Called when an
// image is loaded; any thread.
#pragma once

#include <cstdint>

#include "cuda/fatbin.h"

namespace openmps::worker {

struct ImageFacts {
  bool prints = true;     // refers to the device's printf
  bool asserts = true;    // refers to the device's assert
  bool allocates = true;  // refers to the device's malloc
  // In device memory, which programs may write; what nobody writes does not count
  // (image_variables.h).
  bool has_variables = true;
  // In constant memory, which only its host program writes; constants that nobody writes do not
  // count.
  bool has_constants = true;
  bool has_nobodys = false;    // it has some that do not count (of variables: variable_bytes)
  bool has_references = true;  // to textures and surfaces, of its module
  bool is_managed = true;      // some variables are managed
  // Reads or writes textures or surfaces, whose objects are a context's own, as far as its PTX
  // says. Machine code alone does not: then false, and array.cc refuses what would go wrong.
  bool uses_images = false;
  bool compiles = true;         // PTX, no machine code for the device
  uint64_t variable_bytes = 0;  // in device memory, as far as the image says

  // Each program needs its own.
  [[nodiscard]] bool binds() const { return has_variables || has_constants || has_references; }
};

// `image` has passed check_image_bounds. `capability`: 10 * major + minor of the device; of a
// fatbin only the machine code for that device counts, or without any its PTX; of several, which
// are linked, the first, or all others if it has no code for the device.
ImageFacts read_image_facts(cuda::Bytes image, uint32_t capability);

// How many bytes of machine code that looks into, unpacked, as far as their headers say. 0: none,
// so the driver compiles, or nothing that can be read.
uint64_t machine_code_bytes(cuda::Bytes image, uint32_t capability);

}  // namespace openmps::worker
