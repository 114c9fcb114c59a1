// SPDX-License-Identifier: Apache-2.0
// `openmps-kubernetes device-plugin`: shares of the node's GPUs as an extended resource
// (docs/kubernetes.md, docs/decisions/0056).
#pragma once

#include <cstdint>
#include <string>

#include "base/log.h"
#include "kubernetes/shares.h"

namespace openmps::kubernetes {

struct DevicePluginOptions {
  std::string resource = "openmps.org/gpu.shared";
  ShareSize size;
  bool borrows = false;
  std::string server = "kubernetes";
  std::string library;  // the client library for containers, by its path on the node
  // The kubelet's directory for plugins, and its list of pods.
  std::string directory = "/var/lib/kubelet/device-plugins";
  std::string pod_resources = "/var/lib/kubelet/pod-resources/kubelet.sock";
  // How long a namespace stays whose container the kubelet lists no longer. A kubelet that starts
  // lists pods when it has heard of them, which it may have to wait for; namespaces cost little.
  double collect_after_s = 600;
};

// "domain/name" as Kubernetes has extended resources.
bool names_a_resource(std::string_view text);

// Runs until SIGTERM or SIGINT. Namespaces stay, since containers go on. The exit status.
int run_device_plugin(const DevicePluginOptions& options, const Log& log);

}  // namespace openmps::kubernetes
