// SPDX-License-Identifier: Apache-2.0
// openmps-exporter: metrics for Prometheus, and a page, over HTTP. A client of the control daemon
// like any other: it needs no rights to show what is there.
#include <httplib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/text.h"
#include "base/unique_fd.h"
#include "exporter/site.h"
#include "observe/figures.h"

namespace openmps::exporter {
namespace {

constexpr const char* kUsualListen = "127.0.0.1:9836";
// While no page is open the last minutes are kept in coarser steps.
constexpr double kIdlePauseS = 5;
// With a thousand programs a sample takes the daemon and the exporter a seventh of a second. Pages
// are renewed so often that this is no more than a twentieth of the time.
constexpr double kPausesForSample = 20;

struct Options {
  std::string listen = kUsualListen;
  std::string unix_socket;
  std::vector<std::string> hosts;
  std::string token_file;
  double interval_s = observe::kUsualPauseS;
  bool detail = false;
  bool no_page = false;
};

int fail(const std::string& what) {
  fprintf(stderr, "openmps-exporter: %s\n", what.c_str());
  return 1;
}

struct Endpoint {
  std::string host;
  int port = 0;  // 0: any
};

// "127.0.0.1:9836", "[::1]:9836".
std::optional<Endpoint> parse_endpoint(const std::string& text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0) return std::nullopt;
  const auto port = parse_unsigned(std::string_view(text).substr(colon + 1), 65'535);
  if (!port) return std::nullopt;
  return Endpoint{host_name(text.substr(0, colon)), static_cast<int>(*port)};
}

// Removes a socket that nobody listens on any more. Errors: something else is there.
Status make_room(const std::string& path) {
  struct stat info {};
  if (lstat(path.c_str(), &info) != 0) return Status();
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    return Status(CUDA_ERROR_INVALID_VALUE, path + ": the path of a socket has 107 bytes at most");
  }
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  const UniqueFd probe(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const bool is_dead =
      S_ISSOCK(info.st_mode) && info.st_uid == geteuid() &&
      connect(probe.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0 &&
      errno == ECONNREFUSED;
  if (is_dead && unlink(path.c_str()) == 0) return Status();
  return Status(CUDA_ERROR_ALREADY_ACQUIRED, path + " is in use");
}

// Takes samples for the page until it is destroyed.
class Sampler {
 public:
  Sampler(Site& site, double interval_s) : site_(site), interval_s_(interval_s) {
    thread_ = std::thread([this] { run(); });
  }
  ~Sampler() {
    {
      const MutexLock lock(mutex_);
      ends_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  Sampler(const Sampler&) = delete;
  Sampler& operator=(const Sampler&) = delete;

 private:
  void run() {
    double waited_s = kIdlePauseS;
    double pause_s = interval_s_;
    const MutexLock lock(mutex_);
    while (!ends_) {
      if (site_.open_pages > 0 || waited_s >= kIdlePauseS) {
        const MutexUnlock unlocked(mutex_);
        const uint64_t began = now_ns();
        site_.live.add(site_.daemon.sample());
        pause_s = std::max(interval_s_, kPausesForSample * observe::seconds(now_ns() - began));
        waited_s = 0;
      }
      const uint64_t until_ns = now_ns() + static_cast<uint64_t>(pause_s * 1e9);
      while (!ends_ && changed_.wait_until(mutex_, until_ns)) {
      }
      waited_s += pause_s;
    }
  }

  Site& site_;
  const double interval_s_;
  Mutex mutex_{LockRank::kExporterSampler};
  CondVar changed_;
  bool ends_ GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

// Serves on one socket until it is destroyed.
class Listener {
 public:
  Listener(Site& site, Way way) { add_routes(server_, site, way); }
  ~Listener() {
    server_.stop();
    if (thread_.joinable()) thread_.join();
    if (!path_.empty()) unlink(path_.c_str());
  }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  // The port. Errors: CUDA_ERROR_OPERATING_SYSTEM.
  Result<int> listen_on(const Endpoint& endpoint) {
    int port = endpoint.port;
    if (port == 0) port = server_.bind_to_any_port(endpoint.host);
    const bool bound = endpoint.port == 0 ? port > 0 : server_.bind_to_port(endpoint.host, port);
    if (!bound) {
      return Status(CUDA_ERROR_OPERATING_SYSTEM,
                    "can't listen on " + endpoint.host + ":" + std::to_string(endpoint.port) +
                        ": the port is in use, or the address is not this machine's");
    }
    serve();
    return port;
  }
  Status listen_on(const std::string& path) {
    OPENMPS_RETURN_IF_ERROR(make_room(path));
    server_.set_address_family(AF_UNIX);
    const mode_t before = umask(0177);  // its owner alone may connect
    const bool bound = server_.bind_to_port(path, 1);
    umask(before);
    if (!bound) return Status(CUDA_ERROR_OPERATING_SYSTEM, "can't listen on " + path);
    path_ = path;
    serve();
    return Status();
  }

 private:
  void serve() {
    thread_ = std::thread([this] {
      server_.listen_after_bind();
      has_ended_ = true;
    });
    // stop() before that would be forgotten.
    while (!server_.is_running() && !has_ended_) std::this_thread::yield();
  }

  httplib::Server server_;
  std::atomic<bool> has_ended_ = false;
  std::thread thread_;
  std::string path_;
};

int run(const Options& options, const sigset_t& ends) {
  const std::optional<Endpoint> endpoint = parse_endpoint(options.listen);
  if (!options.listen.empty() && !endpoint) {
    return fail("--listen " + options.listen + ": expected ADDRESS:PORT, such as 127.0.0.1:9836");
  }
  if (options.listen.empty() && options.unix_socket.empty()) {
    return fail("there is neither --listen nor --unix");
  }
  std::string token;
  if (!options.token_file.empty()) {
    Result<std::string> read = read_token(options.token_file);
    if (!read.ok()) return fail(read.status().message());
    token = std::move(read).value();
  }
  std::vector<std::string> hosts = options.hosts;
  if (endpoint) hosts.push_back(endpoint->host);
  const Access access(std::move(hosts), std::move(token));
  Daemon daemon;
  Live live;
  Site site{.daemon = daemon,
            .live = live,
            .access = access,
            .metrics = {.has_details = options.detail},
            .has_page = !options.no_page};
  // In the other order at the end: pages that wait are told first.
  struct Stops {
    Live& live;
    ~Stops() { live.stop(); }
  };
  Listener tcp(site, Way::kTcp);
  Listener local(site, Way::kUnixSocket);
  std::optional<Sampler> sampler;
  const Stops stops{live};
  if (endpoint) {
    const Result<int> port = tcp.listen_on(*endpoint);
    if (!port.ok()) return fail(port.status().message());
    const bool is_ipv6 = endpoint->host.find(':') != std::string::npos;
    fprintf(stderr, "openmps-exporter: http://%s%s%s:%d/metrics\n", is_ipv6 ? "[" : "",
            endpoint->host.c_str(), is_ipv6 ? "]" : "", *port);
  }
  if (!options.unix_socket.empty()) {
    if (const Status bound = local.listen_on(options.unix_socket); !bound.ok()) {
      return fail(bound.message());
    }
    fprintf(stderr, "openmps-exporter: %s\n", options.unix_socket.c_str());
  }
  if (site.has_page) sampler.emplace(site, options.interval_s);
  int signal = 0;
  sigwait(&ends, &signal);
  return 0;
}

}  // namespace
}  // namespace openmps::exporter

int main(int argc, char** argv) {
  namespace exporter = openmps::exporter;
  exporter::Options options;
  CLI::App app("Metrics of OpenMPS for Prometheus, and a page that shows its devices and programs.",
               "openmps-exporter");
  app.set_version_flag("--version", std::string("openmps-exporter ") + OPENMPS_VERSION);
  app.add_option("--listen", options.listen,
                 "Address and port (" + options.listen + "); \"\": none. Port 0: any")
      ->option_text("ADDRESS:PORT");
  app.add_option(
         "--unix", options.unix_socket,
         "A Unix socket as well, for its owner alone, who may change limits and end programs")
      ->option_text("PATH");
  app.add_option("--host", options.hosts,
                 "A name or address by which the exporter is reached, beside those of the loopback "
                 "interface and of --listen; may be given several times")
      ->option_text("NAME");
  app.add_option("--token-file", options.token_file,
                 "Who knows the first line of this file (mode 0600) may change limits and end "
                 "programs over TCP, too")
      ->option_text("FILE");
  app.add_flag("--detail", options.detail,
               "All metrics of each program, about 100 (otherwise some 20, and the rest by group)");
  app.add_flag("--no-page", options.no_page, "Metrics only");
  app.add_option("--interval", options.interval_s,
                 "Seconds between two samples of an open page (1)")
      ->check(CLI::Range(openmps::observe::kShortestPauseS, openmps::observe::kLongestPauseS))
      ->option_text("SECONDS");
  app.footer(
      "The daemon is that of CUDA_MPS_PIPE_DIRECTORY, or of the usual directories. What the\n"
      "page may do is what the exporter's user may do (openmps-control --help).");
  CLI11_PARSE(app, argc, argv);
  signal(SIGPIPE, SIG_IGN);
  // Threads inherit the mask: these signals come to sigwait() alone.
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGTERM);
  sigaddset(&ends, SIGINT);
  pthread_sigmask(SIG_BLOCK, &ends, nullptr);
  return exporter::run(options, ends);
}
