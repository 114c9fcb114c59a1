// SPDX-License-Identifier: Apache-2.0
// Prints what the functions of base/environment.h return for the variable that its argument names.
// environment_test.cc runs copies of this program with and without a set-user-ID bit.
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
