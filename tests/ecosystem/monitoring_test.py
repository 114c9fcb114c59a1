#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""openmps-exporter under a real Prometheus: promtool finds nothing wrong with its metrics, each alert is raised by what
it is for, counters grow over the ends of clients, servers and the daemon, a fault comes with its culprit, and every
query of the dashboard has an answer. Needs Debian's package prometheus.

  monitoring_test.py --build BUILD"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import urllib.parse
import urllib.request
from pathlib import Path

from exporter_tools import (CLIENT_LIMIT_S, HERE, SETTLE_LIMIT_S, SOURCE, Exporter, end, eventually, free_port, need,
                            require, run_test)
from bystanders import Bystander, commit

MONITORING = SOURCE / "packaging/monitoring"
SCRAPE = "250ms"


def promtool(*words, text=None):
    done = subprocess.run(["promtool", *map(str, words)], input=text, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, timeout=SETTLE_LIMIT_S, check=False)
    require(done.returncode == 0, f"promtool {' '.join(map(str, words))}:\n{done.stdout}")


def check_rules(folder):
    for name in ("alerts.yml", "prometheus.yml"):
        shutil.copy(MONITORING / name, folder)
    shutil.copy(HERE / "alerts_test.yml", folder)
    promtool("check", "config", folder / "prometheus.yml")
    promtool("test", "rules", folder / "alerts_test.yml")


class Prometheus:
    def __init__(self, folder, exporter):
        self.port = free_port()
        config = folder / "scrape.yml"
        config.write_text(f"global: {{scrape_interval: {SCRAPE}, evaluation_interval: 1s}}\n"
                          "scrape_configs:\n  - job_name: openmps\n"
                          f"    static_configs: [{{targets: ['{exporter.address}']}}]\n")
        with open(folder / "prometheus.log", "w", encoding="utf-8") as log:
            self.child = subprocess.Popen(
                ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={folder}/data",
                 f"--web.listen-address=127.0.0.1:{self.port}"], stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        self.log = folder / "prometheus.log"

    def query(self, expression):
        """The values of an instant query, by their labels."""
        url = f"http://127.0.0.1:{self.port}/api/v1/query?" + urllib.parse.urlencode({"query": expression})
        with urllib.request.urlopen(url, timeout=SETTLE_LIMIT_S) as answer:
            said = json.load(answer)
        require(said["status"] == "success", f"{expression}: {said}")
        return [(one["metric"], float(one["value"][1])) for one in said["data"]["result"]]

    def wait(self, expression, condition=lambda found: True):
        """Waits for values of the query that fulfil the condition."""
        found = []

        def there():
            try:
                found[:] = self.query(expression)
            except OSError:
                require(self.child.poll() is None, "Prometheus has ended:\n" + self.log.read_text(encoding="utf-8"))
                return False
            return bool(found) and condition(found)
        eventually(there, lambda: f"{expression} gives {found}")
        return found


def queries(dashboard):
    """Every expression of the dashboard's panels and variables, with Grafana's variables filled in."""
    found = []

    def look(value):
        if isinstance(value, dict):
            found.extend(text for key, text in value.items() if key == "expr")
            for one in value.values():
                look(one)
        elif isinstance(value, list):
            for one in value:
                look(one)
    look(dashboard)
    filled = {"$__rate_interval": "10s", "$instance": ".*"}
    for i, text in enumerate(found):
        for name, value in filled.items():
            text = text.replace(name, value)
        require("$" not in text, f"an unknown variable in {text}")
        found[i] = text
    return found


