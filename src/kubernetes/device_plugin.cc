// SPDX-License-Identifier: Apache-2.0
// The device plugin: the calls of the kubelet, on gRPC's threads, and the main thread, which looks
// twice a second whether daemon, kubelet and its own socket are still those that it knows.
#include "kubernetes/device_plugin.h"

#include <deviceplugin.grpc.pb.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <csignal>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "base/event_loop.h"
#include "base/mutex.h"
#include "base/text.h"
#include "kubernetes/daemon.h"
#include "kubernetes/garbage.h"
#include "kubernetes/kubelet.h"
#include "kubernetes/rpc_server.h"
#include "observe/cdi.h"

namespace openmps::kubernetes {
namespace {

constexpr uint64_t kNsPerSecond = 1'000'000'000;
constexpr uint64_t kLookMs = 500;
// How soon a call of ListAndWatch notices that its client has gone.
constexpr uint64_t kWatchNs = kNsPerSecond;
// The list of pods is asked for that often while a namespace may wait for its end.
constexpr uint64_t kListsPerGrace = 4;
// A namespace that was never seen with a container: see garbage.h.
constexpr uint64_t kNeverListedNs = 3600 * kNsPerSecond;

// The devices as the kubelet is told.
struct Board {
  std::vector<std::string> ids;
  bool healthy = false;
};

class Plugin {
 public:
  Plugin(DevicePluginOptions options, const Log& log)
      : options_(std::move(options)),
        log_(log),
        daemon_(options_.server),
        garbage_(static_cast<uint64_t>(options_.collect_after_s * kNsPerSecond), kNeverListedNs) {}

  // Whether the devices are known, whatever their health.
  [[nodiscard]] bool has_devices() const {
    const MutexLock lock(mutex_);
    return !node_.empty();
  }
  void look_at_daemon();
  void look_for_garbage();
  void close() {
    const MutexLock lock(mutex_);
    is_closing_ = true;
    changed_.notify_all();
  }
  void open() {
    const MutexLock lock(mutex_);
    is_closing_ = false;
  }

  // The board, once its version is another than `*version`, or after some time. False: the plugin's
  // socket closes.
  bool read_board(uint64_t* version, Board* board);
  // `call`: for the log.
  Result<v1beta1::ContainerAllocateResponse> allocate(const char* call,
                                                      const std::vector<std::string>& ids);

  [[nodiscard]] const Log& log() const { return log_; }

 private:
  // The directory of the namespace, which is there from now on.
  Result<std::string> make_namespace(const std::vector<std::string>& ids, Grant* grant,
                                     std::vector<observe::Device>* node);
  // Those that the daemon has, also from before this program's start.
  Status find_namespaces();
  void set_board(std::vector<observe::Device> node);
  void set_sick(const std::string& reason);

  const DevicePluginOptions options_;
  const Log& log_;
  const Daemon daemon_;
  DaemonWatch watch_;        // main thread
  uint64_t listed_ns_ = 0;   // main thread
  std::string not_listed_;   // main thread: why the kubelet does not list pods
  std::string not_removed_;  // main thread

  // Making and removing of namespaces: what is to be used is not removed meanwhile.
  Mutex making_{LockRank::kKubernetesNamespaces};
  Garbage garbage_ GUARDED_BY(making_);

