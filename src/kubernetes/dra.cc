// SPDX-License-Identifier: Apache-2.0
// The driver for dynamic resource allocation: the calls of the kubelet, on gRPC's threads, and the
// main thread, which looks twice a second whether the daemon and the driver's sockets are still
// those that it knows, and tells the API server what there is.
#include "kubernetes/dra.h"

#include <dra.grpc.pb.h>
#include <grpcpp/grpcpp.h>
#include <pluginregistration.grpc.pb.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/clock.h"
#include "base/event_loop.h"
#include "base/mutex.h"
#include "base/text.h"
#include "kubernetes/daemon.h"
#include "kubernetes/rpc_server.h"
#include "observe/cdi.h"

namespace openmps::kubernetes {
namespace {

namespace dra = k8s::io::kubelet::pkg::apis::dra::v1;
using Json = nlohmann::ordered_json;

constexpr uint64_t kLookDraMs = 500;
constexpr const char* kApi = "/apis/resource.k8s.io/v1";
// The slice is compared with what the API server has once in so long, sooner after an error.
constexpr uint64_t kPublishNs = 60'000 * kNsPerMs;
constexpr uint64_t kPublishAgainNs = 5'000 * kNsPerMs;
constexpr const char* kCdiVendor = "openmps.org";
constexpr const char* kCdiClass = "claim";
// A file of a grant has some hundred bytes for each GPU.
constexpr uintmax_t kMostFileBytes = 64 << 10;
constexpr long kOk = 200;
constexpr long kCreated = 201;
constexpr long kNotFound = 404;

// Whether `there` has all that `wanted` has: the API server adds fields.
bool has_all(const Json& there, const Json& wanted) {
  if (wanted.is_object()) {
    return there.is_object() && std::ranges::all_of(wanted.items(), [&](const auto& entry) {
             const auto found = there.find(entry.key());
             return found != there.end() && has_all(*found, entry.value());
           });
  }
  if (wanted.is_array()) {
    return there.is_array() && std::ranges::equal(there, wanted, [](const Json& a, const Json& b) {
             return has_all(a, b);
           });
  }
  return there == wanted;
}

// What the API server knows of this node: its ResourceSlice. Main thread.
class Publisher {
 public:
  Publisher(const DraOptions& options, const ApiServer& api, const Log& log)
      : options_(options), api_(api), log_(log) {}

  // `node` without devices: none can be had now.
  void look(const std::vector<observe::Device>& node) {
    const std::string devices = slice_spec(options_.name, node, options_.reserved_bytes, 0);
    if (devices == tried_ && now_ns() < next_ns_) return;
    const Status done = publish(node);
    tried_ = devices;
    next_ns_ = now_ns() + (done.ok() ? kPublishNs : kPublishAgainNs);
    if (!done.ok() && done.message() != said_) {
      log_.write("the ResourceSlice is not published: " + done.message());
    }
    said_ = done.message();
  }

 private:
  [[nodiscard]] Status publish(const std::vector<observe::Device>& node) const {
    const std::string name = slice_name(options_.name);
    const std::string path = std::string(kApi) + "/resourceslices/" + name;
    const Result<ApiServer::Answer> there = api_.get(path);
    if (!there.ok()) return there.status();
    if (there->status != kOk && there->status != kNotFound) return refused(*there);
    const Json old = Json::parse(there->body, nullptr, false);
    const bool is_there = there->status == kOk && old.is_object() && old.contains("metadata");
    const uint64_t generation = is_there ? generation_of(old) : 0;
    const auto spec_of = [&](uint64_t number) {
      return Json::parse(slice_spec(options_.name, node, options_.reserved_bytes, number));
    };
    if (is_there && has_all(old.value("spec", Json()), spec_of(generation))) return Status();
    Json slice{{"apiVersion", "resource.k8s.io/v1"}, {"kind", "ResourceSlice"}};
    slice["metadata"] = is_there ? old["metadata"] : new_metadata(name);
    slice["spec"] = spec_of(generation + 1);
    const Result<ApiServer::Answer> put =
        is_there ? api_.put(path, slice.dump())
                 : api_.post(std::string(kApi) + "/resourceslices", slice.dump());
    if (!put.ok()) return put.status();
    if (put->status != kOk && put->status != kCreated) return refused(*put);
    log_.write(format_text("ResourceSlice %s: %zu GPUs", name.c_str(), node.size()));
    return Status();
  }

