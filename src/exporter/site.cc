// SPDX-License-Identifier: Apache-2.0
// See site.h.
#include "exporter/site.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/text.h"
#include "exporter/actions.h"
#include "exporter/page.h"
#include "observe/advise.h"

namespace openmps::exporter {
namespace {

using httplib::Request;
using httplib::Response;
using nlohmann::json;

constexpr const char* kJson = "application/json";
constexpr const char* kPlain = "text/plain; charset=utf-8";
// How often a page's thread looks whether the browser has gone.
constexpr uint64_t kLookMs = 5'000;

RequestHeaders headers_of(const Request& request) {
  return {request.get_header_value("Host"), request.get_header_value("Origin"),
          request.get_header_value("Authorization")};
}

void refuse(Response& response, int status, const std::string& why) {
  response.status = status;
  response.set_content(json({{"ok", false}, {"text", why}}).dump(), kJson);
}

void serve_metrics(Site& site, Response& response) {
  const uint64_t began = now_ns();
  const std::shared_ptr<const Sample> sample = site.daemon.sample();
  if (!sample->why_not.empty()) ++site.scrape_errors;
  std::vector<prometheus::MetricFamily> families = metrics_of(*sample, site.metrics);
  prometheus::ClientMetric errors;
  errors.counter.value = static_cast<double>(site.scrape_errors.load());
  families.push_back({"openmps_exporter_scrape_errors_total",
                      "Scrapes without a daemon.",
                      prometheus::MetricType::Counter,
                      {errors}});
  prometheus::ClientMetric duration;
  duration.gauge.value = static_cast<double>(now_ns() - began) * 1e-9;
  families.push_back({"openmps_exporter_scrape_duration_seconds",
                      "Time to ask the daemon and make this answer.",
                      prometheus::MetricType::Gauge,
                      {duration}});
  response.set_content(text_of(families), "text/plain; version=0.0.4; charset=utf-8");
}

void serve_page(Response& response) {
  response.set_header("Content-Security-Policy", kPagePolicy);
  response.set_content(kPage, kPageBytes, "text/html; charset=utf-8");
}

// Server-sent events: the first one with the history, then one for each sample.
void serve_live(Site& site, Response& response) {
  if (++site.open_pages > kMostPages) {
    --site.open_pages;
    return refuse(response, 503, format_text("%d pages are open already", kMostPages));
  }
  struct Place {
    uint64_t last = 0;
    bool is_first = true;
  };
  const auto place = std::make_shared<Place>();
  response.set_header("Cache-Control", "no-store");
  response.set_chunked_content_provider(
      "text/event-stream",
      [&site, place](size_t, httplib::DataSink& sink) {
        std::string text = ": still here\n\n";
        if (std::exchange(place->is_first, false)) {
          text = "event: first\ndata: " + site.live.first(&place->last) + "\n\n";
        } else if (std::string next = site.live.wait(&place->last, kLookMs); !next.empty()) {
          text = "data: " + std::move(next) + "\n\n";
        }
        if (site.live.has_stopped()) {
          sink.done();
          return true;
        }
        return sink.write(text.data(), text.size());
      },
      [&site](bool) { --site.open_pages; });
}

// ?server=PID&client=ID
void serve_client(Site& site, const Request& request, Response& response) {
  const auto server = parse_unsigned(request.get_param_value("server"), UINT32_MAX);
  const auto id = parse_unsigned(request.get_param_value("client"), UINT32_MAX);
  if (!server || !id) return refuse(response, 400, "server and client are numbers");
  const std::shared_ptr<const Sample> sample = site.daemon.sample();
  const observe::Snapshot& snapshot = sample->snapshot;
  const auto client = std::ranges::find_if(snapshot.clients, [&](const observe::Client& one) {
    return one.server == *server && one.id == *id;
  });
  if (client == snapshot.clients.end()) return refuse(response, 404, "there is no such client");
  const Result<wire::ControlReply> inspected = site.daemon.command(
      format_text("inspect id:%u@%u", static_cast<unsigned>(*id), static_cast<unsigned>(*server)));
  observe::Figures figures = observe::figures_of(nullptr, *client, snapshot.devices);
  observe::add_others(snapshot, snapshot, &figures);
  const json answer = {{"ok", true},
                       {"inspect", inspected.ok() ? inspected->text : inspected.status().message()},
                       {"advise", observe::format_advice(figures, observe::advise(figures))}};
  response.set_content(answer.dump(-1, ' ', false, json::error_handler_t::replace), kJson);
}

void serve_action(Site& site, Way way, const Request& request, Response& response) {
  if (const Status may = site.access.may_change(way, headers_of(request)); !may.ok()) {
    return refuse(response, 403, may.message());
  }
  if (request.get_header_value("Content-Type") != kJson) {
    return refuse(response, 415, "a request has the type application/json");
  }
  const json wanted = json::parse(request.body, nullptr, /*allow_exceptions=*/false);
  const Result<std::string> line = command_of(wanted);
  if (!line.ok()) return refuse(response, 400, line.status().message());
  const Result<wire::ControlReply> reply = site.daemon.command(*line);
  if (!reply.ok()) return refuse(response, 502, reply.status().message());
  const bool ok = has_succeeded(*line, reply->exit_status, reply->text);
  fprintf(stderr, "openmps-exporter: %s: %s\n", line->c_str(),
          ok ? "done" : printable(reply->text).c_str());
  response.set_content(json({{"ok", ok}, {"text", printable(reply->text)}}).dump(), kJson);
}

}  // namespace

void add_routes(httplib::Server& server, Site& site, Way way) {
  server.new_task_queue = [] { return new httplib::ThreadPool(kMostPages + kOtherThreads); };
  server.set_payload_max_length(kMostRequestBytes);
  server.set_default_headers({{"X-Content-Type-Options", "nosniff"},
                              {"Referrer-Policy", "no-referrer"},
                              {"X-Frame-Options", "DENY"}});
  server.set_pre_routing_handler([&site](const Request& request, Response& response) {
    const Status may = site.access.may_read(headers_of(request));
    if (may.ok()) return httplib::Server::HandlerResponse::Unhandled;
    refuse(response, 403, may.message());
    return httplib::Server::HandlerResponse::Handled;
  });
  server.Get("/metrics",
             [&site](const Request&, Response& response) { serve_metrics(site, response); });
  server.Get("/healthz",
             [](const Request&, Response& response) { response.set_content("ok\n", kPlain); });
  if (!site.has_page) return;
  server.Get("/", [](const Request&, Response& response) { serve_page(response); });
  server.Get("/live", [&site](const Request&, Response& response) { serve_live(site, response); });
  server.Get("/client", [&site](const Request& request, Response& response) {
    serve_client(site, request, response);
  });
  server.Post("/act", [&site, way](const Request& request, Response& response) {
    serve_action(site, way, request, response);
  });
}

}  // namespace openmps::exporter
