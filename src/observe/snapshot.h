// SPDX-License-Identifier: Apache-2.0
// The daemon's devices and clients at one moment, with the counters of docs/decisions/0021, as
// values. Read by `openmps ps`, `top`, `stat` and `advise`.
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/unique_fd.h"
#include "cuda/status.h"
#include "wire/usage.h"

namespace openmps::observe {

// What the namespace by whose socket we have come has of a device, for all its clients together.
struct DeviceShare {
  uint32_t sms = 0;
  uint64_t memory_bytes = 0;
};

struct Device {
  uint32_t ordinal = 0;
  std::string uuid;
  std::string name;
  uint32_t sms = 0;
  uint32_t sm_step = 0;  // SMs are given out in such steps; 0: it is had as a whole
  uint64_t memory_bytes = 0;
  std::string pci = {};                   // "0000:00:06.0"
  std::string compute_capability = {};    // "9.0"; "": not known
  std::string cuda_version = {};          // of the driver, "13.0"; "": not known
  std::optional<DeviceShare> share = {};  // nothing: we have come by the daemon's own socket
};

// Counters of a client, since its session began.
struct Use {
  uint64_t age_ns = 0;
  std::optional<uint64_t> gpu_ns;  // nothing: times are not measured
  uint64_t sm_ns = 0;              // GPU time times the SMs that were busy
  uint64_t launches = 0;           // of kernels, also in graphs
  uint64_t copies = 0;
  uint64_t to_device = 0;  // bytes
  uint64_t from_device = 0;
  uint64_t blocks = 0;  // of the kernels' grids
  uint64_t threads = 0;
  std::array<uint64_t, wire::kTimeBins> lengths{};  // wire::UsageRow explains these three
  std::array<uint64_t, wire::kTimeBins> gap_ns{};
  std::array<uint64_t, wire::kPartBins> part_ns{};
  struct OnDevice {
    uint32_t ordinal = 0;
    uint64_t gpu_ns = 0;
    uint64_t sm_ns = 0;
    uint64_t compared_ns = 0;  // of work whose length alone is known,
    uint64_t alone_ns = 0;     // and its length alone
    uint64_t memory_bytes = 0;
    uint64_t host_bytes = 0;  // of these, bytes that are on the host now
  };
  std::vector<OnDevice> devices;  // that it has used
  // Why its work was held, by reason.
  struct Held {
    std::string why;
    uint64_t ns = 0;
    uint64_t held_now = 0;
  };
  std::vector<Held> held;
};

// Its use of one device: zeros if it has not used the device.
Use::OnDevice on_device(const Use& use, uint32_t ordinal);

struct Client {
  uint64_t pid = 0;            // 0: the daemon can't see it
  uint64_t claimed_pid = 0;    // the PID that the client states, in its PID namespace
  uint32_t pid_namespace = 0;  // the inode of that, as the client states it; 0: it does not know
  uint64_t id = 0;
  uint64_t server = 0;
  std::string device;  // the UUID of the first one that the client sees
  std::string command;
  bool ending = false;
  bool silent = false;  // its worker does not answer
  std::string stays;    // why it would not survive the loss of its worker; "": it would
  std::string domain;   // its fault domain
  double active_thread_percentage = 100;
  std::string quality;
  std::string group;                 // "": in none
  std::string sm_partition;          // "": in none
  std::string residence = "device";  // where its memory is: "device", "host" or "held"
  uint64_t host_bytes = 0;           // on the host now
  std::optional<Use> use;            // nothing: it is not known
};

// Where its memory is, for people: "on the host", "suspended"; "": on the device.
const char* residence_text(const Client& client);

// The name that commands take: the PID, or "id:3" for a client without a PID here.
std::string name_of(const Client& client);

struct Snapshot {
  uint64_t at_ns = 0;  // by now_ns()
  std::vector<Device> devices;
  std::vector<Client> clients;
};

// Reads the answers to `ps --json` and `device_query --json`. CUDA_ERROR_INVALID_VALUE with the
// reason: a daemon of another version sent them.
Result<std::vector<Client>> read_clients(std::string_view json);
Result<std::vector<Device>> read_devices(std::string_view json);
// The same of answers that have been parsed.
Result<std::vector<Client>> clients_of(const nlohmann::json& list);
Result<std::vector<Device>> devices_of(const nlohmann::json& list);

// Reads the answer to `get_server_list --json`, with the errors of the former: a line for each
// server that does not answer the daemon, whose clients are in no list.
Result<std::string> silent_servers(std::string_view json);

// The entry of the client's session in another list; null: it is not there.
const Client* find_again(const std::vector<Client>& clients, const Client& client);

// A connection to the daemon of the pipe directory. Blocking.
class DaemonLink {
 public:
  // Errors: those of wire::connect_to_daemon.
  static Result<DaemonLink> connect();
  // The text of the daemon's answer. Errors: those of wire::call_control.
  Result<std::string> ask(std::string_view command);
  // The devices are asked for once, because they do not change; and only if there are clients,
  // because the answer needs a server.
  Result<Snapshot> look();

 private:
  UniqueFd socket_;
  std::vector<Device> devices_;
};

// Prints why there is no connection, in the words of the command shell.
void report_no_daemon(const Status& status);

}  // namespace openmps::observe
