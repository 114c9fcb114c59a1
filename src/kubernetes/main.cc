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
#include "kubernetes/dra.h"

namespace {

using openmps::kubernetes::DevicePluginOptions;
using openmps::kubernetes::DraOptions;

// "1G", "512M": nothing: it is no size.
std::string fault_of_size(const std::string& text) {
  return openmps::parse_bytes(text) ? "" : "expected a size like 1G or 512M";
}

std::string own_library() {
  const openmps::Result<std::string> bin = openmps::program_directory();
  if (!bin.ok()) return "";
  return bin->substr(0, bin->rfind('/')) + "/lib/openmps/libcuda.so.1";
}

// What both have.
struct Common {
  std::string library = own_library();
  std::string server = DevicePluginOptions().server;
  std::string reserved = openmps::bytes_text(openmps::kubernetes::ShareSize().reserved_bytes);
  std::string pipe_directory;
};

void add_common(CLI::App* command, Common* options) {
  command
      ->add_option("--reserve-memory", options->reserved,
                   "Memory of each GPU that is not shared out: CUDA's context needs some")
      ->check(fault_of_size);
  command->add_option("--server", options->server, "The daemon's server for the containers");
  command->add_option("--library", options->library,
                      "The client library for containers, by its path on the node");
  command->add_option("--pipe-directory", options->pipe_directory,
                      "The daemon's directory, the same on the node and here (empty: "
                      "CUDA_MPS_PIPE_DIRECTORY)");
}

CLI::App* add_device_plugin(CLI::App& app, DevicePluginOptions* options) {
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
  plugin->add_flag("--borrow-sms", options->borrows,
                   "Containers may use more SMs while nobody else has work for them");
  plugin->add_option("--plugin-directory", options->directory, "The kubelet's, for its plugins");
  plugin->add_option("--pod-resources", options->pod_resources,
                     "The kubelet's socket that lists pods and their devices");
  plugin
      ->add_option("--collect-after", options->collect_after_s,
                   "Seconds that a namespace stays when the kubelet lists its container no longer")
      ->check(CLI::Range(1.0, 86400.0));
  return plugin;
}

std::string fault_of_name(const std::string& text) {
  return openmps::kubernetes::names_an_object(text) ? "" : "expected the name of an object";
}

CLI::App* add_dra(CLI::App& app, DraOptions* options) {
  CLI::App* dra = app.add_subcommand(
      "dra", "Offer each GPU by dynamic resource allocation: claims ask for memory and SMs");
  dra->option_defaults()->always_capture_default();
  dra->add_option("--node", options->name.node, "This node's name")
      ->required()
      ->check(fault_of_name);
  dra->add_option("--driver", options->name.driver, "The driver's name")->check(fault_of_name);
  dra->add_option("--registry-directory", options->registry,
                  "The kubelet's, where it looks for plugins");
  dra->add_option("--plugin-directory", options->directory,
                  "The kubelet's, where plugins keep what is theirs");
  dra->add_option("--cdi-directory", options->cdi, "Where container engines look for devices");
  dra->add_option("--api-server", options->api.url,
                  "The API server's URL (empty: that of the cluster that this pod is in)");
  dra->add_option("--token-file", options->api.token_file, "With --api-server: a bearer token");
  dra->add_option("--ca-file", options->api.ca_file,
                  "With --api-server: the certificate that it is to be trusted by");
  return dra;
}

}  // namespace

int main(int argc, char** argv) {  // NOLINT(bugprone-exception-escape): ends the program
  CLI::App app("OpenMPS for Kubernetes: the daemon's GPUs for the kubelet of this node",
               "openmps-kubernetes");
  app.set_version_flag("--version", "openmps-kubernetes " OPENMPS_VERSION);
  app.require_subcommand(1);
  Common common;
  DevicePluginOptions plugin_options;
  DraOptions dra_options;
  CLI::App* const plugin = add_device_plugin(app, &plugin_options);
  CLI::App* const dra = add_dra(app, &dra_options);
  for (CLI::App* command : {plugin, dra}) add_common(command, &common);
  CLI11_PARSE(app, argc, argv);

  if (!common.pipe_directory.empty()) {
    setenv("CUDA_MPS_PIPE_DIRECTORY", common.pipe_directory.c_str(), 1);
  }
  const uint64_t reserved_bytes = *openmps::parse_bytes(common.reserved);
  // Sockets are for this user and root alone.
  umask(0077);
  const openmps::Log log("Kubernetes", openmps::UniqueFd(fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0)));
  if (*plugin) {
    plugin_options.size.reserved_bytes = reserved_bytes;
    plugin_options.server = common.server;
    plugin_options.library = common.library;
    return run_device_plugin(plugin_options, log);
  }
  if (dra_options.api.url.empty()) dra_options.api = openmps::kubernetes::ApiServer::of_pod();
  if (dra_options.api.url.empty()) {
    fprintf(stderr, "openmps-kubernetes: this is no pod: say --api-server\n");
    return 1;
  }
  dra_options.reserved_bytes = reserved_bytes;
  dra_options.server = common.server;
  dra_options.library = common.library;
  return run_dra(dra_options, log);
}
