// SPDX-License-Identifier: Apache-2.0
// NVML's Xid events of the worker's GPUs. After a trap or a failed assertion the event comes 11 to
// 14 ms after the fault, and the driver's report only after 0.5 to 13 s; after a misaligned access
// 75 to 121 and 170 to 203 ms; after one out of range both come after 145 ms (H200s, driver 580).
// An event does not say which process has faulted: the fault monitor finds out. NVML's lists of
// processes are not asked: they take 0.1 to 1.4 s when a context is lost, and the driver's calls of
// all others wait meanwhile. A thread of its own; without NVML there is none.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "cuda/status.h"
#include "worker/device/devices.h"

namespace openmps::worker {

// What an Xid says of a kernel's fault: 31 is an illegal address, 13 an exception of an SM, 43 a
// channel that has been stopped. CUDA_SUCCESS: it is no kernel's fault.
CUresult fault_of_xid(uint64_t xid);

class XidMonitor {
 public:
  // On the monitor's thread.
  using OnXid = std::function<void(uint32_t device, uint64_t xid)>;

  // `driver`: the path of the driver's library, beside which NVML is looked for, then where the
  // system has it. Before the process is confined. Null, with the reason in `*why`: NVML is not
  // there, or does not know the devices.
  static std::unique_ptr<XidMonitor> open(const DriverTable& driver, const Devices& devices,
                                          const std::string& path, std::string* why);
  ~XidMonitor();
  XidMonitor(const XidMonitor&) = delete;
  XidMonitor& operator=(const XidMonitor&) = delete;

  void start(OnXid on_xid);

 private:
  struct Nvml;
  XidMonitor();
  void run();

  std::unique_ptr<Nvml> nvml_;
  OnXid on_xid_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace openmps::worker
