// SPDX-License-Identifier: Apache-2.0
// The simulated machine as NVML's calls see it: the configuration, and what the device segments
// say. Joins no segment.
#include "nvml/machine.h"

#include <utility>

#include "softgpu/device/machine/config.h"
#include "softgpu/device/machine/segment.h"

namespace openmps::softgpu {
namespace {

constexpr const char* kDriverVersion = "580.65.06";  // the first with CUDA 13.0
constexpr uint32_t kCudaVersion = 13000;

class SegmentFaults final : public nvml::Faults {
 public:
  explicit SegmentFaults(const std::string& segment) : reader_(segment) {}
  std::optional<uint32_t> next() override { return reader_.next(); }

 private:
  FaultReader reader_;
};

class SimulatedMachine final : public nvml::Machine {
 public:
  explicit SimulatedMachine(Config config) : config_(std::move(config)) {
    for (uint32_t i = 0; i < config_.device_count; ++i) {
      devices_.push_back({.name = kDeviceName,
                          .uuid = device_uuid_text(config_, i),
                          .pci = pci_address(i),
                          .compute_capability = config_.compute_capability,
                          .exclusive_process = config_.exclusive_process});
    }
  }

  [[nodiscard]] const std::vector<nvml::Device>& devices() const override { return devices_; }

  [[nodiscard]] Result<nvml::Memory> memory(size_t device) const override {
    const Result<SegmentReport> report = look_at(device);
    if (!report.ok()) return report.status();
    return nvml::Memory{report->memory_total, report->memory_used};
  }

  [[nodiscard]] Result<std::vector<nvml::Process>> processes(size_t device) const override {
    const Result<SegmentReport> report = look_at(device);
    if (!report.ok()) return report.status();
    std::vector<nvml::Process> found;
    for (const SegmentReport::Process& process : report->processes) {
      bool has_context = false;
      for (const SegmentReport::Context& context : report->contexts) {
        has_context |= context.pid == process.pid;
      }
      if (has_context || process.memory_bytes != 0) {
        found.push_back({process.pid, process.memory_bytes});
      }
    }
    return found;
  }

  [[nodiscard]] Result<nvml::Utilization> utilization(size_t) const override {
    return Status(CUDA_ERROR_NOT_SUPPORTED, "the simulated machine does not count");
  }

  [[nodiscard]] nvml::Versions versions() const override { return {kDriverVersion, kCudaVersion}; }

  [[nodiscard]] std::unique_ptr<nvml::Faults> watch_faults(size_t device) const override {
    return std::make_unique<SegmentFaults>(segment_name(config_, static_cast<uint32_t>(device)));
  }

 private:
  // A device that no process uses has no segment.
  [[nodiscard]] Result<SegmentReport> look_at(size_t device) const {
    Result<SegmentReport> report =
        DeviceSegment::inspect(segment_name(config_, static_cast<uint32_t>(device)));
    if (report.ok() || report.status().code() != CUDA_ERROR_NOT_FOUND) return report;
    SegmentReport unused;
    unused.memory_total = config_.memory_bytes;
    return unused;
  }

  const Config config_;
  std::vector<nvml::Device> devices_;
};

}  // namespace
}  // namespace openmps::softgpu

namespace openmps::nvml {

Result<std::unique_ptr<Machine>> open_machine() {
  Result<softgpu::Config> config = softgpu::read_config();
  if (!config.ok()) return config.status();
  return std::unique_ptr<Machine>(std::make_unique<softgpu::SimulatedMachine>(std::move(*config)));
}

}  // namespace openmps::nvml
