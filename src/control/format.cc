// SPDX-License-Identifier: Apache-2.0
// Tables and lists as NVIDIA's daemon prints them, byte by byte. Column widths are those of a
// transcript of driver 580.
#include "control/format.h"

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <numeric>

#include "base/text.h"
#include "control/client_name.h"
#include "wire/command_info.h"

namespace openmps::control {
namespace {

// NVIDIA's daemon shows no such mark.
const char* mark_of(const ClientLine& client) {
  if (client.silent) return " (worker does not answer)";
  return client.ending ? " (ending)" : "";
}

// Where the client's memory is; "": on its devices.
const char* residence_mark(const ClientLine& client) {
  switch (client.residence) {
    case wire::Residence::kHost: return " (on the host)";
    case wire::Residence::kHeld: return " (suspended)";
    default: return "";
  }
}

// Whole MiB, as many as hold so many bytes.
std::string mib_text(uint64_t bytes) {
  return std::to_string(bytes / wire::kMiB + (bytes % wire::kMiB != 0 ? 1 : 0)) + " MiB";
}

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

// Bytes in the notation of limits.
std::string size_text(uint64_t bytes) {
  if (bytes % wire::kGiB == 0) return std::to_string(bytes / wire::kGiB) + "G";
  return format_text("%.*fM", bytes % wire::kMiB == 0 ? 0 : 1,
                     static_cast<double>(bytes) / static_cast<double>(wire::kMiB));
}

constexpr size_t kShortestUuid = 12;  // "GPU-74d43ed3": lspart shows no more

std::string partition_row(const std::string& uuid, const std::string& partition,
                          const std::string& free_chunks, const std::string& used_chunks,
                          const std::string& free_sms, const std::string& used_sms,
                          const std::string& clients) {
  return format_text("%-14s%-38s%-7s%-7s%-6s%-6s%s\n", uuid.c_str(), partition.c_str(),
                     free_chunks.c_str(), used_chunks.c_str(), free_sms.c_str(), used_sms.c_str(),
                     clients.c_str());
}

double seconds(uint64_t ns) { return static_cast<double>(ns) / 1e9; }

const char* reason_of(wire::ExecutorWait wait) {
  switch (wait) {
    case wire::ExecutorWait::kQuietMoment:
      return "its command needs a quiet moment, in which no session's work runs";
    case wire::ExecutorWait::kHeldBack: return "another session's command has its quiet moment";
    case wire::ExecutorWait::kPrintTurn:
      return "its kernel may print, and has to wait for its turn to";
    default: return "";
  }
}

// A session that keeps the executor waiting, and why.
std::string hindrance_text(const wire::SessionReport& report, const wire::WaitRow& wait) {
  std::string who = "the worker";
  if (wait.number == report.id) {
    who = "the session itself";
  } else if (wait.number != 0) {
    who = format_text("session %u", wait.number);
    if (wait.want != 0) who += format_text(" of process %u", static_cast<unsigned>(wait.want));
  }
  const std::string stream =
      wait.stream == 0 ? std::string("a stream") : format_text("stream %u", wait.stream);
  std::string what;
  switch (static_cast<wire::Hindrance>(wait.how)) {
    case wire::Hindrance::kSubmits: what = "is submitting work"; break;
    case wire::Hindrance::kRuns: what = "has work in " + stream; break;
    case wire::Hindrance::kOutlasts:
      what = "has work in " + stream + " that did not end while new work was held back";
      break;
    case wire::Hindrance::kAwaitsValue:
      what = "has work in " + stream + ", which waits for a value";
      break;
    case wire::Hindrance::kHostFunction:
      what = "has work in " + stream + ", and its program a host function to run";
      break;
    case wire::Hindrance::kQuietMoment: what = "looks for a quiet moment, or has it"; break;
    case wire::Hindrance::kPrintTurn: what = "has its turn to print, or is to have it next"; break;
    default: break;
  }
  return "    in its way: " + who + " " + what + "\n";
}

// A word in memory that a stream waits for.
std::string value_text(const wire::WaitRow& wait) {
  const auto value = static_cast<unsigned long long>(wait.want);
  std::string until;
  switch (wait.how / wire::kValueCondition) {
    case CU_STREAM_WAIT_VALUE_GEQ: until = format_text("at least %llu", value); break;
    case CU_STREAM_WAIT_VALUE_EQ: until = format_text("%llu", value); break;
    case CU_STREAM_WAIT_VALUE_AND:
      until = format_text("a value with a bit of 0x%llx", value);
      break;
    case CU_STREAM_WAIT_VALUE_NOR:
      until = format_text("a value that lacks a bit that 0x%llx lacks, too", value);
      break;
    default: break;
  }
  return format_text(
      "  stream %u %s for %u bytes at 0x%llx to be %s, as it was told %.3f s ago\n", wait.stream,
      wait.number != 0 ? "waits" : "has then to wait", wait.how % wire::kValueCondition,
      static_cast<unsigned long long>(wait.address), until.c_str(), seconds(wait.age_ns));
}

// A deferred release, and what it waits for.
std::string return_text(const wire::WaitRow& wait) {
  const auto bytes = static_cast<unsigned long long>(wait.have);
  const auto address = static_cast<unsigned long long>(wait.address);
  std::string what;
  switch (static_cast<wire::ReturnKind>(wait.number)) {
    case wire::ReturnKind::kDeviceMemory:
      what = format_text("%llu bytes of device memory at 0x%llx", bytes, address);
      break;
    case wire::ReturnKind::kHostMemory:
      what = format_text("%llu bytes of host memory at 0x%llx", bytes, address);
      break;
    case wire::ReturnKind::kArray: what = format_text("an array of %llu bytes", bytes); break;
    case wire::ReturnKind::kGreenContext: what = "a green context"; break;
    case wire::ReturnKind::kImage: what = "a texture or surface object"; break;
    case wire::ReturnKind::kCode: what = "a module's code"; break;
    default: break;
  }
  std::string when = "it waits for a quiet moment, in which no session's work runs";
  if (static_cast<wire::ReturnWait>(wait.how) == wire::ReturnWait::kStreams) {
    when = wait.stream == 0
               ? std::string("it waits for earlier work of the session")
               : format_text("it waits for earlier work, first in stream %u", wait.stream);
  }
  return format_text("  %s, given up %.3f s ago: %s\n", what.c_str(), seconds(wait.age_ns),
                     when.c_str());
}

}  // namespace

std::string format_client_list(const std::vector<ClientLine>& clients) {
  std::string text;
  for (const ClientLine& client : clients) {
    text += client_name(client.pid, client.id) + mark_of(client) + "\n";
  }
  return text;
}

std::string format_ps(const std::vector<ClientLine>& clients) {
  if (clients.empty()) return "";
  std::string text = ps_row("PID", "ID", "SERVER", "DEVICE", "NAMESPACE", "COMMAND");
  for (const ClientLine& client : clients) {
    // The command without arguments.
    std::string program = client.command.substr(0, client.command.find(' ')) + mark_of(client) +
                          residence_mark(client);
    if (client.pid == 0) program += format_text(" (PID %u by its own word)", client.claimed_pid);
    text += ps_row(client_name(client.pid, client.id), std::to_string(client.id),
                   std::to_string(client.server), client.device_uuid.substr(0, kShortUuid),
                   std::to_string(client.namespace_inode), program);
  }
  const bool all_have = std::ranges::none_of(clients, [](const auto& one) { return one.pid == 0; });
  return all_have ? text : text + kNoPidNote;
}

uint64_t ClientLine::host_bytes() const {
  return std::accumulate(usage.on_host.begin(), usage.on_host.end(), uint64_t{0});
}

std::string format_suspended(const std::string& client, uint64_t moved_bytes,
                             uint64_t stayed_bytes) {
  std::string text = "Client " + client + ": ";
  text += moved_bytes == 0 ? "no memory had to go to the host"
                           : mib_text(moved_bytes) + " are on the host";
  if (stayed_bytes != 0) {
    text += "; " + mib_text(stayed_bytes) + " stay, which other programs have, too";
  }
  return text + "\n";
}

// Each column is as wide as its longest entry. Names of cgroups are long, so groups come last.
std::string format_groups(const std::vector<GroupLine>& groups) {
  if (groups.empty()) return "";
  std::vector<std::array<std::string, 6>> rows = {
      {"SERVER", "MEMBERS", "SMS", "PRIORITY", "MEMORY", "GROUP"}};
  for (const GroupLine& group : groups) {
    const wire::ClientLimits& limits = group.limits;
    const bool has_part = limits.active_thread_percentage < 100;
    std::string sms = has_part ? format_text("%g%%", limits.active_thread_percentage) : "";
    std::string memory;
    for (uint32_t i = 0; i < wire::kMaxDevices; ++i) {
      if (limits.sm_count[i] != 0) {
        sms += format_text("%s%u: %u", sms.empty() ? "" : ", ", i, limits.sm_count[i]);
      }
      const uint64_t guaranteed = limits.guaranteed_memory[i];
      if (group.memory[i] == 0 && limits.memory_limit[i] == 0 && guaranteed == 0) continue;
      memory += format_text("%s%u: %s", memory.empty() ? "" : ", ", i,
                            size_text(group.memory[i]).c_str());
      if (limits.memory_limit[i] != 0) memory += " of " + size_text(limits.memory_limit[i]);
      if (guaranteed != 0) memory += " (" + size_text(guaranteed) + " guaranteed)";
    }
    const bool has_priority = limits.client_priority != wire::kNoPriority;
    rows.push_back({std::to_string(group.server), std::to_string(group.members),
                    sms.empty() ? "all" : sms,
                    has_priority ? std::to_string(limits.client_priority) : "-",
                    memory.empty() ? "-" : memory, group.name});
  }
  std::array<size_t, 6> widths{};
  for (const auto& row : rows) {
    for (size_t i = 0; i + 1 < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size() + 2);
  }
  std::string text;
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      text += row[i];
      text.append(i + 1 < row.size() ? widths[i] - row[i].size() : 0, ' ');
    }
    text += '\n';
  }
  return text;
}

