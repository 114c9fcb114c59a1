// SPDX-License-Identifier: Apache-2.0
// See signals.h.
#include "cli/signals.h"

#include <sys/eventfd.h>

#include <csignal>

namespace openmps::cli {
namespace {

int ending = -1;  // eventfd
void ask_to_end(int) { eventfd_write(ending, 1); }

}  // namespace

int catch_ending_signals() {
  ending = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  struct sigaction action {};
  action.sa_handler = ask_to_end;
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaction(signal, &action, nullptr);
  return ending;
}

}  // namespace openmps::cli
