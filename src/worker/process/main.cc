// SPDX-License-Identifier: Apache-2.0
// openmps-worker: holds one CUDA context per GPU and executes the commands of all sessions. Started
// by openmps-server only, with one end of a socket pair:
//
//   openmps-worker --server-fd N [--driver auto|nvidia|softgpu|PATH] [--place N] [--spare 0|1]
//
// It ends when that socket does. This file builds the worker's parts and connects them.
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/confinement.h"
#include "base/environment.h"
#include "base/host_memory.h"
#include "base/inherited.h"
#include "base/subprocess.h"
#include "base/text.h"
#include "driver/loader.h"
#include "wire/kept.h"
#include "worker/device/driver_environment.h"
#include "worker/device/facts.h"
#include "worker/device/log.h"
#include "worker/device/start_limits.h"
#include "worker/process/main_loop.h"
#include "worker/process/timed_calls.h"
#include "worker/process/xid_monitor.h"
#include "worker/recording/cupti_source.h"
#include "worker/recording/table_source.h"

namespace openmps::worker {
namespace {

struct Options {
  int server_fd = -1;
  std::string driver = "auto";
  uint32_t place = 0;                    // of its addresses (wire::kAddressPlaces)
  uint32_t devices = wire::kAllDevices;  // to use, a bit each
  bool is_spare = false;
};

bool parse(int argc, char** argv, Options* options) {
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view name = argv[i];
    if (name == "--server-fd") {
      options->server_fd = static_cast<int>(parse_unsigned(argv[i + 1], 1u << 20).value_or(0));
    } else if (name == "--place") {
      options->place =
          static_cast<uint32_t>(parse_unsigned(argv[i + 1], wire::kAddressPlaces - 1).value_or(0));
    } else if (name == "--devices") {
      options->devices =
          static_cast<uint32_t>(parse_unsigned(argv[i + 1], wire::kAllDevices).value_or(0));
    } else if (name == "--spare") {
      options->is_spare = std::string_view(argv[i + 1]) == "1";
    } else if (name == "--driver") {
      options->driver = argv[i + 1];
    } else {
      return false;
    }
  }
  return argc % 2 == 1 && options->server_fd > STDERR_FILENO;
}

// A second. Longer spins would only burn cores.
constexpr uint32_t kMostSpinUs = 1'000'000;

// Spinning saves the 5 us of a wake-up where there are spare cores, and slows all other threads
// down where there are none. A small kernel with its launch takes 10 to 50 us. OPENMPS_SPIN_US
// overrides the choice; 0: no thread spins.
uint32_t choose_spin_us(uint32_t cores) {
  if (const auto us = number_setting("OPENMPS_SPIN_US", 0, kMostSpinUs)) return *us;
  if (cores >= 8) return 50;
  return cores >= 4 ? 20 : 5;
}

// Whether loading code waits for all work in the context, as NVIDIA's driver does and softgpu by
// default.
bool loading_waits(DriverKind kind) {
  return kind != DriverKind::kSoftgpu || environment_or("SOFTGPU_LOADING_WAITS", "1") != "0";
}

// More than any device has.
constexpr uint32_t kMostRankSms = 1024;

// OPENMPS_COLD_LANE=off saves the memory of the cold context (docs/decisions/0016).
bool wants_cold_lane() {
  const std::string wish = environment_or("OPENMPS_COLD_LANE", "on");
  if (wish != "on" && wish != "off") {
    log("OPENMPS_COLD_LANE=" + printable(wish) + " is neither on nor off: ignored");
  }
  return wish != "off";
}

// OPENMPS_PERF=NAME,...: mechanisms to switch off, to see what each is worth.
Performance choose_performance() {
  static constexpr std::pair<std::string_view, bool Performance::*> kSwitches[] = {
      {"no_held_waits", &Performance::holds_waits},  {"no_windows", &Performance::budgets},
      {"no_batch", &Performance::batches},           {"no_store", &Performance::store},
      {"no_linger", &Performance::lingers},          {"no_connections", &Performance::connections},
      {"no_value_watch", &Performance::value_watch}, {"no_sparing", &Performance::spares_cores},
      {"no_policy", &Performance::policy},           {"no_rank_sms", &Performance::rank_sms},
      {"no_few_sms", &Performance::few_sms},         {"no_slots", &Performance::slots},
  };
  Performance performance;
  std::istringstream names(environment_or("OPENMPS_PERF", ""));
  for (std::string name; std::getline(names, name, ',');) {
    // Switches for programs: client/session/session.cc.
    bool known = name == "no_kept_answers" || name == "no_thin_images";
    std::string all;
    for (const auto& [known_name, member] : kSwitches) {
      if (name == known_name) performance.*member = false;
      known = known || name == known_name;
      all += (all.empty() ? "" : ", ") + std::string(known_name);
    }
    if (known) continue;
    log("OPENMPS_PERF: there is no \"" + printable(name) + "\", only " + all + ": ignored");
  }
  performance.batches = performance.batches && performance.budgets;
  return performance;
}

// OPENMPS_RANK_SMS=N: how many SMs are kept for sessions of a higher rank (docs/decisions/0028); 0:
// none, and Performance::rank_sms is cleared. Returns what SmPartitions::prepare_for_ranks() takes.
uint32_t choose_rank_sms(Performance* performance) {
  const auto sms = number_setting("OPENMPS_RANK_SMS", 0, kMostRankSms);
  if (sms == 0u) performance->rank_sms = false;
  return sms.value_or(0);
}

// OPENMPS_POLICY=NAME: which session's work goes first (worker/admission/policy.h).
Policy choose_policy() {
  const std::string wish = environment_or("OPENMPS_POLICY", kDefaultPolicy);
  if (const Policy policy = policy_of(wish); policy != nullptr) return policy;
  log("OPENMPS_POLICY: there is no \"" + printable(wish) + "\", only " + policy_names() +
      ": ignored");
  return policy_of(kDefaultPolicy);
}

// Before any work runs, because the driver waits for all work when it makes streams.
void make_slots(const DriverTable& table, const Devices& devices, WorkerParts& worker) {
  if (!worker.performance.slots) return;
  for (const uint32_t i : devices.used()) {
    auto slots = std::make_shared<StreamSlots>();
    const CUresult made = slots->grow(table, devices.at(i).context, StreamSlots::kFirst);
    if (made == CUDA_SUCCESS) {
      worker.slots[i] = std::move(slots);
    } else {
      log("Device " + std::to_string(i) + ": stream slots can't be made ahead (CUDA error " +
          std::to_string(made) + "), so some streams will wait for work that is under way");
    }
  }
}

// All contents together are smaller than the host's memory.
uint64_t most_contents() {
  const auto pages = static_cast<uint64_t>(std::max(1l, sysconf(_SC_PHYS_PAGES)));
  return std::min(pages * wire::kHostPageBytes / HostStore::kBlockBytes * HostStore::kBlockBytes,
                  1024 * wire::kGiB);
}

const char* name_of(DriverKind kind) { return kind == DriverKind::kNvidia ? "nvidia" : "softgpu"; }

// The store of loaded code on disk; null if it is switched off or there is no place for it.
std::unique_ptr<ImageMemory> open_memory(const DriverTable& table, const Devices& devices,
                                         ContextGate& gate, WorkerParts& worker, DriverKind kind) {
  if (!worker.performance.store || !worker.images.shares()) return nullptr;
  std::string why;
  const std::string place = store_place(&why);
  if (place.empty() && why.empty()) return nullptr;
  if (!place.empty()) {
    Result<DiskStore> disk = DiskStore::open(place, store_key(table, devices, name_of(kind)), log);
    if (disk.ok()) {
      return std::make_unique<ImageMemory>(table, devices, gate, worker.cold.get(), worker.images,
                                           std::move(*disk));
    }
    why = place + ": " + disk.status().message();
  }
  log("Code is not remembered on disk: " + why);
  return nullptr;
}

// Null: no trace is wanted, or its file can't be opened: the worker does without.
std::shared_ptr<wire::Trace> open_trace() {
  Result<std::unique_ptr<wire::Trace>> trace = wire::Trace::from_environment();
  if (trace.ok()) return std::move(*trace);
  log(trace.status().message());
  return nullptr;
}

// Where NVIDIA's CUPTI may be: what OPENMPS_CUPTI says, or the places of the CUDA toolkit.
std::vector<std::string> cupti_places() {
  const std::string wish = environment_or("OPENMPS_CUPTI", "");
  if (wish.starts_with('/')) return {wish};
  if (!wish.empty()) log("OPENMPS_CUPTI=" + printable(wish) + " is no absolute path: ignored");
  std::vector<std::string> places;
  for (const char* name : {"libcupti.so.13", "libcupti.so.12"}) {
    for (const char* folder :
         {"", "/usr/local/cuda/extras/CUPTI/lib64/", "/usr/local/cuda/lib64/"}) {
      places.push_back(std::string(folder) + name);
    }
  }
  return places;
}

// A driver that tells by itself, as softgpu does, needs no CUPTI.
std::unique_ptr<ActivitySource> make_source(const DriverTable& table) {
  const void* found = nullptr;
  const CUresult asked = table.cuGetExportTable(&found, &cupti::kActivityTableId);
  if (asked != CUDA_SUCCESS || found == nullptr) {
    return std::make_unique<CuptiSource>(cupti_places());
  }
  return std::make_unique<TableSource>(*static_cast<const cupti::ActivityTable*>(found));
}

// Recorder::WhenQuiet: the main contexts are, and then the cold ones.
bool when_quiet(ContextGate& gate, ColdLanes* cold, const std::function<void()>& call) {
  const Request request{.call = GatedCall::kRecordingEnd, .device = ContextGate::kAllDevices};
  const auto in_cold = [&] {
    if (cold == nullptr) {
      call();
      return CUDA_SUCCESS;
    }
    const auto made = cold->gate.run_quiescent(request, [&] {
      call();
      return CUDA_SUCCESS;
    });
    return made.value_or(CUDA_ERROR_NOT_READY);
  };
  return gate.run_quiescent(request, in_cold) == CUDA_SUCCESS;
}

// OPENMPS_TRACE_GPU=on: the trace has what runs on the devices, too.
bool traces_devices() {
  const std::string wish = environment_or("OPENMPS_TRACE_GPU", "off");
  if (wish != "on" && wish != "off") {
    log("OPENMPS_TRACE_GPU=" + printable(wish) + " is neither on nor off: ignored");
  }
  return wish == "on";
}

void make_recorder(const DriverTable& table, ContextGate& gate, WorkerParts& worker) {
  worker.recorder = std::make_unique<Recorder>(worker.clock, make_source(table),
                                               [&gate, &worker](const std::function<void()>& call) {
                                                 return when_quiet(gate, worker.cold.get(), call);
                                               });
  if (worker.trace != nullptr && traces_devices()) worker.recorder->trace_into(worker.trace);
}

// The driver's table, with long calls written to the trace.
DriverTable traced(const DriverTable& table, const std::shared_ptr<wire::Trace>& trace) {
  if (trace == nullptr) return table;
  return timed_calls(table, [trace](const DriverCall& call) {
    trace->driver_call(driver_symbol_name(call.symbol), call.result, call.begin_ns, call.end_ns);
  });
}

// The parts that all sessions use. Before there are sessions.
Status make_parts(const DriverTable& table, const Devices& devices, ContextGate& gate,
                  DriverKind kind, uint32_t connections, WorkerParts& worker) {
  Performance& wish = worker.performance;
  wish = choose_performance();
  const uint32_t rank_sms = choose_rank_sms(&wish);
  make_slots(table, devices, worker);
  if (wish.holds_waits && wish.value_watch) {
    worker.value_watch = std::make_unique<ValueWatch>(worker.clock);
    OPENMPS_RETURN_IF_ERROR(worker.value_watch->start());
  }
  for (QueueCredits& credits : worker.credits) credits.set_queues(connections);
  if (wish.store) worker.images.keep(kKeptImageBytes);
  if (Result<UsageRows> usage = UsageRows::make(devices, wish.budgets); usage.ok()) {
    worker.usage = std::move(*usage);
  } else {
    log("There is no table of what sessions use: " + usage.status().message());
  }
  worker.partitions = std::make_shared<SmPartitions>(table, devices, gate, worker.descriptors);
  for (const uint32_t i : devices.used()) {
    if (wish.policy) worker.shares[i].set_policy(choose_policy(), devices.at(i).sms);
    if (wish.rank_sms) worker.partitions->prepare_for_ranks(i, rank_sms);
    if (wish.few_sms) worker.partitions->prepare_few(i);
  }
  if (loading_waits(kind) && wants_cold_lane()) {
    worker.cold = std::make_unique<ColdLanes>(table, devices, worker.limits);
  }
  worker.memory = open_memory(table, devices, gate, worker, kind);
  return Status();
}

// Serves until the server is gone, and ends the process.
[[noreturn]] void serve_sessions(Environment& environment, DriverKind kind) {
  ImageMemory* const memory = environment.worker.memory.get();
  if (memory != nullptr) memory->begin();
  MainLoop loop(environment);
  if (Status status = loop.serve(); !status.ok()) {
    log("The server does not keep to the protocol: " + status.message());
  }
  if (memory != nullptr) memory->finish();
  // An idle driver may clean up in exit(). A driver with work in flight would wait for that work,
  // perhaps for ever; the end of the process frees everything at once, and quick_exit() makes
  // softgpu leave its device segment, which outlives the process. NVIDIA's driver makes other
  // processes wait for 0.3 s when it cleans up, and for 0.1 s when the process just ends (an H200).
  // Sessions that have been handed over hold what they have until then.
  if (environment.monitor.lost() != CUDA_SUCCESS && !wire::takes_over()) loop.end_all();
  const bool may_clean_up = kind == DriverKind::kSoftgpu && loop.idle() && !Background::busy() &&
                            !environment.gate.is_collecting();
  if (may_clean_up) exit(0);
  quick_exit(0);
}

// Returns only if the worker can't start.
Status serve(const Options& options, ServerReports& server, uint32_t connections,
             uint64_t most_kept, int log_fd) {
  Result<std::unique_ptr<Driver>> driver = load_driver(options.driver, DriverProbe::kInitialise);
  if (!driver.ok()) return driver.status();
  const DriverKind kind = driver.value()->kind();
  const std::shared_ptr<wire::Trace> trace = open_trace();
  const DriverTable table = traced(driver.value()->table(), trace);
  Result<Devices> devices = Devices::open(table, options.devices);
  if (!devices.ok()) return devices.status();
  OPENMPS_RETURN_IF_ERROR(set_start_limits(table, *devices));
  Result<UniqueFd> facts = collect_facts(table, *devices, kind == DriverKind::kSoftgpu);
  if (!facts.ok()) return facts.status();
  log("Worker on " + driver.value()->path() + " with " + std::to_string(devices->used().size()) +
      " device(s)");

  const uint32_t cores = std::max(1u, std::thread::hardware_concurrency());
  const uint32_t spin_us = choose_spin_us(cores);
  GateLimits limits;
  limits.loading_waits = loading_waits(kind);
  ContextGate gate(table, limits);
  const MonotonicClock clock;
  WorkerParts worker(clock);
  worker.addresses.begin_at(options.place);
  OPENMPS_RETURN_IF_ERROR(make_parts(table, *devices, gate, kind, connections, worker));
  worker.trace = trace;
  make_recorder(table, gate, worker);
  if (wire::suspends()) {
    worker.store = std::make_shared<HostStore>(table, available_host_memory, most_contents());
    worker.pressure.tell = [&server](uint32_t device, uint64_t bytes) {
      server.send(wire::MemoryShort{.device = device, .bytes = bytes});
    };
  }
  if (wire::takes_over()) {
    worker.keeper = std::make_unique<Keeper>(
        most_kept, kKeepAfterNs,
        [&server](std::span<const std::byte> message, std::span<const int> fds) {
          return server.send_bytes(message, fds, ServerReports::kPassMs);
        });
    Keeper& keeper = *worker.keeper;
    worker.images.set_keeping({[&keeper](uint64_t hash, uint64_t bytes, int file) {
                                 return keeper.keep_image(hash, bytes, file);
                               },
                               [&keeper](uint64_t hash) { keeper.forget_image(hash); }});
  }
  const Performance& wish = worker.performance;
  SpinLimits spins(cores, spin_us * 1000ull, wish.lingers, wish.spares_cores);
  const auto report = [&server, &gate, &worker](CUresult result, const std::string& reason,
                                                FaultMonitor::DriverKnows knows) {
    const uint32_t stands_still = knows == FaultMonitor::DriverKnows::kNo ? 1 : 0;
    server.send(wire::WorkerLost{.stands_still = stands_still, .result = result}, reason);
    // No session waits for work of others: it does not end.
    gate.give_up();
    if (worker.cold != nullptr) worker.cold->gate.give_up();
  };
  FaultMonitor monitor(table, *devices, wire::takes_over(), report);
  OPENMPS_RETURN_IF_ERROR(worker.output.capture());
  monitor.set_last_words([&worker, &table, &devices](CUresult result) {
    std::vector<CUcontext> contexts;
    for (const uint32_t i : devices->used()) {
      contexts.push_back(devices->at(i).context);
      const CUcontext cold = worker.cold != nullptr ? worker.cold->context(i) : nullptr;
      if (cold != nullptr) contexts.push_back(cold);
    }
    worker.output.context_lost(table, contexts, result);
  });
  std::string why;
  const std::unique_ptr<XidMonitor> xids =
      wire::takes_over() ? XidMonitor::open(table, *devices, driver.value()->path(), &why)
                         : nullptr;
  if (xids == nullptr && !why.empty()) {
    log("Faults are noticed when the driver tells of them: " + why);
  }
  Environment environment{table, *devices, gate, worker, monitor, spins, server};
  // After the driver has started, which needs more rights (nvidia-modprobe, sockets) and makes
  // threads; before the first session.
  if (const Status status = confine(Role::kWorker, log_fd); !status.ok()) {
    log("The worker is not confined: " + status.message());
  }
  const UniqueFd& usage = worker.usage.file();
  const int fds[] = {facts->get(), usage.get()};
  if (xids != nullptr) {
    const auto on_xid = [&](uint32_t device, uint64_t xid) {
      const CUresult result = fault_of_xid(xid);
      if (result == CUDA_SUCCESS) return;
      monitor.watch(device, result,
                    "Xid " + std::to_string(xid) + " of device " + std::to_string(device));
    };
    xids->start(on_xid);
  }
  if (options.is_spare && worker.cold != nullptr) worker.cold->make_later(now_ns());
  server.send(wire::WorkerReady{.spin_us = spin_us}, std::span(fds).first(usage.valid() ? 2 : 1));
  facts->reset();
  serve_sessions(environment, kind);
}

int run(int argc, char** argv) {
  Options options;
  if (!parse(argc, argv, &options)) {
    fprintf(stderr,
            "openmps-worker is started by openmps-server: --server-fd N [--driver CHOICE]\n");
    return 2;
  }
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  prctl(PR_SET_NAME, "openmps-worker");
  // A write to a dead server fails with EPIPE instead.
  signal(SIGPIPE, SIG_IGN);
  fcntl(options.server_fd, F_SETFD, FD_CLOEXEC);
  // Standard error itself becomes a pipe that this process reads.
  const int log_fd = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  report_refused_calls(log_fd);
  // Before there are threads, those of the driver included. Where the driver still has to make
  // device files by nvidia-modprobe, and needs rights for it, confine() does the rest later.
  if (driver_is_set_up()) {
    if (const Status status = keep_to_itself(log_fd); !status.ok()) {
      log("The worker can look into other processes: " + status.message());
    }
  }
  const uint32_t connections = prepare_driver_environment();
  const uint64_t most_kept = wire::most_kept(raise_open_files_limit(wire::kMostOpenFiles));
  ServerReports server{UniqueFd(options.server_fd)};
  const Status status = serve(options, server, connections, most_kept, log_fd);
  log("Worker can't start: " + status.message());
  server.send(wire::WorkerReady{.result = status.code()}, status.message());
  // Makes softgpu leave its device segment.
  quick_exit(1);
}

}  // namespace
}  // namespace openmps::worker

int main(int argc, char** argv) {  // NOLINT(bugprone-exception-escape): ends the program
  openmps::forget_starter();
  return openmps::worker::run(argc, argv);
}