  // The slice goes with its node, if that may be read.
  [[nodiscard]] Json new_metadata(const std::string& name) const {
    Json metadata{{"name", name}};
    const Result<ApiServer::Answer> node = api_.get("/api/v1/nodes/" + options_.name.node);
    if (!node.ok() || node->status != kOk) return metadata;
    const Json object = Json::parse(node->body, nullptr, false);
    const Json about = object.is_object() ? object.value("metadata", Json()) : Json();
    if (!about.is_object() || !about.contains("uid")) return metadata;
    metadata["ownerReferences"] = {{{"apiVersion", "v1"},
                                    {"kind", "Node"},
                                    {"name", options_.name.node},
                                    {"uid", about["uid"]},
                                    {"controller", true}}};
    return metadata;
  }

  static uint64_t generation_of(const Json& slice) {
    const Json spec = slice.value("spec", Json());
    const Json pool = spec.is_object() ? spec.value("pool", Json()) : Json();
    const auto found = pool.is_object() ? pool.find("generation") : pool.end();
    return found != pool.end() && found->is_number_unsigned() ? found->get<uint64_t>() : 0;
  }
  static Status refused(const ApiServer::Answer& answer) {
    return Status(CUDA_ERROR_NOT_PERMITTED, words_of(answer));
  }

  const DraOptions& options_;
  const ApiServer& api_;
  const Log& log_;
  std::string tried_;  // the devices of the last attempt
  std::string said_;
  uint64_t next_ns_ = 0;
};

class Driver {
 public:
  Driver(const DraOptions& options, const ApiServer& api, const Log& log)
      : options_(options), api_(api), log_(log), daemon_(options.server) {}

  // The devices that can be had now.
  std::vector<observe::Device> look_at_daemon();
  // Errors: those of Daemon, read_claim() and ApiServer; CUDA_ERROR_OPERATING_SYSTEM.
  Result<std::vector<ClaimDevice>> prepare(const dra::Claim& claim);
  Status unprepare(const std::string& uid);
  [[nodiscard]] std::string cdi_device(const std::string& uid) const {
    return std::string(kCdiVendor) + "/" + kCdiClass + "=" + uid;
  }
  [[nodiscard]] const Log& log() const { return log_; }

 private:
  [[nodiscard]] std::string claims_directory() const {
    return options_.directory + "/" + options_.name.driver + "/claims";
  }
  [[nodiscard]] std::string file_of(const std::string& uid) const {
    return claims_directory() + "/" + uid + ".json";
  }
  [[nodiscard]] std::string cdi_file_of(const std::string& uid) const {
    return options_.cdi + "/" + kCdiVendor + "-" + kCdiClass + "-" + uid + ".json";
  }
  Result<std::string> ask_for_claim(const dra::Claim& claim) const;
  // The namespace, and the file by which container engines find it.
  Status make(const Grant& grant, const std::string& uid, const std::vector<observe::Device>& node);
  // Makes what the files say and the daemon has not, and ends what it has and no file says.
  Status reconcile(const std::vector<observe::Device>& node);

  const DraOptions& options_;
  const ApiServer& api_;
  const Log& log_;
  const Daemon daemon_;
  DaemonWatch watch_;  // main thread
  std::string sick_;   // main thread: why nothing can be had

  // Files of claims and their namespaces.
  Mutex making_{LockRank::kKubernetesNamespaces};

