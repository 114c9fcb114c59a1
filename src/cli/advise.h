// SPDX-License-Identifier: Apache-2.0
// `openmps advise`: which active thread percentage a program should have (observe/advise.h).
#pragma once

#include <string>

namespace openmps::cli {

struct AdviseOptions {
  std::string name;  // name_of(Client)
  double for_s = 0;  // how long to watch; 0: not at all, take the whole life of the program
  bool json = false;
};

// Exit status: 0, or 1 with a message if there is no such program or no answer.
int run_advise(const AdviseOptions& options);

}  // namespace openmps::cli
