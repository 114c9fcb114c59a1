// SPDX-License-Identifier: Apache-2.0
// softgpu-info: what the software GPUs of this machine are doing, as JSON on stdout. Reads the
// shared device segments and joins none, so it does not change what it shows.
#include <cstdio>

#include "softgpu/device/machine/config.h"
#include "softgpu/device/machine/segment.h"

namespace {

using openmps::softgpu::ContextKind;
using openmps::softgpu::SegmentReport;

void print_device(uint32_t ordinal, const SegmentReport& report) {
  printf(
      "    {\n      \"device\": %u,\n      \"memory_total\": %llu,\n      \"memory_used\": %llu,\n",
      ordinal, static_cast<unsigned long long>(report.memory_total),
      static_cast<unsigned long long>(report.memory_used));
  printf("      \"running_pid\": %d,\n      \"context_count\": %zu,\n      \"processes\": [",
         report.running_pid, report.contexts.size());
  const char* separator = "\n";
  for (const SegmentReport::Process& process : report.processes) {
    printf("%s        {\"pid\": %d, \"memory\": %llu, \"slices\": %llu}", separator, process.pid,
           static_cast<unsigned long long>(process.memory_bytes),
           static_cast<unsigned long long>(process.slices));
    separator = ",\n";
  }
  printf("%s],\n      \"contexts\": [", report.processes.empty() ? "" : "\n      ");
  separator = "\n";
  for (const SegmentReport::Context& context : report.contexts) {
    printf("%s        {\"pid\": %d, \"id\": %llu, \"kind\": \"%s\"}", separator, context.pid,
           static_cast<unsigned long long>(context.id),
           context.kind == ContextKind::kPrimary ? "primary" : "created");
    separator = ",\n";
  }
  printf("%s]\n    }", report.contexts.empty() ? "" : "\n      ");
}

}  // namespace

int main() {  // NOLINT(bugprone-exception-escape): ends the program
  openmps::Result<openmps::softgpu::Config> config = openmps::softgpu::read_config();
  if (!config.ok()) {
    fprintf(stderr, "softgpu-info: %s\n", config.status().message().c_str());
    return 2;
  }
  printf("{\n  \"segment\": \"%s\",\n  \"devices\": [\n", config->segment.c_str());
  for (uint32_t i = 0; i < config->device_count; ++i) {
    SegmentReport report;
    report.memory_total = config->memory_bytes;
    openmps::Result<SegmentReport> seen =
        openmps::softgpu::DeviceSegment::inspect(openmps::softgpu::segment_name(*config, i));
    if (seen.ok()) {
      report = std::move(*seen);
    } else if (seen.status().code() != CUDA_ERROR_NOT_FOUND) {
      fprintf(stderr, "softgpu-info: %s\n", seen.status().message().c_str());
      return 1;
    }
    if (i > 0) printf(",\n");
    print_device(i, report);
  }
  printf("\n  ]\n}\n");
  return 0;
}
