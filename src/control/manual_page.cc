// SPDX-License-Identifier: Apache-2.0
// A program of the build: writes the manual page of openmps-control from a page that has a line
// .\" @NAME@ for each part that is made from a table of the program.
// usage: openmps_manual_page PAGE.in PAGE
#include <fstream>
#include <iostream>
#include <string>

#include "control/command.h"
#include "control/limits.h"
#include "control/module_command.h"

namespace {

std::string part(const std::string& line) {
  using namespace openmps::control;
  if (line == ".\\\" @COMMANDS@") return manual_of_commands();
  if (line == ".\\\" @MODULES@") return manual_of_modules();
  if (line == ".\\\" @LIMITS@") return manual_of_limits(false);
  if (line == ".\\\" @GROUP_LIMITS@") return manual_of_limits(true);
  return line + "\n";
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 1;
  std::ifstream in(argv[1]);
  std::ofstream out(argv[2]);
  std::string line;
  while (std::getline(in, line)) out << part(line);
  out.close();
  if (in.eof() && out) return 0;
  std::cerr << argv[0] << ": " << argv[1] << " or " << argv[2] << " can't be read or written\n";
  return 1;
}
