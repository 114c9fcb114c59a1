// SPDX-License-Identifier: Apache-2.0
// Claims of dynamic resource allocation (resource.k8s.io/v1): what this node offers, what a claim
// has been allocated, and how that is kept in a file. A claim is a namespace of the daemon, however
// many GPUs it has parts of. Pure functions, any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cuda/status.h"
#include "kubernetes/grant.h"
#include "observe/snapshot.h"

namespace openmps::kubernetes {

// What this node's driver is.
struct DriverName {
  std::string driver = "gpu.openmps.org";
  std::string node;
};

// The name of a GPU as a device of DRA: its UUID in the form of a DNS label.
std::string device_name(const observe::Device& device);

// The ResourceSlice of the node, without metadata but its name. `reserved_bytes`: of each GPU, for
// CUDA's context and the worker's own memory. A GPU may be part of many claims: the scheduler adds
// up memory and SMs. Who asks for no amount gets all that there is.
std::string slice_name(const DriverName& name);
std::string slice_spec(const DriverName& name, const std::vector<observe::Device>& node,
                       uint64_t reserved_bytes, uint64_t generation);

// The namespace of a claim. CUDA_ERROR_INVALID_VALUE: that can't be the UID of a claim.
Result<std::string> namespace_of_claim(const std::string& uid);
// The UID of the claim; "": it is no namespace of a claim.
std::string claim_of_namespace(std::string_view name);

// A device of a claim, as the kubelet is told.
struct ClaimDevice {
  std::string request;
  std::string pool;
  std::string device;
  std::string share;  // "": none
};

struct Claim {
  Grant grant;
  std::vector<ClaimDevice> devices;
};

// Reads the claim as the API server shows it. Errors: CUDA_ERROR_INVALID_VALUE: it is another claim
// of that name, has no allocation, or has been allocated what this node has not.
Result<Claim> read_claim(std::string_view json, const std::string& uid, const DriverName& name,
                         const std::vector<observe::Device>& node, uint64_t reserved_bytes);

// A grant in a file, from which the namespace is made anew when the daemon has not got it any more.
std::string grant_text(const Grant& grant);
// CUDA_ERROR_INVALID_VALUE: it is none.
Result<Grant> read_grant(std::string_view text);

}  // namespace openmps::kubernetes