std::string format_inspected(const Inspected& inspected) {
  const wire::SessionReport& r = inspected.report;
  const auto name = [](uint32_t opcode) {
    return wire::name_of(static_cast<wire::Opcode>(opcode));
  };
  const std::string whose =
      r.pid != 0 ? format_text("process %u", r.pid) : std::string("a process that has no PID here");
  std::string text = format_text("Session %u of %s%s\n", r.id, whose.c_str(),
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
  if (inspected.residence != wire::Residence::kDevice || inspected.host_bytes != 0) {
    const bool is_held = inspected.residence == wire::Residence::kHeld;
    text += "  memory: " + mib_text(inspected.host_bytes) + " are on the host" +
            (is_held ? "; it is suspended, and its work waits for resume\n" : "\n");
  }
  if (r.wait != wire::ExecutorWait::kNone) {
    text += format_text("  has waited for %.3f s: %s\n", seconds(r.wait_ns), reason_of(r.wait));
    for (const wire::WaitRow& wait : inspected.waits) {
      if (wait.kind == wire::WaitKind::kHindrance) text += hindrance_text(r, wait);
    }
  }
  if (r.later != 0) text += format_text("  commands to be answered later: %u\n", r.later);
  if (r.waiters != 0) text += format_text("  threads of the program that sleep: %u\n", r.waiters);
  if (r.value_waits != 0) {
    text += format_text("  values that streams wait for: %u, as of %.3f s ago\n", r.value_waits,
                        seconds(r.value_waits_age_ns));
  }
  if (r.held != 0) text += format_text("  held back, not given to the driver: %u\n", r.held);
  if (r.returns != 0) text += format_text("  given up and not yet given back: %u\n", r.returns);
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
      case wire::WaitKind::kHindrance: break;  // above
      case wire::WaitKind::kValue: text += value_text(wait); break;
      case wire::WaitKind::kReturn: text += return_text(wait); break;
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
      if (client.device_uuid != devices[i].uuid) continue;
      text += format_text("%u.%u%s\n", client.pid, client.id, mark_of(client));
    }
  }
  return text;
}