  mutable Mutex mutex_{LockRank::kKubernetesDevices};
  CondVar changed_;
  std::vector<observe::Device> node_ GUARDED_BY(mutex_);
  bool healthy_ GUARDED_BY(mutex_) = false;
  std::string sick_of_ GUARDED_BY(mutex_);
  bool is_closing_ GUARDED_BY(mutex_) = false;
  uint64_t version_ GUARDED_BY(mutex_) = 1;
};

void Plugin::look_at_daemon() {
  const DaemonWatch::Sight sight = watch_.look();
  if (sight == DaemonWatch::Sight::kAway) return set_sick(watch_.reason());
  if (sight == DaemonWatch::Sight::kKnown) return;
  Result<std::vector<observe::Device>> node = daemon_.devices();
  const Status asked = node.ok() ? find_namespaces() : node.status();
  watch_.answered(asked.ok());
  if (!asked.ok()) return set_sick(asked.message());
  set_board(std::move(node).value());
}

Status Plugin::find_namespaces() {
  const MutexLock lock(making_);
  const Result<std::vector<observe::Share>> shares = daemon_.namespaces();
  if (!shares.ok()) return shares.status();
  std::vector<std::string> names;
  for (const observe::Share& share : *shares) {
    if (names_shares(share.name)) names.push_back(share.name);
  }
  garbage_.set(names, now_ns());
  return Status();
}

void Plugin::set_board(std::vector<observe::Device> node) {
  const MutexLock lock(mutex_);
  const bool same =
      std::ranges::equal(node, node_, {}, &observe::Device::uuid, &observe::Device::uuid);
  if (healthy_ && same) return;
  node_ = std::move(node);
  healthy_ = true;
  sick_of_.clear();
  ++version_;
  changed_.notify_all();
  log_.write(
      format_text("%zu GPUs, %u shares of each: healthy", node_.size(), options_.size.per_gpu));
}

void Plugin::set_sick(const std::string& reason) {
  const MutexLock lock(mutex_);
  if (reason != sick_of_) log_.write("unhealthy: " + printable(reason));
  sick_of_ = reason;
  if (!healthy_) return;
  healthy_ = false;
  ++version_;
  changed_.notify_all();
}

bool Plugin::read_board(uint64_t* version, Board* board) {
  const MutexLock lock(mutex_);
  if (version_ == *version && !is_closing_) (void)changed_.wait_for(mutex_, kWatchNs);
  if (is_closing_) return false;
  *version = version_;
  board->healthy = healthy_;
  board->ids.clear();
  for (const ShareId& id : all_shares(node_, options_.size)) board->ids.push_back(text_of(id));
  return true;
}

Result<std::string> Plugin::make_namespace(const std::vector<std::string>& ids, Grant* grant,
                                           std::vector<observe::Device>* node) {
  const Result<ShareSet> shares = read_share_ids(ids);
  if (!shares.ok()) return shares.status();
  {
    const MutexLock lock(mutex_);
    *node = node_;
  }
  Result<Grant> found = grant_of(*shares, *node, options_.size);
  if (!found.ok()) return found.status();
  *grant = std::move(found).value();
  grant->borrows = options_.borrows;
  const MutexLock lock(making_);
  Result<std::string> directory = daemon_.make(*grant, *node);
  if (directory.ok()) garbage_.use(grant->name, now_ns());
  return directory;
}

Result<v1beta1::ContainerAllocateResponse> Plugin::allocate(const char* call,
                                                            const std::vector<std::string>& ids) {
  Grant grant;
  std::vector<observe::Device> node;
  const Result<std::string> directory = make_namespace(ids, &grant, &node);
  if (!directory.ok()) {
    log_.write(format_text("%s refused: %s", call, directory.status().message().c_str()));
    return directory.status();
  }
  std::string list;
  for (const std::string& id : ids) list += " " + id;
  log_.write(call + (" namespace " + grant.name) + ":" + list);
  v1beta1::ContainerAllocateResponse answer;
  auto& environment = *answer.mutable_envs();
  for (const auto& [name, value] : observe::share_environment()) environment[name] = value;
  environment["CUDA_VISIBLE_DEVICES"] = visible_devices(grant, node);
  std::vector<observe::ContainerMount> mounts =
      observe::library_mounts(observe::libraries_at(options_.library));
  mounts.push_back(observe::share_mount(*directory));
  for (const observe::ContainerMount& mount : mounts) {
    v1beta1::Mount* const made = answer.add_mounts();
    made->set_host_path(mount.from);
    made->set_container_path(mount.to);
    made->set_read_only(true);
  }
  return answer;
}

void Plugin::look_for_garbage() {
  const auto grace_ns = static_cast<uint64_t>(options_.collect_after_s * kNsPerSecond);
  const uint64_t asked = now_ns();
  if (asked < listed_ns_ + grace_ns / kListsPerGrace) return;
  listed_ns_ = asked;
  const auto containers = devices_of_containers(options_.pod_resources, options_.resource);
  if (!containers.ok()) {
    // Nothing is known, so nothing is removed.
    const std::string& why = containers.status().message();
    if (why != not_listed_) log_.write("namespaces are not collected: " + why);
    not_listed_ = why;
    return;
  }
  if (!not_listed_.empty()) log_.write("namespaces are collected again");
  not_listed_.clear();
  std::set<std::string> used;
  for (const auto& [container, ids] : *containers) {
    const Result<ShareSet> shares = read_share_ids(ids);
    if (shares.ok()) used.insert(namespace_of(*shares));
  }
  const MutexLock lock(making_);
  garbage_.list(used, asked);
  for (const std::string& name : garbage_.find(now_ns())) {
    const Status removed = daemon_.remove(name);
    if (removed.ok()) {
      log_.write("namespace " + name + " is removed: no container has its shares");
      garbage_.forget(name);
      continue;
    }
    // It has clients, or the daemon has gone. Asked again after the same time.
    if (removed.message() != not_removed_) log_.write(removed.message());
    not_removed_ = removed.message();
    garbage_.postpone(name, now_ns());
  }
}

std::vector<std::string> list_of(const google::protobuf::RepeatedPtrField<std::string>& field) {
  return {field.begin(), field.end()};
}

// The calls of the kubelet.
class Service final : public v1beta1::DevicePlugin::Service {
 public:
  explicit Service(Plugin& plugin) : plugin_(plugin) {}

