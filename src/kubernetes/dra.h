// SPDX-License-Identifier: Apache-2.0
// `openmps-kubernetes dra`: the node's GPUs by dynamic resource allocation (docs/kubernetes.md,
// docs/decisions/0056).
#pragma once

#include <cstdint>
#include <string>

#include "base/log.h"
#include "kubernetes/api_server.h"
#include "kubernetes/claims.h"

namespace openmps::kubernetes {

struct DraOptions {
  DriverName name;
  uint64_t reserved_bytes = 1ull << 30;  // of each GPU, as ShareSize has it
  std::string server = "kubernetes";
  std::string library;  // the client library for containers, by its path on the node
  // The kubelet's directories: where it looks for plugins, and where plugins keep what is theirs.
  std::string registry = "/var/lib/kubelet/plugins_registry";
  std::string directory = "/var/lib/kubelet/plugins";
  std::string cdi = "/var/run/cdi";  // where container engines look
  ApiServer::Options api;
};

// Runs until SIGTERM or SIGINT. Namespaces stay, since containers go on. The exit status.
int run_dra(const DraOptions& options, const Log& log);

}  // namespace openmps::kubernetes
