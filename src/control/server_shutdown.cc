// SPDX-License-Identifier: Apache-2.0
// See server_shutdown.h.
#include "control/server_shutdown.h"

#include <algorithm>

#include "base/text.h"

namespace openmps::control {
namespace {

constexpr uint64_t kFirstRetryMs = 200;  // doubled each time, as NVIDIA's daemon does
constexpr uint64_t kLastRetryMs = 12'800;

}  // namespace

void ServerShutdown::begin(std::optional<uint32_t> timeout_s, std::function<void()> done) {
  if (timeout_s) {
    log_.write(format_text("quit command issued with timeout of %u", *timeout_s));
  } else {
    log_.write("quit command issued");
  }
  const bool first = !begun_;
  begun_ = true;
  done_.push_back(std::move(done));
  if (timeout_s) {
    loop_.cancel(deadline_timer_);
    deadline_timer_ = loop_.call_after(uint64_t{*timeout_s} * 1000, [this] { force_all(); });
  }
  if (first) {
    retry_ms_ = kFirstRetryMs;
    try_all();
  }
  finish_if_none_left();
}

void ServerShutdown::try_all() {
  for (ServerProcess* server : servers_()) {
    log_.write(format_text("Try shutting down server %d, backoff is %s",
                           static_cast<int>(server->pid()), backoff_ ? "enabled" : "disabled"));
    server->ask_to_shut_down();
  }
}

void ServerShutdown::on_refused(ServerProcess& server, uint32_t active_clients) {
  if (!begun_) return;
  const int pid = static_cast<int>(server.pid());
  log_.write(format_text("Server %d has %u active worker threads. Server will not shutdown.", pid,
                         active_clients));
  if (forced_) {
    log_.write(format_text("Force shutting down server %d", pid));
    server.force_shutdown();
    return;
  }
  log_.write(format_text("Control will try shutting down server %d again in at most %llums", pid,
                         static_cast<unsigned long long>(retry_ms_)));
  if (retry_timer_ != 0) return;
  retry_timer_ = loop_.call_after(retry_ms_, [this] {
    retry_timer_ = 0;
    if (forced_) return;
    backoff_ = true;
    retry_ms_ = std::min(retry_ms_ * 2, kLastRetryMs);
    try_all();
  });
}

void ServerShutdown::force_all() {
  forced_ = true;
  backoff_ = false;
  deadline_timer_ = 0;
  loop_.cancel(retry_timer_);
  // Ask once more. A server that refuses, because it has clients, is forced then.
  try_all();
  // A server that does not answer is forced, too.
  deadline_timer_ = loop_.call_after(kAnswerMs, [this] {
    for (ServerProcess* server : servers_()) server->force_shutdown();
  });
}

void ServerShutdown::finish_if_none_left() {
  if (!begun_ || !servers_().empty()) return;
  loop_.cancel(retry_timer_);
  loop_.cancel(deadline_timer_);
  auto done = std::move(done_);
  done_.clear();
  for (const auto& call : done) call();
}

}  // namespace openmps::control
