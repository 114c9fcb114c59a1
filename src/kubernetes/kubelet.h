// SPDX-License-Identifier: Apache-2.0
// What openmps-kubernetes asks of the kubelet. Blocking, each call with a limit of some seconds.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "cuda/status.h"

namespace openmps::kubernetes {

// Tells the kubelet that listens at `kubelet_socket` that a plugin for the resource serves in the
// socket `endpoint` beside it. Errors: CUDA_ERROR_MPS_CONNECTION_FAILED: nobody listens, or not in
// time; CUDA_ERROR_NOT_PERMITTED: the kubelet refuses, with its words.
Status register_plugin(const std::string& kubelet_socket, const std::string& endpoint,
                       const std::string& resource);

// The IDs of the resource's devices that containers have, by "namespace/pod/container": of each
// container that has some. Errors: those of register_plugin().
Result<std::map<std::string, std::vector<std::string>>> devices_of_containers(
    const std::string& pod_resources_socket, const std::string& resource);

}  // namespace openmps::kubernetes
