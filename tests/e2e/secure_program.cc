// SPDX-License-Identifier: Apache-2.0
// A small CUDA program for the scenario secure_programs, which gives it a set-user-ID bit:
// `secure_program FOLDER` prints the number of devices, and whether a file in that folder has been
// loaded.
#include <cstdio>
#include <fstream>
#include <string>

#include "api/prototypes.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  int version = 0;
  int devices = 0;
  cuDriverGetVersion(&version);
  cuInit(0);
  cuDeviceGetCount(&devices);
  cuDeviceGetCount(nullptr);  // an error, which would be printed if OPENMPS_DEBUG had an effect
  printf("devices %d\n", devices);
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find(argv[1]) != std::string::npos) {
      puts("loaded");
      break;
    }
  }
}