  Mutex mutex_{LockRank::kKubernetesDevices};
  std::vector<observe::Device> node_ GUARDED_BY(mutex_);
};

std::vector<observe::Device> Driver::look_at_daemon() {
  const DaemonWatch::Sight sight = watch_.look();
  std::string reason = sight == DaemonWatch::Sight::kAway ? watch_.reason() : sick_;
  if (sight == DaemonWatch::Sight::kToBeAsked) {
    const Result<std::vector<observe::Device>> node = daemon_.devices();
    if (node.ok()) {
      const MutexLock lock(mutex_);
      node_ = *node;
    }
    const Status asked = node.ok() ? reconcile(*node) : node.status();
    watch_.answered(asked.ok());
    reason = asked.message();
  }
  if (reason != sick_) log_.write(reason.empty() ? "healthy" : "unhealthy: " + printable(reason));
  sick_ = reason;
  if (!sick_.empty()) return {};
  const MutexLock lock(mutex_);
  return node_;
}

Status Driver::reconcile(const std::vector<observe::Device>& node) {
  const MutexLock lock(making_);
  std::set<std::string> wanted;
  std::error_code error;
  std::filesystem::create_directories(claims_directory(), error);
  for (const auto& entry : std::filesystem::directory_iterator(claims_directory(), error)) {
    const std::string uid = entry.path().stem();
    if (entry.path().extension() != ".json" || !entry.is_regular_file(error) ||
        entry.file_size(error) > kMostFileBytes) {
      continue;
    }
    std::ifstream file(entry.path());
    const Result<Grant> grant = read_grant(std::string(std::istreambuf_iterator<char>(file), {}));
    if (!grant.ok() || claim_of_namespace(grant->name) != uid) {
      log_.write(entry.path().string() + " is no file of a claim");
      continue;
    }
    wanted.insert(grant->name);
    OPENMPS_RETURN_IF_ERROR(make(*grant, uid, node));
  }
  if (error) {
    return Status(CUDA_ERROR_OPERATING_SYSTEM, claims_directory() + ": " + error.message());
  }
  const Result<std::vector<observe::Share>> shares = daemon_.namespaces();
  if (!shares.ok()) return shares.status();
  const Result<std::vector<Daemon::Partition>> partitions = daemon_.partitions();
  if (!partitions.ok()) return partitions.status();
  std::set<std::string> there;
  for (const observe::Share& share : *shares) there.insert(share.name);
  for (const Daemon::Partition& partition : *partitions) there.insert(partition.name);
  for (const std::string& name : there) {
    if (claim_of_namespace(name).empty() || wanted.contains(name)) continue;
    OPENMPS_RETURN_IF_ERROR(daemon_.end(name));
    log_.write("namespace " + name + " is removed: its claim is not prepared any more");
  }
  return Status();
}

Result<std::string> Driver::ask_for_claim(const dra::Claim& claim) const {
  if (!names_an_object(claim.namespace_()) || !names_an_object(claim.name())) {
    return Status(CUDA_ERROR_INVALID_VALUE, "that can't be the name of a claim");
  }
  Result<ApiServer::Answer> answer = api_.get(
      std::string(kApi) + "/namespaces/" + claim.namespace_() + "/resourceclaims/" + claim.name());
  if (!answer.ok()) return answer.status();
  if (answer->status != kOk) return Status(CUDA_ERROR_NOT_PERMITTED, words_of(*answer));
  return std::move(answer->body);
}

Status Driver::make(const Grant& grant, const std::string& uid,
                    const std::vector<observe::Device>& node) {
  const Result<std::string> directory = daemon_.make(grant, node);
  if (!directory.ok()) return directory.status();
  observe::CdiSpec spec;
  spec.vendor = kCdiVendor;
  spec.device_class = kCdiClass;
  spec.libraries = observe::libraries_at(options_.library);
  spec.devices = {{uid, *directory, {{"CUDA_VISIBLE_DEVICES", visible_devices(grant, node)}}}};
  const Result<std::string> text = cdi_text(spec);
  return text.ok() ? observe::replace_file(cdi_file_of(uid), *text) : text.status();
}

Result<std::vector<ClaimDevice>> Driver::prepare(const dra::Claim& claim) {
  const Result<std::string> name = namespace_of_claim(claim.uid());
  if (!name.ok()) return name.status();
  const Result<std::string> object = ask_for_claim(claim);
  if (!object.ok()) return object.status();
  std::vector<observe::Device> node;
  {
    const MutexLock lock(mutex_);
    node = node_;
  }
  if (node.empty()) {
    return Status(CUDA_ERROR_MPS_CONNECTION_FAILED,
                  "there has been no daemon yet to say which GPUs there are");
  }
  Result<Claim> read =
      read_claim(*object, claim.uid(), options_.name, node, options_.reserved_bytes);
  if (!read.ok()) return read.status();
  const MutexLock lock(making_);
  std::error_code error;
  const bool is_prepared = std::filesystem::exists(file_of(claim.uid()), error);
  // First the file: a driver that ends here finds it again.
  OPENMPS_RETURN_IF_ERROR(observe::replace_file(file_of(claim.uid()), grant_text(read->grant)));
  if (const Status made = make(read->grant, claim.uid(), node); !made.ok()) {
    if (!is_prepared) std::filesystem::remove(file_of(claim.uid()), error);
    return made;
  }
  log_.write("namespace " + *name + ": claim " + claim.namespace_() + "/" + claim.name() +
             (read->grant.is_exclusive ? ", exclusive SMs" : ""));
  return std::move(read->devices);
}

Status Driver::unprepare(const std::string& uid) {
  const Result<std::string> name = namespace_of_claim(uid);
  if (!name.ok()) return name.status();
  const MutexLock lock(making_);
  for (const std::string& path : {cdi_file_of(uid), file_of(uid)}) {
    std::error_code error;
    std::filesystem::remove(path, error);
    if (error) return Status(CUDA_ERROR_OPERATING_SYSTEM, path + ": " + error.message());
  }
  // Without a daemon the pod can end all the same: reconcile() does the rest.
  const Status ended = daemon_.end(*name);
  log_.write("namespace " + *name +
             (ended.ok() ? " is removed" : " is to be removed: " + ended.message()));
  return Status();
}

class DraService final : public dra::DRAPlugin::Service {
 public:
  explicit DraService(Driver& driver) : driver_(driver) {}

