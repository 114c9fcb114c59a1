// SPDX-License-Identifier: Apache-2.0
// The tables and lists of NVIDIA's daemon, to the byte. Column widths are read off a transcript of
// driver 580.
#include "control/format.h"

#include <stdio.h>

#include "base/text.h"
#include "wire/command_info.h"

namespace openmps::control {
namespace {

// NVIDIA's daemon has no word for it.
const char* mark_of(const ClientLine& client) { return client.ending ? " (ending)" : ""; }

constexpr size_t kShortUuid = 22;  // "GPU-008cbaa3-6cdc-9444": ps shows no more

std::string ps_row(const std::string& pid, const std::string& id, const std::string& server,
                   const std::string& device, const std::string& name_space,
                   const std::string& command) {
  return format_text("%-10s%-10s%-15s%-26s%-15s%-15s\n", pid.c_str(), id.c_str(), server.c_str(),
                     device.c_str(), name_space.c_str(), command.c_str());
}

struct PciAddress {
  unsigned domain = 0, bus = 0, device = 0, function = 0;
};

PciAddress parse_pci(const std::string& text) {
  PciAddress pci;
  (void)sscanf(text.c_str(), "%8x:%2x:%2x.%1x", &pci.domain, &pci.bus, &pci.device, &pci.function);
  return pci;
}

std::string device_row(bool csv, const std::string& ordinal, const std::string& pci,
                       const std::string& uuid, const std::string& name,
                       const std::string& attributes) {
  const char* form = csv ? "%s,%s,%s,%s,%s\n" : "%-16s%-15s%-42s%-34s%s\n";
  char line[1024];
  snprintf(line, sizeof(line), form, ordinal.c_str(), pci.c_str(), uuid.c_str(), name.c_str(),
           attributes.c_str());
  return line;
}

}  // namespace

std::string format_client_list(const std::vector<ClientLine>& clients) {
  std::string text;
  for (const ClientLine& client : clients) {
    text += format_text("%u%s\n", client.pid, mark_of(client));
  }
  return text;
}

std::string format_ps(const std::vector<ClientLine>& clients) {
  if (clients.empty()) return "";
  std::string text = ps_row("PID", "ID", "SERVER", "DEVICE", "NAMESPACE", "COMMAND");
  for (const ClientLine& client : clients) {
    // The program without its arguments.
    const std::string program = client.command.substr(0, client.command.find(' '));
    text += ps_row(std::to_string(client.pid), std::to_string(client.id),
                   std::to_string(client.server), client.device_uuid.substr(0, kShortUuid),
                   std::to_string(client.namespace_inode), program + mark_of(client));
  }
  return text;
}

std::string format_inspected(const Inspected& inspected) {
  const wire::SessionReport& r = inspected.report;
  const auto name = [](uint32_t opcode) {
    return wire::name_of(static_cast<wire::Opcode>(opcode));
  };
  std::string text = format_text("Session %u of process %u%s\n", r.id, r.pid,
                                 r.ending != 0 ? ", which has gone or is cut off" : "");
  if (r.status != CUDA_SUCCESS) text += format_text("  has ended with CUDA error %u\n", r.status);
  if (r.async_error != CUDA_SUCCESS) {
    text += format_text("  has CUDA error %u to report\n", r.async_error);
  }
  text += format_text("  executor: %llu commands done, %llu bytes queued, ",
                      static_cast<unsigned long long>(r.executed),
                      static_cast<unsigned long long>(r.ring_bytes));
  if (r.opcode != 0) {
    text += format_text("executes %s\n", name(r.opcode));
  } else {
    text += r.sleeping != 0 ? "sleeps\n" : "looks for commands\n";
  }
  if (r.wait != wire::ExecutorWait::kNone) {
    text += format_text("  has waited for %.3f s: %s\n", static_cast<double>(r.wait_ns) / 1e9,
                        r.wait == wire::ExecutorWait::kQuietMoment
                            ? "its command needs a quiet moment, in which no session's work runs"
                            : "another session's command has its quiet moment");
  }
  if (r.later != 0) text += format_text("  commands to be answered later: %u\n", r.later);
  if (r.waiters != 0) text += format_text("  threads of the program that sleep: %u\n", r.waiters);
  for (const wire::WaitRow& wait : inspected.waits) {
    const auto have = static_cast<unsigned long long>(wait.have);
    switch (wait.kind) {
      case wire::WaitKind::kQueued:
        text += format_text("  queued: %llu %s\n", have, name(wait.number));
        break;
      case wire::WaitKind::kReply:
        text += format_text("  a thread waits for the reply in slot %u\n", wait.number);
        break;
      case wire::WaitKind::kFence:
        text +=
            format_text("  stream %u has not come to %llu, it is at %llu (fence %u)\n", wait.stream,
                        static_cast<unsigned long long>(wait.want), have, wait.number);
        break;
      case wire::WaitKind::kHostFunction:
        text += format_text("  a stream waits for host function %u of the program\n", wait.number);
        break;
    }
  }
  if (r.more_waits != 0) text += format_text("  and %u more\n", r.more_waits);
  return text;
}

std::string format_device_clients(const std::vector<Device>& devices,
                                  const std::vector<ClientLine>& clients) {
  std::string text;
  for (size_t i = 0; i < devices.size(); ++i) {
    const PciAddress pci = parse_pci(devices[i].pci_bus_id);
    // Domain, bus, function: so NVIDIA's daemon shows 0000:00:06.0 as 00:00.0.
    text += format_text("[%zu] %02x:%02x.%x, %s\n", i, pci.domain, pci.bus, pci.function,
                        devices[i].name.c_str());
    for (const ClientLine& client : clients) {
      if (client.device != i) continue;
      text += format_text("%u.%u%s\n", client.pid, client.id, mark_of(client));
    }
  }
  return text;
}

std::string format_devices(const std::string& title, const std::vector<Device>& devices, bool csv) {
  std::string text = title + "\n";
  text += device_row(csv, "Device Ordinal", "PCI IDs", "UUID", "Name", "Attributes");
  for (size_t i = 0; i < devices.size(); ++i) {
    const PciAddress pci = parse_pci(devices[i].pci_bus_id);
    text += device_row(
        csv, std::to_string(i),
        format_text("%04x:%02x.%02x.%02x", pci.domain, pci.bus, pci.device, pci.function),
        devices[i].uuid, devices[i].name, "N/A");
  }
  return text;
}

}  // namespace openmps::control
