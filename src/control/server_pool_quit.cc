// SPDX-License-Identifier: Apache-2.0
// quit: how the pool's servers are brought to an end. A server that was asked leaves by itself with
// its last client, so the repeated asking only shows in the log what is waited for.
#include <algorithm>

#include "base/text.h"
#include "control/server_pool.h"

namespace openmps::control {
namespace {

constexpr uint64_t kFirstRetryMs = 200;  // doubled each time, as NVIDIA's daemon does
constexpr uint64_t kLastRetryMs = 12'800;

}  // namespace

void ServerPool::shut_down(std::optional<uint32_t> timeout_s, std::function<void()> done) {
  if (timeout_s) {
    log_.write(format_text("quit command issued with timeout of %u", *timeout_s));
  } else {
    log_.write("quit command issued");
  }
  const bool first = !quitting_;
  quitting_ = true;
  quit_done_.push_back(std::move(done));
  if (timeout_s) {
    loop_.cancel(deadline_timer_);
    deadline_timer_ = loop_.call_after(uint64_t{*timeout_s} * 1000, [this] { force_all(); });
  }
  if (first) {
    retry_ms_ = kFirstRetryMs;
    try_shutdown();
  }
  finish_if_empty();
}

void ServerPool::try_shutdown() {
  for (const auto& [uid, entry] : entries_) {
    log_.write(format_text("Try shutting down server %d, backoff is %s",
                           static_cast<int>(entry.process->pid()),
                           backoff_ ? "enabled" : "disabled"));
    entry.process->ask_to_shut_down();
  }
}

void ServerPool::on_shutdown_refused(pid_t pid, uint32_t active_clients) {
  if (!quitting_) return;
  log_.write(format_text("Server %d has %u active worker threads. Server will not shutdown.",
                         static_cast<int>(pid), active_clients));
  if (forced_) {
    log_.write(format_text("Force shutting down server %d", static_cast<int>(pid)));
    if (ServerProcess* server = find(std::to_string(pid))) server->force_shutdown();
    return;
  }
  log_.write(format_text("Control will try shutting down server %d again in at most %llums",
                         static_cast<int>(pid), static_cast<unsigned long long>(retry_ms_)));
  if (retry_timer_ != 0) return;
  retry_timer_ = loop_.call_after(retry_ms_, [this] {
    retry_timer_ = 0;
    if (forced_) return;
    backoff_ = true;
    retry_ms_ = std::min(retry_ms_ * 2, kLastRetryMs);
    try_shutdown();
  });
}

void ServerPool::force_all() {
  forced_ = true;
  backoff_ = false;
  deadline_timer_ = 0;
  loop_.cancel(retry_timer_);
  // Asked once more; the refusal of one that still has clients is what forces it.
  try_shutdown();
  // One that does not even answer is forced all the same.
  deadline_timer_ = loop_.call_after(kAnswerMs, [this] {
    for (const auto& [uid, entry] : entries_) entry.process->force_shutdown();
  });
}

void ServerPool::finish_if_empty() {
  if (!quitting_ || !entries_.empty()) return;
  loop_.cancel(retry_timer_);
  loop_.cancel(deadline_timer_);
  auto done = std::move(quit_done_);
  quit_done_.clear();
  for (const auto& call : done) call();
}

}  // namespace openmps::control
