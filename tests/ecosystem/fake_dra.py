# SPDX-License-Identifier: Apache-2.0
"""The sides of the kubelet and of the API server in dynamic resource allocation (dra/v1, pluginregistration/v1,
resource.k8s.io/v1), as these APIs describe them: a watcher that finds a driver by its socket, and claims and
ResourceSlices over HTTP, with resource versions, a bearer token and errors as objects.

Used by kubernetes_test.py, on its main thread; HTTP requests come on others. Needs the stubs of fake_kubelet.stubs().
"""

import copy
import http.server
import json
import threading

import grpc

from fake_kubelet import LIMIT_S
from sandbox import Failure, wait_until

TOKEN = "a-token"
API = "/apis/resource.k8s.io/v1"
NODE_UID = "4f8ad7ba-0000-4000-8000-000000000001"


class FakeApiServer:
    def __init__(self, node):
        self.lock = threading.Lock()
        self.slices, self.claims, self.version, self.writes = {}, {}, 0, 0
        self.nodes = {node: {"kind": "Node", "metadata": {"name": node, "uid": NODE_UID}}}
        self.server = None
        self.port = 0

    def start(self):
        api = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one(self):
                length = int(self.headers.get("Content-Length", 0))
                body = json.loads(self.rfile.read(length)) if length else None
                status, answer = api.answer(self.command, self.path, body, self.headers.get("Authorization"))
                data = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_PUT = handle_one

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def stop(self):
        if self.server:
            self.server.shutdown()
            self.server.server_close()
            self.server = None

    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def answer(self, method, path, body, authorization):
        def error(status, message):
            return status, {"kind": "Status", "status": "Failure", "message": message, "code": status}

        if authorization != f"Bearer {TOKEN}":
            return error(401, "Unauthorized")
        with self.lock:
            parts = path.split("/")
            if method == "GET" and path.startswith("/api/v1/nodes/"):
                return (200, self.nodes[parts[-1]]) if parts[-1] in self.nodes else error(404, "no such node")
            if method == "GET" and path.startswith(f"{API}/namespaces/") and parts[-2] == "resourceclaims":
                claim = self.claims.get((parts[-3], parts[-1]))
                return (200, claim) if claim else error(404, f'resourceclaims "{parts[-1]}" not found')
            if method == "POST" and path == f"{API}/resourceslices":
                name = body["metadata"]["name"]
                return error(409, f"{name} is there") if name in self.slices else (201, self.store(body))
            if path.startswith(f"{API}/resourceslices/"):
                old = self.slices.get(parts[-1])
                if old is None:
                    return error(404, f'resourceslices "{parts[-1]}" not found')
                if method == "GET":
                    return 200, old
                if method == "PUT":
                    if body["metadata"].get("resourceVersion") != old["metadata"]["resourceVersion"]:
                        return error(409, "the object has been modified")
                    return 200, self.store(body)
            return error(404, f"{method} {path}")

    def store(self, body):
        """With what an API server adds."""
        made = copy.deepcopy(body)
        self.version += 1
        self.writes += 1
        made["metadata"].update(resourceVersion=str(self.version), uid="a-uid")
        made["spec"].setdefault("allNodes", False)
        self.slices[made["metadata"]["name"]] = made
        return made

    def devices(self):
        """Those of the only slice, by name."""
        with self.lock:
            slices = list(self.slices.values())
        return {device["name"]: device for one in slices for device in one["spec"]["devices"]}

    def allocate(self, name, uid, parts, node, configs=(), driver="gpu.openmps.org"):
        """A claim with these parts: [(device, memory, SMs)], as the scheduler writes them."""
        results = [{"request": f"r{i}", "driver": driver, "pool": node, "device": device, "shareID": f"share-{uid[:4]}-{i}",
                    "consumedCapacity": {"memory": memory, "sms": sms}} for i, (device, memory, sms) in enumerate(parts)]
        config = [{"source": "FromClaim", "requests": [],
                   "opaque": {"driver": driver, "parameters": {"apiVersion": "openmps.org/v1alpha1", "kind": "ShareConfig", **one}}}
                  for one in configs]
        with self.lock:
            self.claims["default", name] = {
                "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
                "metadata": {"name": name, "namespace": "default", "uid": uid},
                "status": {"allocation": {"devices": {"results": results, "config": config}}}}


class FakeDraKubelet:
    """The plugin watcher and the part of the kubelet that prepares claims."""

    def __init__(self, registry):
        import dra_pb2
        import dra_pb2_grpc
        import pluginregistration_pb2
        import pluginregistration_pb2_grpc
        self.api, self.rpc = dra_pb2, dra_pb2_grpc
        self.watcher_api, self.watcher_rpc = pluginregistration_pb2, pluginregistration_pb2_grpc
        self.registry, self.info, self.plugin = registry, None, None

    def find(self):
        """Registers the only driver that is there, as the watcher does when a socket appears."""
        if not wait_until(lambda: list(self.registry.glob("*.sock")), LIMIT_S):
            raise Failure("no socket in the registry")
        socket, = self.registry.glob("*.sock")
        stub = self.watcher_rpc.RegistrationStub(channel(socket))
        self.info = stub.GetInfo(self.watcher_api.InfoRequest(), timeout=LIMIT_S, wait_for_ready=True)
        if self.info.type != "DRAPlugin" or "v1.DRAPlugin" not in self.info.supported_versions:
            raise Failure(f"no driver for DRA v1: {self.info}")
        self.plugin = self.rpc.DRAPluginStub(channel(self.info.endpoint))
        stub.NotifyRegistrationStatus(self.watcher_api.RegistrationStatus(plugin_registered=True), timeout=LIMIT_S)
        return socket

    def claim(self, name, uid):
        return self.api.Claim(namespace="default", name=name, uid=uid)

    def prepare(self, name, uid):
        request = self.api.NodePrepareResourcesRequest(claims=[self.claim(name, uid)])
        return self.plugin.NodePrepareResources(request, timeout=LIMIT_S).claims[uid]

    def unprepare(self, name, uid):
        request = self.api.NodeUnprepareResourcesRequest(claims=[self.claim(name, uid)])
        claims = self.plugin.NodeUnprepareResources(request, timeout=LIMIT_S).claims
        if uid not in claims:
            raise Failure(f"no word of the claim {uid}")
        return claims[uid].error


def channel(socket):
    return grpc.insecure_channel(f"unix:{socket}", [("grpc.use_local_subchannel_pool", 1)])
