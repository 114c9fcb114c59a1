// SPDX-License-Identifier: Apache-2.0
// openmps-kubernetes: the daemon's GPUs for the kubelet of this node. The only file here that
// includes CLI11.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "base/log.h"
#include "base/subprocess.h"
#include "base/text.h"
#include "kubernetes/device_plugin.h"

namespace {

using openmps::kubernetes::DevicePluginOptions;

// "1G", "512M": nothing: it is no size.
std::string fault_of_size(const std::string& text) {
  return openmps::parse_bytes(text) ? "" : "expected a size like 1G or 512M";
}

std::string own_library() {
  const openmps::Result<std::string> bin = openmps::program_directory();
  if (!bin.ok()) return "";
  return bin->substr(0, bin->rfind('/')) + "/lib/openmps/libcuda.so.1";
}

CLI::App* add_device_plugin(CLI::App& app, DevicePluginOptions* options, std::string* reserved) {
  CLI::App* plugin = app.add_subcommand(
      "device-plugin", "Offer shares of each GPU as a resource that pods ask a number of");
  plugin->option_defaults()->always_capture_default();
  plugin->add_option("--resource", options->resource, "The resource's name")
      ->check([](const std::string& text) {
        return openmps::kubernetes::names_a_resource(text) ? "" : "expected domain/name";
      });
  plugin
      ->add_option("--shares", options->size.per_gpu,
                   "Shares of each GPU: each is that part of its SMs and of its memory")
      ->check(CLI::Range(1u, openmps::kubernetes::kMostSharesOfAGpu));
  plugin
      ->add_option("--reserve-memory", *reserved,
                   "Memory of each GPU that is not shared out: CUDA's context needs some")
      ->check(fault_of_size);
  plugin->add_flag("--borrow-sms", options->borrows,
                   "Containers may use more SMs while nobody else has work for them");
  plugin->add_option("--server", options->server, "The daemon's server for the containers");
  plugin->add_option("--library", options->library,
                     "The client library for containers, by its path on the node");
  plugin->add_option("--plugin-directory", options->directory, "The kubelet's, for its plugins");
  plugin->add_option("--pod-resources", options->pod_resources,
                     "The kubelet's socket that lists pods and their devices");
  plugin
      ->add_option("--collect-after", options->collect_after_s,
                   "Seconds that a namespace stays when the kubelet lists its container no longer")
      ->check(CLI::Range(1.0, 86400.0));
  return plugin;
}

}  // namespace

int main(int argc, char** argv) {  // NOLINT(bugprone-exception-escape): ends the program
  CLI::App app("OpenMPS for Kubernetes: the daemon's GPUs for the kubelet of this node",
               "openmps-kubernetes");
  app.set_version_flag("--version", "openmps-kubernetes " OPENMPS_VERSION);
  app.require_subcommand(1);
  DevicePluginOptions options;
  options.library = own_library();
  std::string reserved = openmps::bytes_text(options.size.reserved_bytes);
  add_device_plugin(app, &options, &reserved);
  std::string pipe_directory;
  for (CLI::App* command : app.get_subcommands({})) {
    command->add_option("--pipe-directory", pipe_directory,
                        "The daemon's directory, the same on the node and here (default: "
                        "CUDA_MPS_PIPE_DIRECTORY)");
  }
  CLI11_PARSE(app, argc, argv);

  if (!pipe_directory.empty()) setenv("CUDA_MPS_PIPE_DIRECTORY", pipe_directory.c_str(), 1);
  options.size.reserved_bytes = *openmps::parse_bytes(reserved);
  // Sockets are for this user and root alone.
  umask(0077);
  const openmps::Log log("Kubernetes", openmps::UniqueFd(fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0)));
  return run_device_plugin(options, log);
}
