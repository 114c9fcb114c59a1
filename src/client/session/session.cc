// SPDX-License-Identifier: Apache-2.0
// See session.h.
#include "client/session/session.h"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <new>
#include <sstream>
#include <string>
#include <string_view>

#include "api/client_hooks.h"
#include "base/environment.h"
#include "base/mutex.h"
#include "base/thread_end.h"
#include "client/context/thread_state.h"
#include "client/debug.h"
#include "client/session/reserve.h"
#include "wire/handshake.h"

namespace openmps::client {
namespace {

constinit std::atomic<Session*> g_session{nullptr};
constinit std::atomic<bool> g_forked{false};  // a child whose parent had a session
constinit Mutex g_init_lock{LockRank::kClientStart};
constinit bool g_handlers_installed GUARDED_BY(g_init_lock) = false;
// The reason why cuInit failed, for the log of failed calls.
constinit char g_refusal[wire::kReasonBytes] GUARDED_BY(g_init_lock) = {};

// The session whose locks this thread holds while it forks.
thread_local Session* t_forking = nullptr;

// No thread changes the pinned and registered memory while the process forks. The locks that are
// taken here are released by after_fork_in_parent() and after_fork_in_child(), which the analysis
// can't follow.
void before_fork() NO_THREAD_SAFETY_ANALYSIS {
  t_forking = g_session.load(std::memory_order_acquire);
  if (t_forking == nullptr) return;
  t_forking->registered.before_fork();
  t_forking->pinned.before_fork();
}

void after_fork_in_parent() NO_THREAD_SAFETY_ANALYSIS {
  if (t_forking == nullptr) return;
  t_forking->pinned.after_fork_in_parent();
  t_forking->registered.after_fork_in_parent();
}

// In the child of a process with a session, CUDA can't be used. The address window is not inherited
// (MADV_DONTFORK). The socket is closed and not shut down, so the parent's session lives on.
// Registered and pinned memory is the program's own: the child has a private copy of it.
void after_fork_in_child() NO_THREAD_SAFETY_ANALYSIS {
  Session* session = t_forking;
  if (session == nullptr) return;
  UniqueFd(session->socket.get()).reset();
  session->pinned.after_fork_in_child();
  session->registered.after_fork_in_child();
  g_forked.store(true, std::memory_order_relaxed);
  g_session.store(nullptr, std::memory_order_relaxed);
}

// Destroys the default streams of a thread that ends.
void thread_ended(const ThreadState& state) {
  Session* session = nullptr;
  if (enter(&session) != CUDA_SUCCESS) return;
  for (const auto& [context, handle] : state.streams) {
    Stream* stream = session->streams.find(handle);
    // The ending thread can't be told that the process is out of memory: the stream is left then.
    try {
      if (stream != nullptr) static_cast<void>(session->streams.destroy(stream));
    } catch (const std::bad_alloc&) {
      return;
    }
  }
}

// OPENMPS_PERF in the program's environment has that name.
bool is_switched_off(std::string_view name) {
  std::istringstream names(environment_or("OPENMPS_PERF", ""));
  for (std::string one; std::getline(names, one, ',');) {
    if (one == name) return true;
  }
  return false;
}

std::unique_ptr<wire::Trace> open_trace() {
  Result<std::unique_ptr<wire::Trace>> trace = wire::Trace::from_environment();
  if (trace.ok()) return std::move(*trace);
  debug_line("%s", trace.status().message().c_str());
  return nullptr;
}

// From here on every call returns CUDA_ERROR_DEINITIALIZED, as with NVIDIA's driver: to exit
// handlers that the program registered before cuInit, and to destructors of objects that are older
// than that.
void begin_exit() { g_attention.fetch_or(kExiting, std::memory_order_relaxed); }

// Why cuInit fails goes to the log of failed calls.
CUresult refused(const Status& status) REQUIRES(g_init_lock) {
  debug_line("cuInit failed with error %d: %s", static_cast<int>(status.code()),
             status.message().c_str());
  snprintf(g_refusal, sizeof(g_refusal), "%s", status.message().c_str());
  explain_failure(g_refusal);
  return status.code();
}

}  // namespace

Session::Session(Connection&& made, std::vector<uint32_t> visible)
    : socket(std::move(made.socket)),
      window(std::move(made.window)),
      window_base(made.window_base),
      devices(std::move(made.facts), std::move(visible), made.limits, made.group_limits,
              made.partition),
      keeps_answers(!is_switched_off("no_kept_answers")),
      thins_images(!is_switched_off("no_thin_images")),
      channel(wire::ChannelView(reinterpret_cast<void*>(window_base + wire::kDeviceBytes)),
              socket.remembered(), made.spin_ns, clock, open_trace(),
              !is_switched_off("no_sparing")),
      passage(channel, socket.remembered()),
      pinned(channel, window_base + wire::kDeviceBytes + wire::kPinnedOffset,
             window_base + wire::kWindowBytes, std::move(made.host_file),
             window_base + wire::kDeviceBytes) {
  // The limits that the program is told; the worker enforces them.
  for (uint32_t i = 0; i < wire::kMaxDevices; ++i) {
    memory_limit[i] =
        wire::combined_limit(made.limits.memory_limit[i], made.group_limits.memory_limit[i]);
  }
  if (made.in_group) memory.join_group();
}

CUresult enter_local(Session** session) {
  *session = g_session.load(std::memory_order_acquire);
  return *session != nullptr ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

CUresult enter(Session** session) {
  *session = g_session.load(std::memory_order_acquire);
  if (*session == nullptr) [[unlikely]] {
    return CUDA_ERROR_NOT_INITIALIZED;
  }
  // The first call that notices the end of the session writes the text of a failed assert().
  return (*session)->output.show_end((*session)->channel.status());
}

CUresult initialize_session(const std::string& control_socket) {
  if (g_forked.load(std::memory_order_relaxed)) return CUDA_ERROR_NOT_INITIALIZED;
  if (Session* session = g_session.load(std::memory_order_acquire); session != nullptr) {
    return session->channel.status();
  }
  const CancellationHeld held;
  const MutexLock guard(g_init_lock);
  if (g_session.load(std::memory_order_relaxed) != nullptr) return CUDA_SUCCESS;
  set_memory_aside();
  Result<Connection> connection = connect(control_socket);
  if (!connection.ok()) return refused(connection.status());
  Result<std::vector<uint32_t>> visible =
      visible_devices(*connection->facts, connection->partition);
  if (!visible.ok()) return refused(visible.status());
  if (!g_handlers_installed) {
    pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
    static_cast<void>(atexit(begin_exit));
  }
  set_thread_end(thread_ended);
  g_handlers_installed = true;
  auto session = std::make_unique<Session>(std::move(*connection), std::move(*visible));
  g_session.store(session.release(), std::memory_order_release);
  return CUDA_SUCCESS;
}

}  // namespace openmps::client