  grpc::Status GetDevicePluginOptions(grpc::ServerContext*, const v1beta1::Empty*,
                                      v1beta1::DevicePluginOptions* answer) override {
    answer->set_get_preferred_allocation_available(true);
    answer->set_pre_start_required(true);
    return grpc::Status::OK;
  }

  grpc::Status ListAndWatch(grpc::ServerContext* call, const v1beta1::Empty*,
                            grpc::ServerWriter<v1beta1::ListAndWatchResponse>* writer) override {
    uint64_t told = 0;
    uint64_t version = 0;
    Board board;
    while (!call->IsCancelled() && plugin_.read_board(&version, &board)) {
      if (version == told) continue;
      told = version;
      v1beta1::ListAndWatchResponse list;
      for (const std::string& id : board.ids) {
        v1beta1::Device* const device = list.add_devices();
        device->set_id(id);
        device->set_health(board.healthy ? "Healthy" : "Unhealthy");
      }
      if (!writer->Write(list)) break;
    }
    return grpc::Status::OK;
  }

  grpc::Status GetPreferredAllocation(grpc::ServerContext*,
                                      const v1beta1::PreferredAllocationRequest* request,
                                      v1beta1::PreferredAllocationResponse* answer) override {
    for (const auto& container : request->container_requests()) {
      const Result<ShareSet> shares =
          prefer_shares(list_of(container.available_deviceids()),
                        list_of(container.must_include_deviceids()), container.allocation_size());
      if (!shares.ok()) return rpc_status(shares.status());
      auto* const chosen = answer->add_container_responses();
      for (const ShareId& id : *shares) chosen->add_deviceids(text_of(id));
    }
    return grpc::Status::OK;
  }

  grpc::Status Allocate(grpc::ServerContext*, const v1beta1::AllocateRequest* request,
                        v1beta1::AllocateResponse* answer) override {
    for (const auto& container : request->container_requests()) {
      Result<v1beta1::ContainerAllocateResponse> made =
          plugin_.allocate("Allocate", list_of(container.devices_ids()));
      if (!made.ok()) return rpc_status(made.status());
      *answer->add_container_responses() = std::move(made).value();
    }
    return grpc::Status::OK;
  }