  grpc::Status NodePrepareResources(grpc::ServerContext*,
                                    const dra::NodePrepareResourcesRequest* request,
                                    dra::NodePrepareResourcesResponse* answer) override {
    for (const dra::Claim& claim : request->claims()) {
      dra::NodePrepareResourceResponse& one = (*answer->mutable_claims())[claim.uid()];
      const Result<std::vector<ClaimDevice>> devices = driver_.prepare(claim);
      if (!devices.ok()) {
        one.set_error(devices.status().message());
        driver_.log().write("claim " + printable(claim.namespace_() + "/" + claim.name()) +
                            " is refused: " + devices.status().message());
        continue;
      }
      for (const ClaimDevice& found : *devices) {
        dra::Device* const device = one.add_devices();
        device->add_request_names(found.request);
        device->set_pool_name(found.pool);
        device->set_device_name(found.device);
        device->add_cdi_device_ids(driver_.cdi_device(claim.uid()));
        if (!found.share.empty()) device->set_share_id(found.share);
      }
    }
    return grpc::Status::OK;
  }

  grpc::Status NodeUnprepareResources(grpc::ServerContext*,
                                      const dra::NodeUnprepareResourcesRequest* request,
                                      dra::NodeUnprepareResourcesResponse* answer) override {
    for (const dra::Claim& claim : request->claims()) {
      dra::NodeUnprepareResourceResponse& one = (*answer->mutable_claims())[claim.uid()];
      if (const Status done = driver_.unprepare(claim.uid()); !done.ok()) {
        one.set_error(done.message());
      }
    }
    return grpc::Status::OK;
  }

