# SPDX-License-Identifier: Apache-2.0
"""What can go wrong around the service: a daemon that is killed, directories that are none, what a killed
daemon left, a full disk, no descriptors. Each is told in one line, nothing is lost and nothing stays.
Called by scenarios.py.
"""

import subprocess

from sandbox import wait_until
from scenario_tools import (CLIENT_LIMIT_S, SETTLE_LIMIT_S, finish, kill_daemon, ready, require, server_of, settled,
                            tell)


def listed(box, server):
    return set(box.control(f"get_client_list {server}")[1].split())


def daemon_killed(box, _):
    """Under running clients the daemon is killed and started again, twice: they do not notice, the new
    daemon lists them, gives newcomers to their server, and ends one of them."""
    box.start_daemon()
    idle = box.start(["drv_client_worker", "1", "40", "hold"], stdin=subprocess.PIPE)
    busy = box.start(["drv_client_worker", "2", "0"])  # computes and compares until it is ended
    clients = [idle, busy]
    for client in clients:
        ready(client)
    server, workers = server_of(box), box.pids_named("openmps-worker")
    for _round in range(2):
        kill_daemon(box)
        code, out, _err = box.run(["drv_client_worker", "9"], CLIENT_LIMIT_S)
        require(code == 1 and "CUDA_ERROR_MPS_CONNECTION_FAILED" in out, f"without a daemon: {code}\n{out}")
        require(box.control("ps") == (1, "Cannot find MPS control daemon process\n"), "ps without a daemon")
        box.start_daemon()
        require(server_of(box) == server, "another server")
        require(listed(box, server) == {str(client.pid) for client in clients}, str(listed(box, server)))
        require(box.control(f"get_server_status {server}") == (0, "ACTIVE\n"), "its state")
        require(f"of process {idle.pid}\n" in box.control(f"inspect {idle.pid}")[1], "inspect")
        newcomer = box.start(["drv_client_worker", "4", "3", "hold"], stdin=subprocess.PIPE)
        ready(newcomer)
        require(str(newcomer.pid) in listed(box, server), "a newcomer is not the server's")
        tell(newcomer)
    require(box.control(f"terminate_client {server} {busy.pid}") == (0, "0\n"), "it was not terminated")
    out, err = busy.communicate(timeout=CLIENT_LIMIT_S)
    require(busy.returncode == 1 and "CUDA_ERROR_MPS_CLIENT_TERMINATED (810)" in out,
            f"a terminated client: {busy.returncode}\n{out}{err}")
    tell(idle)
    require(box.pids_named("openmps-worker") == workers, "the worker was replaced")
    settled(box, server)
    # By force, as a child of its own would be.
    last = box.start(["drv_client_worker", "5", "3", "hold"], stdin=subprocess.PIPE)
    ready(last)
    require(box.control(f"shutdown_server {server} -f") == (0, ""), "shutdown_server -f")
    require(not box.pids_named("openmps-server"), "the server is still there")
    out, _err = last.communicate("go\n", timeout=CLIENT_LIMIT_S)
    require(last.returncode == 1 and "CUDA_ERROR_MPS_RPC_FAILURE" in out, f"a client of no server: {out}")
    # Without clients a server ends with its daemon.
    finish(box.start(["drv_client_worker", "6"]), "a client of the next server")
    kill_daemon(box)
    require(wait_until(lambda: not box.processes(), SETTLE_LIMIT_S), "the server has outlived its daemon")
    box.start_daemon()
    box.quit()
