// SPDX-License-Identifier: Apache-2.0
// What the worker must know of an image's code, read from its symbols: whether it prints, asserts,
// allocates, has variables. Where the image does not say, the answer is yes. Called when an image
// is loaded; any thread.
#pragma once

#include <cstdint>

#include "cuda/fatbin.h"

namespace openmps::worker {

struct ImageFacts {
  bool prints = true;     // refers to the device's printf
  bool asserts = true;    // refers to the device's assert
  bool allocates = true;  // refers to the device's malloc
  // It has variables in device memory, which programs may write, other than those that no program
  // writes (image_variables.h).
  bool has_variables = true;
  // It has variables in constant memory, which only the host program writes, other than those that
  // no program writes.
  bool has_constants = true;
  bool has_nobodys =
      false;  // it has variables that no program writes (in device memory: see variable_bytes)
  bool has_references = true;  // to textures and surfaces of its module
  bool is_managed = true;      // some variables are managed
  // It reads or writes textures or surfaces, whose objects belong to one context, as far as its PTX
  // says. Machine code does not say: then false, and array.cc refuses what would go wrong.
  bool uses_images = false;
  bool compiles = true;         // it is PTX without machine code for the device
  uint64_t variable_bytes = 0;  // in device memory, as far as the image says

  // Each program needs a library of its own.
  [[nodiscard]] bool binds() const { return has_variables || has_constants || has_references; }
};

// `image` has passed check_image_bounds. `capability`: 10 * major + minor of the device. Of a
// fatbin the machine code for that device counts, or its PTX if there is none; of several
// containers, which are linked, the first, or all others if that has no code for the device.
ImageFacts read_image_facts(cuda::Bytes image, uint32_t capability);

}  // namespace openmps::worker
