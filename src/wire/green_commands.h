// SPDX-License-Identifier: Apache-2.0
// The commands of green contexts and of events of a whole context: resources of a device, their
// parts, and what is made of them. Part of commands.h, and normative like it.
//
// A CUdevResource is the driver's: what it holds beside its public fields is not known here. Values
// travel as they are, and the worker takes only those that it gave to the session.
#pragma once

#include "wire/commands.h"

namespace openmps::wire {

// More than any GPU has SMs: a split into more groups is none.
inline constexpr uint32_t kMaxResourceGroups = 1024;
// Resources of one descriptor; a record holds them.
inline constexpr uint32_t kMaxDescribed = 256;
static_assert(kMaxDescribed * sizeof(CUdevResource) + 64 <= kMaxRecordBytes);
// Different resources and descriptors that one session can have, and its green contexts at once:
// bound what a client can make a worker hold. CUDA has no call that gives the former two back.
inline constexpr uint32_t kMaxResources = 1u << 16;
inline constexpr uint32_t kMaxDescriptors = 4096;
inline constexpr uint32_t kMaxGreenContexts = 256;

struct DeviceResource {
  uint32_t device;
  Id green;       // whose share of the device; 0: all of it
  uint32_t type;  // CUdevResourceType
  uint32_t reserved;
};

struct ResourceSplit {
  CUdevResource input;
  uint32_t groups;          // wanted at most; ignored if `count_only`
  uint32_t flags;           // CUdevSmResourceSplit_flags
  uint32_t min_count;       // SMs of a group
  uint32_t count_only;      // 1: how many groups there would be
  uint32_t with_remainder;  // 1: what is left comes behind the groups
  uint32_t reserved;
};
struct ResourceSplitReply {
  uint32_t groups;
  uint32_t resources;  // to read: the groups and the remainder
};
// What a split made, from number `first` on: as many as a reply holds.
struct ResourceRead {
  uint32_t first;
  uint32_t reserved;
};

// `descriptor` names what is made of CUdevResource[count].
struct ResourceDescribe {
  Id descriptor;
  uint32_t count;
};

struct GreenCreate {
  Id green;
  Id descriptor;
  uint32_t device;
  uint32_t flags;  // CUgreenCtxCreate_flags
};

// Later work of `stream` waits for all that the streams of `context` have been given.
struct ContextJoin {
  Id stream;
  Id context;
};

}  // namespace openmps::wire