 private:
  Driver& driver_;
};

class RegistrationService final : public pluginregistration::Registration::Service {
 public:
  RegistrationService(std::string name, std::string endpoint, const Log& log)
      : name_(std::move(name)), endpoint_(std::move(endpoint)), log_(log) {}

  grpc::Status GetInfo(grpc::ServerContext*, const pluginregistration::InfoRequest*,
                       pluginregistration::PluginInfo* info) override {
    info->set_type("DRAPlugin");
    info->set_name(name_);
    info->set_endpoint(endpoint_);
    info->add_supported_versions("v1.DRAPlugin");
    return grpc::Status::OK;
  }

  grpc::Status NotifyRegistrationStatus(grpc::ServerContext*,
                                        const pluginregistration::RegistrationStatus* status,
                                        pluginregistration::RegistrationStatusResponse*) override {
    log_.write(status->plugin_registered() ? "registered " + name_
                                           : "not registered: " + printable(status->error()));
    return grpc::Status::OK;
  }

 private:
  const std::string name_;
  const std::string endpoint_;
  const Log& log_;
};

constexpr std::filesystem::perms kForAll{0755};

// Unless it is there.
Status make_directory(const std::string& path, std::filesystem::perms mode) {
  std::error_code error;
  const bool is_new = std::filesystem::create_directories(path, error);
  if (is_new && !error) std::filesystem::permissions(path, mode, error);
  return error ? Status(CUDA_ERROR_OPERATING_SYSTEM, path + ": " + error.message()) : Status();
}

// A service at a socket, which is made again when it has gone. Main thread.
class Socket {
 public:
  Socket(std::string path, grpc::Service& service, const Log& log)
      : path_(std::move(path)), service_(service), log_(log) {}

  // Whether it is there.
  bool look() {
    if (server_ != nullptr && server_->is_reachable()) return true;
    server_.reset();
    grpc::Service* const services[] = {&service_};
    Result<std::unique_ptr<RpcServer>> server = RpcServer::start(path_, services);
    const std::string& why = server.status().message();
    if (!server.ok() && why != said_) log_.write("no socket: " + why);
    said_ = why;
    if (!server.ok()) return false;
    server_ = std::move(server).value();
    return true;
  }

 private:
  const std::string path_;
  grpc::Service& service_;
  const Log& log_;
  std::unique_ptr<RpcServer> server_;
  std::string said_;
};

}  // namespace

int run_dra(const DraOptions& options, const Log& log) {
  EventLoop loop;
  Status ready = loop.open();
  if (ready.ok()) {
    ready = loop.watch_signals({SIGTERM, SIGINT}, [&](int) { loop.stop(); });
  }
  const std::string own = options.directory + "/" + options.name.driver;
  if (ready.ok()) ready = make_directory(own, std::filesystem::perms::owner_all);
  // Container engines of other users read it, too.
  if (ready.ok()) ready = make_directory(options.cdi, kForAll);
  if (!ready.ok()) {
    log.write(ready.message());
    return 1;
  }
  const ApiServer api(options.api);
  Driver driver(options, api, log);
  Publisher publisher(options, api, log);
  DraService service(driver);
  RegistrationService registration(options.name.driver, own + "/dra.sock", log);
  Socket socket(own + "/dra.sock", service, log);
  Socket registry(options.registry + "/" + options.name.driver + "-reg.sock", registration, log);
  const std::function<void()> look = [&] {
    const std::vector<observe::Device> node = driver.look_at_daemon();
    // The kubelet calls back at once.
    if (socket.look()) (void)registry.look();
    publisher.look(node);
    (void)loop.call_after(kLookDraMs, look);
  };
  look();
  const Status ended = loop.run();
  if (!ended.ok()) log.write(ended.message());
  log.write("ends; namespaces of running containers stay");
  return ended.ok() ? 0 : 1;
}

}  // namespace openmps::kubernetes