def monitoring(box, build):
    need(build, "prometheus", "promtool")
    box.env["OPENMPS_SPARE"] = "auto"
    folder = Path(tempfile.mkdtemp(prefix="omps-prom-", dir=box.root))
    check_rules(folder)

    def say(line):
        done = subprocess.run([box.resolve("openmps-control"), *line.split()], env=box.service_env(), text=True, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, timeout=CLIENT_LIMIT_S)
        require(done.returncode == 0, f"{line}: {done.stdout}")

    exporter = Exporter(box)
    prometheus = Prometheus(folder, exporter)
    try:
        prometheus.wait("openmps_up", lambda found: found[0][1] == 0)
        box.start_daemon()
        prometheus.wait("openmps_up", lambda found: found[0][1] == 1)
        say("server create main")
        say("namespace create web --server=main --active-thread-percentage=25 --pinned-memory-limit=0=1G")
        door = {"CUDA_MPS_PIPE_DIRECTORY": str(box.pipe / "main" / "web")}
        busy = box.start(["drv_nbody", "512", "100000000"], door)
        prometheus.wait("rate(openmps_device_sm_seconds_total[5s])", lambda found: found[0][1] > 0)
        # By namespace, with the client's words by the info series: what a dashboard does.
        [(labels, share)] = prometheus.wait(
            "rate(openmps_client_sm_seconds_total[5s]) / on (device) group_left openmps_device_sms * on (server, client) "
            "group_left (pid, group, command) openmps_client_info", lambda found: found[0][1] > 0)
        require(labels["pid"] == str(busy.pid) and labels["group"] == "web" and "drv_nbody" in labels["command"] and
                share <= 0.3, f"{labels} {share}")
        promtool("check", "metrics", text=exporter.metrics())
        prometheus.wait('openmps_group_sm_limit{group="web"}', lambda found: found[0][1] > 0)
        prometheus.wait('openmps_group_memory_limit_bytes{group="web"}', lambda found: found[0][1] == 1 << 30)

        dashboard = json.loads((MONITORING / "grafana-dashboard.json").read_text(encoding="utf-8"))
        asked = queries(dashboard)
        require(len(asked) >= 12, f"the dashboard has {len(asked)} queries")
        empty = [text for text in asked if not prometheus.query(text)]
        # Those that nothing has happened for; no other may be empty.
        require(all("openmps_fault_timestamp_seconds" in text or "openmps_client_held_streams" in text for text in empty),
                f"without an answer: {empty}")

        # Counters never fall: neither with a client, nor with a server or daemon that is killed and replaced.
        before = prometheus.query("openmps_device_sm_seconds_total")[0][1]
        busy.kill()
        busy.communicate()
        eventually(lambda: exporter.value("openmps_group_members{server=\"main\",group=\"web\"}") == 0, "the client is still there")
        prometheus.wait("openmps_device_sm_seconds_total", lambda found: found[0][1] >= before > 0)
        after = exporter.value("openmps_device_sm_seconds_total")
        require(exporter.value("openmps_client_info") is None and after >= before, f"{before} has become {after}")

        neighbour = Bystander(box, "copies", 1, {"OPENMPS_REPLAY": "always"})
        neighbour.wait_ready()
        culprit, _told = commit(box, "assert")
        [(labels, _)] = prometheus.wait("openmps_fault_timestamp_seconds")
        require(labels["pid"] == str(culprit) and labels["error"] == "710" and "drv_culprit" in labels["command"], f"{labels}")
        prometheus.wait("openmps_faults_total", lambda found: found[0][1] == 1)
        prometheus.wait("openmps_clients_moved_total", lambda found: found[0][1] >= 1)
        neighbour.end()
        require(prometheus.query("max(resets(openmps_device_sm_seconds_total[10m]))")[0][1] == 0, "the counter was reset")
        require(not prometheus.query("openmps_exporter_scrape_duration_seconds > 5"), "a scrape takes more than 5 s")

        box.quit()
        prometheus.wait("openmps_up", lambda found: found[0][1] == 0)
        prometheus.wait("openmps_exporter_scrape_errors_total", lambda found: found[0][1] > 0)
        exporter.stop()
    finally:
        end(prometheus.child)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True)
    return run_test(monitoring, parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
