// SPDX-License-Identifier: Apache-2.0
// Runs a part of a program in a process of its own, for settings that a driver reads once per
// process. The caller has made no CUDA call before, and has one thread.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "driver.h"

namespace e2e {

// Runs body() in a child and waits for it; a child that does not end with 0 is a failure.
template <typename Body>
void in_child(Body&& body) {
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    body();
    exit(0);
  }
  int status = -1;
  waitpid(child, &status, 0);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) expect(false, "its process failed");
}

}  // namespace e2e
