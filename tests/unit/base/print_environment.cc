// SPDX-License-Identifier: Apache-2.0
// Prints what base/environment.h says of the variable that is named. A copy of it gets a
// set-user-ID bit in environment_test.cc.
#include <cstdio>

#include "base/environment.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const char* value = openmps::environment_variable(argv[1]);
  const std::string start = openmps::environment_at_start(argv[1]);
  printf("%s %s %s\n", value != nullptr ? value : "unset",
         openmps::environment_or(argv[1], "default").c_str(),
         start.empty() ? "unset" : start.c_str());
}
