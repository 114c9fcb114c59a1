// SPDX-License-Identifier: Apache-2.0
// How much of each kind one client may make a worker hold, except device memory
// (CUDA_MPS_PINNED_DEVICE_MEM_LIMIT). Far above what honest programs need, and small enough that
// the worker survives the largest number of clients with all limits used up. A call beyond a limit
// returns CUDA_ERROR_OUT_OF_MEMORY. docs/limits.md lists all limits.
#pragma once

#include <cstdint>

#include "wire/layout.h"

namespace openmps::wire {

// Live objects of one type in one session, unless there is a constant for the type below.
inline constexpr uint32_t kMaxObjects = 1u << 20;

// Streams, also those that were destroyed while they had work: a client has a fence slot for each,
// and notices their end a moment before the worker does.
inline constexpr uint32_t kMaxStreams = 2 * kFenceSlots;
// A driver's event takes some 100 bytes of the worker's memory and a slot of the device's; PyTorch
// keeps a few thousand.
inline constexpr uint32_t kMaxEvents = 1u << 18;
// Texture and surface objects: a GPU has 2^20 descriptors for all of a context.
inline constexpr uint32_t kMaxImageObjects = 1u << 16;
inline constexpr uint32_t kMaxModules = 1u << 16;
inline constexpr uint32_t kMaxGraphExecs = 1u << 16;
// Mappings of device memory, registrations of host memory and globals: memory of 141 GB in pieces
// of 2 MiB has some 67,000.
inline constexpr uint32_t kMaxMappings = 1u << 18;

// Bytes of images that were announced and not yet loaded: more than the largest library of images
// in CUDA 13.0 (libcublasLt, 542 MB whole).
inline constexpr uint64_t kMaxAnnouncedBytes = 640 * kMiB;
// Bytes of all images of a session: announced, given to links that are open, and of live modules.
// The largest known, those of PyTorch's libraries, are below 2 GiB together.
inline constexpr uint64_t kMaxSessionImageBytes = 4 * kGiB;
// Bytes of the nodes of all executable graphs and of the descriptions under way, their edges and
// parameters: 10^5 nodes of a large training step take some 50 MB.
inline constexpr uint64_t kMaxGraphBytes = kGiB;

// Nodes of all executable graphs of a session, and of the description under way. The largest
// captured graphs known have some 10^5.
inline constexpr uint32_t kMaxGraphNodes = 1u << 20;
// Conditional handles of all graphs of a session, and how deep conditional nodes may be nested and
// how many bodies one may have; CUDA names no limits, programs use a handful of each.
inline constexpr uint32_t kMaxConditions = 1u << 16;
inline constexpr uint32_t kMaxConditionalDepth = 32;
inline constexpr uint32_t kMaxConditionalBodies = 4096;

// Resources, resource descriptors and green contexts of one session. CUDA has no call that releases
// a resource or a descriptor.
inline constexpr uint32_t kMaxResources = 1u << 16;
inline constexpr uint32_t kMaxDescriptors = 4096;
inline constexpr uint32_t kMaxGreenContexts = 256;
// Device memory that a green context occupies; measured on an H200.
inline constexpr uint64_t kGreenContextBytes = 5 * kMiB;

}  // namespace openmps::wire
