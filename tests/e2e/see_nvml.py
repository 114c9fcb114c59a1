#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a program sees by NVML: loads the library that its argument names, and for each line of its standard input
prints one of JSON. Calls that fail are there as their error's number. Used by nvml_scenarios.py, in the place of a
monitor like nvitop; it needs Python alone. usage: see_nvml.py LIBRARY"""

import ctypes
import json
import os
import sys

ADDED_IN_V2 = 2 << 24  # the version of a structure, above its size


class Memory(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint), *((name, ctypes.c_ulonglong) for name in ("total", "reserved", "free", "used"))]


class Process(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("bytes", ctypes.c_ulonglong), ("instance", ctypes.c_uint), ("compute", ctypes.c_uint)]


class Sample(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("time_us", ctypes.c_ulonglong),
                *((name, ctypes.c_uint) for name in ("sm", "memory", "encoder", "decoder"))]


class Utilization(ctypes.Structure):
    _fields_ = [("gpu", ctypes.c_uint), ("memory", ctypes.c_uint)]


class Pci(ctypes.Structure):
    _fields_ = [("legacy", ctypes.c_char * 16), ("domain", ctypes.c_uint), ("bus", ctypes.c_uint), ("device", ctypes.c_uint),
                ("id", ctypes.c_uint), ("subsystem", ctypes.c_uint), ("bus_id", ctypes.c_char * 32)]


def values(struct):
    return {name: getattr(struct, name) for name, _ in struct._fields_}


class Nvml:
    def __init__(self, library):
        self.library = ctypes.CDLL(library)

    def call(self, name, *arguments):
        return getattr(self.library, name)(*arguments)

    def value(self, name, kind, *arguments):
        """What the function stores in its last argument, of that type; or its error."""
        stored = kind(version=ctypes.sizeof(kind) | ADDED_IN_V2) if kind is Memory else kind()
        error = self.call(name, *arguments, ctypes.byref(stored))
        if error != 0:
            return error
        return values(stored) if isinstance(stored, ctypes.Structure) else stored.value

    def text(self, name, *arguments):
        buffer = ctypes.create_string_buffer(96)
        error = self.call(name, *arguments, buffer, ctypes.c_uint(len(buffer)))
        return error or buffer.value.decode()

    def array(self, name, kind, device, *more):
        """Asks how many there are, then for them."""
        count = ctypes.c_uint(0)
        order = (lambda items: (ctypes.byref(count), items)) if kind is Process else (lambda items: (items, ctypes.byref(count)))
        error = self.call(name, device, *order(None), *more)
        if error == 7:  # NVML_ERROR_INSUFFICIENT_SIZE
            items = (kind * count.value)()
            error = self.call(name, device, *order(items), *more)
            return error or [values(item) for item in items[:count.value]]
        return error or []

    def device(self, index):
        device = ctypes.c_void_p()
        error = self.call("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(device))
        if error != 0:
            return {"error": error}
        pci = self.value("nvmlDeviceGetPciInfo_v3", Pci, device)
        major, minor = ctypes.c_int(), ctypes.c_int()
        capability = self.call("nvmlDeviceGetCudaComputeCapability", device, ctypes.byref(major), ctypes.byref(minor))
        return {
            "name": self.text("nvmlDeviceGetName", device), "uuid": self.text("nvmlDeviceGetUUID", device),
            "bus_id": pci["bus_id"].decode(), "capability": capability or f"{major.value}.{minor.value}",
            "memory": self.value("nvmlDeviceGetMemoryInfo_v2", Memory, device),
            "utilization": self.value("nvmlDeviceGetUtilizationRates", Utilization, device),
            "processes": self.array("nvmlDeviceGetComputeRunningProcesses_v3", Process, device),
            "samples": self.array("nvmlDeviceGetProcessUtilization", Sample, device, ctypes.c_ulonglong(0)),
            "temperature": self.call("nvmlDeviceGetTemperature", device, ctypes.c_uint(0), ctypes.byref(ctypes.c_uint())),
        }

    def look(self):
        """Begins and ends NVML, as short monitors do; handles live on."""
        error = self.call("nvmlInit_v2")
        if error != 0:
            return {"init": error}
        count = self.value("nvmlDeviceGetCount_v2", ctypes.c_uint)
        seen = {"init": 0, "cuda": self.value("nvmlSystemGetCudaDriverVersion_v2", ctypes.c_int),
                "driver": self.text("nvmlSystemGetDriverVersion"), "devices": [self.device(index) for index in range(count)],
                "descriptors": len(os.listdir("/proc/self/fd"))}
        self.call("nvmlShutdown")
        return seen


def main():
    nvml = Nvml(sys.argv[1])
    print("ready", flush=True)
    for _ in sys.stdin:
        print(json.dumps(nvml.look()), flush=True)


if __name__ == "__main__":
    main()
