// SPDX-License-Identifier: Apache-2.0
// See top.h.
#include "cli/top.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "cli/installation.h"
#include "cli/screen.h"
#include "cli/signals.h"
#include "cli/stat.h"
#include "cli/top_model.h"
#include "observe/figures.h"
#include "wire/control_call.h"
#include "wire/daemon_search.h"

namespace openmps::cli {
namespace {

// The pause between the first two snapshots, which is short whatever the option says.
constexpr uint64_t kFirstLookNs = 300'000'000;

// A terminate_client that has no answer yet, on its own connection: it may take seconds, in which
// the screen is still updated.
class Termination {
 public:
  // The error; empty: the command has been sent.
  std::string begin(const TopModel::Victim& victim) {
    victim_ = victim;
    Result<UniqueFd> socket = wire::find_daemon().socket;
    if (!socket.ok()) return socket.status().message();
    const std::string command =
        "terminate_client " + std::to_string(victim.server) + " " + victim.name;
    if (Status sent = wire::send_command(socket->get(), command); !sent.ok()) {
      return sent.message();
    }
    socket_ = std::move(socket).value();
    return "";
  }
  // -1: no command has been sent.
  [[nodiscard]] int socket() const { return socket_.valid() ? socket_.get() : -1; }
  // The socket can be read: the outcome.
  std::string finish() {
    const std::string who = victim_.name + " " + victim_.program;
    Result<wire::ControlReply> reply = wire::receive_reply(socket_.get());
    socket_.reset();
    if (!reply.ok()) return who + ": " + reply.status().message();
    // The text of the command shell: 0, or a sentence.
    if (reply->text == "0\n") return who + " has been terminated";
    return who + ": " + reply->text.substr(0, reply->text.find('\n'));
  }

 private:
  UniqueFd socket_;
  TopModel::Victim victim_;
};

class Top {
 public:
  // `ending`: a descriptor that can be read once a signal has come.
  Top(observe::DaemonLink daemon, Screen screen, const TopOptions& options, int ending)
      : ending_(ending),
        daemon_(std::move(daemon)),
        screen_(std::move(screen)),
        delay_ns_(static_cast<uint64_t>(options.delay_s * 1e9)),
        model_(options.delay_s, options.order, options.filter) {}

  void run() {
    model_.show_problem("Looking");
    look();
    while (true) {
      screen_.draw(model_.draw(screen_.width(), screen_.height()));
      if (!wait() || !take_keys()) return;
      if (now_ns() >= next_look_ns_) look();
    }
  }

 private:
  // Rates are since the last snapshot.
  void look() {
    next_look_ns_ = now_ns() + delay_ns_;
    if (!daemon_) {
      Result<observe::DaemonLink> again = observe::DaemonLink::connect();
      if (!again.ok()) return model_.show_problem("The daemon has gone");
      daemon_ = std::move(again).value();
    }
    Result<observe::Snapshot> now = daemon_->look();
    if (!now.ok()) {
      daemon_.reset();
      before_ = observe::Snapshot();
      return model_.show_problem("No answer: " + now.status().message());
    }
    const bool is_first = before_.at_ns == 0;
    if (!is_first) model_.show(observe::compare(before_, *now));
    before_ = std::move(now).value();
    if (is_first) next_look_ns_ = std::min(next_look_ns_, now_ns() + kFirstLookNs);
  }

  // Waits for something to do. False: to end.
  bool wait() {
    const uint64_t now = now_ns();
    const uint64_t left_ms = next_look_ns_ > now ? (next_look_ns_ - now + 999'999) / 1'000'000 : 0;
    pollfd files[3] = {
        {STDIN_FILENO, POLLIN, 0}, {termination_.socket(), POLLIN, 0}, {ending_, POLLIN, 0}};
    // Interrupted by a change of the terminal's size: draw again.
    if (poll(files, 3, static_cast<int>(left_ms)) <= 0) return true;
    if (files[1].revents != 0) model_.note(termination_.finish());
    // Otherwise the terminal has gone.
    const bool has_terminal = (files[0].revents & (POLLHUP | POLLERR | POLLNVAL)) == 0;
    return has_terminal && files[2].revents == 0;
  }

  // False: this was the last snapshot.
  bool take_keys() {
    while (const std::optional<Key> key = screen_.key()) {
      switch (model_.on_key(*key)) {
        case TopModel::Action::kNone: break;
        case TopModel::Action::kQuit: return false;
        case TopModel::Action::kTerminate: terminate(); break;
      }
    }
    return true;
  }

  void terminate() {
    if (termination_.socket() >= 0) return model_.note("One is being terminated already");
    const std::string problem = termination_.begin(model_.victim());
    model_.note(problem.empty() ? model_.victim().name + " is being terminated" : problem);
  }

  const int ending_;
  std::optional<observe::DaemonLink> daemon_;
  Screen screen_;
  const uint64_t delay_ns_;
  uint64_t next_look_ns_ = 0;
  observe::Snapshot before_;
  Termination termination_;
  TopModel model_;
};

}  // namespace

int run_top(const TopOptions& options) {
  if (options.once || isatty(STDIN_FILENO) == 0 || isatty(STDOUT_FILENO) == 0) {
    return run_stat({.interval_s = options.delay_s,
                     .count = 1,
                     .order = options.order,
                     .filter = options.filter});
  }
  Result<observe::DaemonLink> daemon = observe::DaemonLink::connect();
  if (!daemon.ok()) {
    observe::report_no_daemon(daemon.status());
    return 1;
  }
  // Before the terminal is changed, which is restored at the end.
  const int ending = catch_ending_signals();
  Result<Screen> screen = Screen::take();
  if (!screen.ok()) {
    fprintf(stderr, "openmps: %s; openmps top --once needs none\n",
            screen.status().message().c_str());
    return 1;
  }
  Top(std::move(daemon).value(), std::move(screen).value(), options, ending).run();
  return 0;
}

}  // namespace openmps::cli
