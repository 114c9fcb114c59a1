// SPDX-License-Identifier: Apache-2.0
// What a namespace of the daemon may use of the node's GPUs, and how the daemon is told so. Pure
// functions, any thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "observe/snapshot.h"

namespace openmps::kubernetes {

// Of one GPU.
struct Part {
  uint32_t sms = 0;
  uint64_t memory_bytes = 0;
};

struct Grant {
  std::string name;                   // of the namespace
  std::map<std::string, Part> parts;  // by UUID
  std::string quality = {};           // the best that its programs may have; "": normal
  bool borrows = false;               // SMs that nobody else has work for
  // The static partitions in which its programs run, by UUID. Those of an exclusive grant are its
  // own, and have the number of SMs of its parts.
  std::map<std::string, std::string> partitions = {};
  bool is_exclusive = false;
};

// The options of `namespace create` and `namespace set`. Of GPUs of the node that the grant does
// not have, a program that asks for them all the same gets next to nothing.
std::string options_of(const Grant& grant, const std::vector<observe::Device>& node);
// Those that `namespace create` alone has.
std::string first_options_of(const Grant& grant);

// The grant's GPUs as CUDA_VISIBLE_DEVICES has them, in the node's order.
std::string visible_devices(const Grant& grant, const std::vector<observe::Device>& node);

}  // namespace openmps::kubernetes