  // Before each start of a container, also of one that had ended: a daemon that has been replaced
  // after `quit` has not its namespace any more.
  grpc::Status PreStartContainer(grpc::ServerContext*,
                                 const v1beta1::PreStartContainerRequest* request,
                                 v1beta1::PreStartContainerResponse*) override {
    return rpc_status(
        plugin_.allocate("PreStartContainer", list_of(request->devices_ids())).status());
  }

 private:
  Plugin& plugin_;
};

// The plugin's socket in the kubelet's directory, and what the kubelet knows of it. Main thread.
class Registrar {
 public:
  Registrar(const DevicePluginOptions& options, Plugin& plugin)
      : resource_(options.resource),
        directory_(options.directory),
        endpoint_(endpoint_of(options.resource)),
        plugin_(plugin),
        service_(plugin) {}
  ~Registrar() { stop(); }
  Registrar(const Registrar&) = delete;
  Registrar& operator=(const Registrar&) = delete;

  // A kubelet that starts removes what is in its directory, and knows no plugin.
  void look() {
    if (server_ != nullptr && !server_->is_reachable()) stop();
    if (server_ == nullptr && !start()) return;
    const std::string kubelet = directory_ + "/kubelet.sock";
    const std::optional<FileIdentity> there = identity_of(kubelet);
    if (!there || there == registered_) return;
    const Status registered = register_plugin(kubelet, endpoint_, resource_);
    if (registered.ok()) registered_ = there;
    say(registered.ok() ? "registered " + resource_ : "not registered: " + registered.message());
  }

 private:
  static std::string endpoint_of(std::string resource) {
    std::ranges::replace(resource, '/', '-');
    return resource + ".sock";
  }
  bool start() {
    plugin_.open();
    grpc::Service* const services[] = {&service_};
    Result<std::unique_ptr<RpcServer>> server =
        RpcServer::start(directory_ + "/" + endpoint_, services);
    if (!server.ok()) {
      say("no socket: " + server.status().message());
      return false;
    }
    server_ = std::move(server).value();
    said_.clear();
    return true;
  }
  void stop() {
    plugin_.close();
    server_.reset();
    registered_.reset();
  }
  void say(const std::string& text) {
    if (text != said_) plugin_.log().write(text);
    said_ = text;
  }

  const std::string resource_;
  const std::string directory_;
  const std::string endpoint_;
  Plugin& plugin_;
  Service service_;
  std::unique_ptr<RpcServer> server_;
  std::optional<FileIdentity> registered_;
  std::string said_;
};

}  // namespace

bool names_a_resource(std::string_view text) {
  const size_t slash = text.find('/');
  if (slash == std::string_view::npos) return false;
  const auto is_part = [](std::string_view part) {
    const auto is_plain = [](char c) {
      return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    };
    return !part.empty() && is_plain(part.front()) && is_plain(part.back()) &&
           std::ranges::all_of(
               part, [&](char c) { return is_plain(c) || c == '-' || c == '.' || c == '_'; });
  };
  return is_part(text.substr(0, slash)) && is_part(text.substr(slash + 1));
}

int run_device_plugin(const DevicePluginOptions& options, const Log& log) {
  EventLoop loop;
  Status ready = loop.open();
  if (ready.ok()) {
    ready = loop.watch_signals({SIGTERM, SIGINT}, [&](int) { loop.stop(); });
  }
  if (!ready.ok()) {
    log.write(ready.message());
    return 1;
  }
  Plugin plugin(options, log);
  Registrar registrar(options, plugin);
  const std::function<void()> look = [&] {
    plugin.look_at_daemon();
    // Before the first daemon there is nothing to tell the kubelet.
    if (plugin.has_devices()) {
      registrar.look();
      plugin.look_for_garbage();
    }
    (void)loop.call_after(kLookMs, look);
  };
  look();
  const Status ended = loop.run();
  if (!ended.ok()) log.write(ended.message());
  log.write("ends; namespaces of running containers stay");
  return ended.ok() ? 0 : 1;
}

}  // namespace openmps::kubernetes
