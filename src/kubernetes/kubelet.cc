// SPDX-License-Identifier: Apache-2.0
// See kubelet.h.
#include "kubernetes/kubelet.h"

#include <deviceplugin.grpc.pb.h>
#include <grpcpp/grpcpp.h>
#include <podresources.grpc.pb.h>

#include <chrono>
#include <memory>

#include "base/text.h"

namespace openmps::kubernetes {
namespace {

// The kubelet answers at once; it connects to the plugin before it does.
constexpr std::chrono::seconds kLimit(10);
// The list of a node's pods: 1,000 containers of 100 devices are 5 MB; gRPC's default is 4.
constexpr int kMostListBytes = 64 << 20;

std::shared_ptr<grpc::Channel> channel_to(const std::string& socket) {
  grpc::ChannelArguments arguments;
  // A connection of its own: else one that has failed makes the next call fail, too, for a while.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetMaxReceiveMessageSize(kMostListBytes);
  return grpc::CreateCustomChannel("unix:" + socket, grpc::InsecureChannelCredentials(), arguments);
}

Status status_of(const grpc::Status& status) {
  if (status.ok()) return Status();
  const bool is_away = status.error_code() == grpc::StatusCode::UNAVAILABLE ||
                       status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED;
  return Status(is_away ? CUDA_ERROR_MPS_CONNECTION_FAILED : CUDA_ERROR_NOT_PERMITTED,
                printable(status.error_message()));
}

}  // namespace

Status register_plugin(const std::string& kubelet_socket, const std::string& endpoint,
                       const std::string& resource) {
  v1beta1::RegisterRequest request;
  request.set_version("v1beta1");
  request.set_endpoint(endpoint);
  request.set_resource_name(resource);
  request.mutable_options()->set_get_preferred_allocation_available(true);
  request.mutable_options()->set_pre_start_required(true);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kLimit);
  v1beta1::Empty answer;
  return status_of(v1beta1::Registration::NewStub(channel_to(kubelet_socket))
                       ->Register(&context, request, &answer));
}

Result<std::map<std::string, std::vector<std::string>>> devices_of_containers(
    const std::string& pod_resources_socket, const std::string& resource) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kLimit);
  v1::ListPodResourcesResponse answer;
  OPENMPS_RETURN_IF_ERROR(
      status_of(v1::PodResourcesLister::NewStub(channel_to(pod_resources_socket))
                    ->List(&context, v1::ListPodResourcesRequest(), &answer)));
  std::map<std::string, std::vector<std::string>> found;
  for (const v1::PodResources& pod : answer.pod_resources()) {
    for (const v1::ContainerResources& container : pod.containers()) {
      const std::string name = pod.namespace_() + "/" + pod.name() + "/" + container.name();
      // A container's devices of one resource may be in several entries, one for each NUMA node.
      for (const v1::ContainerDevices& devices : container.devices()) {
        if (devices.resource_name() != resource) continue;
        std::vector<std::string>& ids = found[name];
        ids.insert(ids.end(), devices.device_ids().begin(), devices.device_ids().end());
      }
    }
  }
  return found;
}

}  // namespace openmps::kubernetes