uint32_t DevicePartitions::used_chunks() const {
  uint32_t used = 0;
  for (const Partition& partition : partitions) used += partition.chunks;
  return used;
}

std::string format_partitions(const std::vector<DevicePartitions>& devices) {
  std::string text = partition_row("GPU", "Partition", "free", "used", "free", "used", "clients") +
                     partition_row("", "", "chunk", "chunk", "SM", "SM", "");
  for (const DevicePartitions& device : devices) {
    const std::string uuid = device.uuid.substr(0, kShortestUuid);
    const auto row = [&](const std::string& id, const std::string& free,
                         const std::string& free_sms, uint32_t used, const std::string& clients) {
      text += partition_row(uuid, id, free, std::to_string(used), free_sms,
                            std::to_string(used * device.chunk_sms), clients);
    };
    const uint32_t used = device.used_chunks();
    const uint32_t free = device.chunks - std::min(used, device.chunks);
    row("-", std::to_string(free), std::to_string(free * device.chunk_sms), used, "-");
    for (const DevicePartitions::Partition& partition : device.partitions) {
      row(partition.id, "-", "-", partition.chunks, partition.has_clients ? "Yes" : "No");
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

Listing totals_listing(const std::vector<TotalsLine>& totals) {
  Listing listing{{"server", "group", "device", "clients", "there", "gpu-seconds", "sm-seconds"}};
  const auto use = [](const wire::UsageCells<uint64_t, wire::kDeviceUses>& uses,
                      wire::DeviceUse what) {
    return format_text("%.6f", seconds(uses[static_cast<size_t>(what)]));
  };
  for (const TotalsLine& line : totals) {
    std::vector<TotalsLine::OnDevice> devices = line.devices;
    if (devices.empty()) devices.push_back({.uuid = kNoValue});
    for (const TotalsLine::OnDevice& device : devices) {
      listing.rows.push_back({line.server, line.group.empty() ? kNoValue : line.group, device.uuid,
                              std::to_string(line.sessions), std::to_string(line.open),
                              use(device.uses, wire::DeviceUse::kNs),
                              use(device.uses, wire::DeviceUse::kSmNs)});
    }
  }
  return listing;
}

const char* name_of(wire::EventKind kind) {
  constexpr const char* kNames[] = {"worker-started", "worker-died", "fault",  "takeover",
                                    "moved",          "lost",        "failed", "terminated",
                                    "quarantined",    "refused"};
  static_assert(std::size(kNames) == wire::kEventKinds);
  const auto number = static_cast<size_t>(kind);
  return number < std::size(kNames) ? kNames[number] : "";
}

std::string format_events(const std::vector<EventLine>& events) {
  Listing listing{{"time", "server", "event", "client", "command", "what"}};
  for (const EventLine& event : events) {
    const auto at = static_cast<time_t>(event.at_ns / 1'000'000'000);
    tm local{};
    localtime_r(&at, &local);
    char time[32];
    strftime(time, sizeof(time), "%Y-%m-%d %H:%M:%S", &local);
    const bool has_client = event.pid != 0 || event.id != 0;
    const std::string error =
        event.result == CUDA_SUCCESS ? "" : format_text("CUDA error %d: ", event.result);
    listing.rows.push_back({time, event.server, name_of(event.kind),
                            has_client ? client_name(event.pid, event.id) : kNoValue,
                            event.command.empty() ? kNoValue : event.command, error + event.text});
  }
  Result<std::string> text = format_listing(listing, "table");
  return text.ok() ? *text : text.status().message() + "\n";
}

}  // namespace openmps::control
