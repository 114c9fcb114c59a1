# SPDX-License-Identifier: Apache-2.0
"""The kubelet's side of the device plugin API v1beta1 and of the pod resources API v1, as these APIs describe it and as
the kubelet's device manager does it: it empties its directory when it starts, connects to a plugin before it answers
its registration, keeps a container's devices while its pod is there, and calls PreStartContainer before each start.

Used by kubernetes_test.py, on its main thread; gRPC calls come on others. Needs the stubs that stubs() makes.
"""

import concurrent.futures
import shutil
import subprocess
import sys
import threading

import grpc

from sandbox import Failure, wait_until

LIMIT_S = 30
# Of the API.
MAX_ID = 63


def stubs(protos, folder):
    """Makes the modules of these .proto files in a folder, and puts it in front of sys.path."""
    plugin = shutil.which("grpc_python_plugin")
    done = subprocess.run(["protoc", f"--proto_path={protos}", f"--python_out={folder}", f"--grpc_out={folder}",
                           f"--plugin=protoc-gen-grpc={plugin}", *map(str, sorted(protos.glob("*.proto")))],
                          capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Failure(f"protoc: {done.stderr}")
    sys.path.insert(0, str(folder))


class FakeKubelet:
    def __init__(self, directory, pod_resources):
        """directory: for plugins. pod_resources: the path of the socket that lists pods."""
        import deviceplugin_pb2
        import deviceplugin_pb2_grpc
        import podresources_pb2
        import podresources_pb2_grpc
        self.api, self.rpc = deviceplugin_pb2, deviceplugin_pb2_grpc
        self.pods_api, self.pods_rpc = podresources_pb2, podresources_pb2_grpc
        self.directory, self.pod_resources = directory, pod_resources
        self.changed = threading.Condition()
        self.resource, self.registrations, self.plugin, self.options = "", 0, None, None
        self.devices = {}  # ID -> health, as the plugin says; none without a plugin
        self.pods = {}     # (pod, container) -> IDs: what the real one keeps in a checkpoint
        self.lists = 0     # how often pods were listed
        self.servers = []

    # --- what the plugin calls ----------------------------------------------------------------

    def Register(self, request, context):
        endpoint = self.directory / request.endpoint
        if request.version != "v1beta1":
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"unsupported API version {request.version}")
        if "/" in request.endpoint or not endpoint.is_socket():
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"no socket {endpoint}")
        channel = grpc.insecure_channel(f"unix:{endpoint}", [("grpc.use_local_subchannel_pool", 1)])
        plugin = self.rpc.DevicePluginStub(channel)
        options = plugin.GetDevicePluginOptions(self.api.Empty(), timeout=LIMIT_S)
        if options != request.options:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"two words: {options} and {request.options}")
        with self.changed:
            self.resource, self.plugin, self.options = request.resource_name, plugin, options
            self.registrations += 1
            self.changed.notify_all()
        threading.Thread(target=self.follow, args=(plugin,), daemon=True).start()
        return self.api.Empty()

    def follow(self, plugin):
        try:
            for response in plugin.ListAndWatch(self.api.Empty()):
                with self.changed:
                    if plugin is self.plugin:
                        self.devices = {device.ID: device.health for device in response.devices}
                        self.changed.notify_all()
        except grpc.RpcError:
            pass
        with self.changed:
            if plugin is self.plugin:
                self.plugin, self.devices = None, {}
                self.changed.notify_all()

    def List(self, _request, _context):
        pods = {}
        with self.changed:
            held = {key: list(ids) for key, ids in self.pods.items()}
            self.lists += 1
        for (pod, container), ids in held.items():
            # One entry for each NUMA node, as the real one has them.
            devices = [self.pods_api.ContainerDevices(resource_name=self.resource, device_ids=part)
                       for part in (ids[::2], ids[1::2])]
            devices.append(self.pods_api.ContainerDevices(resource_name="example.org/other", device_ids=["x"]))
            pods.setdefault(pod, []).append(self.pods_api.ContainerResources(name=container, devices=devices))
        return self.pods_api.ListPodResourcesResponse(pod_resources=[
            self.pods_api.PodResources(name=pod, namespace="default", containers=containers)
            for pod, containers in pods.items()])

    # --- what the test does -------------------------------------------------------------------

    def serve(self, add, path):
        server = grpc.server(concurrent.futures.ThreadPoolExecutor(4))
        add(self, server)
        if server.add_insecure_port(f"unix:{path}") == 0:
            raise Failure(f"no socket {path}")
        server.start()
        return server

    def start(self):
        self.directory.mkdir(exist_ok=True)
        for path in self.directory.iterdir():
            path.unlink()
        self.servers = [self.serve(self.rpc.add_RegistrationServicer_to_server, self.directory / "kubelet.sock")]
        self.start_pod_resources()

    def start_pod_resources(self):
        self.servers.append(self.serve(self.pods_rpc.add_PodResourcesListerServicer_to_server, self.pod_resources))

    def stop_pod_resources(self):
        self.servers.pop().stop(0).wait()

    def stop(self):
        for server in self.servers:
            server.stop(0).wait()
        self.servers = []
        with self.changed:
            self.plugin, self.devices = None, {}

    def wait_for(self, what, holds):
        if not wait_until(lambda: self.locked(holds), LIMIT_S):
            raise Failure(f"{what}: {self.registrations} registrations, devices {self.devices}")

    def locked(self, holds):
        with self.changed:
            return holds()

    def wait_for_list(self):
        """Until the pods that are there now have been listed."""
        lists = self.lists
        self.wait_for("a list of pods", lambda: self.lists > lists)

    def wait_for_devices(self, health, count):
        self.wait_for(f"{count} {health} devices",
                      lambda: len(self.devices) == count and set(self.devices.values()) == {health})

    def free(self):
        with self.changed:
            held = {device for ids in self.pods.values() for device in ids}
            return sorted(device for device, health in self.devices.items()
                          if health == "Healthy" and device not in held)

    def prefer(self, available, count, must=()):
        request = self.api.PreferredAllocationRequest(container_requests=[
            self.api.ContainerPreferredAllocationRequest(available_deviceIDs=available, must_include_deviceIDs=must,
                                                         allocation_size=count)])
        return list(self.plugin.GetPreferredAllocation(request, timeout=LIMIT_S).container_responses[0].deviceIDs)

    def allocate(self, ids):
        request = self.api.AllocateRequest(
            container_requests=[self.api.ContainerAllocateRequest(devices_ids=ids)])
        return self.plugin.Allocate(request, timeout=LIMIT_S).container_responses[0]

    def pre_start(self, ids):
        self.plugin.PreStartContainer(self.api.PreStartContainerRequest(devices_ids=ids), timeout=LIMIT_S)

    def admit(self, pod, count=0, ids=None, container="main"):
        """Devices for a container of a pod, and what the plugin says that it gets: (IDs, answer). It is not started."""
        ids = ids or self.prefer(self.free(), count)
        answer = self.allocate(ids)
        with self.changed:
            self.pods[pod, container] = ids
        return ids, answer

    def end(self, pod):
        with self.changed:
            for key in [key for key in self.pods if key[0] == pod]:
                del self.pods[key]
