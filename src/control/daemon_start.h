// SPDX-License-Identifier: Apache-2.0
// Starting the control daemon: each failure has a message on the starter's standard error and an
// exit status. Called by main().
#pragma once

#include <string>

namespace openmps::control {

struct DaemonOptions {
  std::string pipe_directory;
  bool is_usual_directory = false;  // CUDA_MPS_PIPE_DIRECTORY does not name it
  std::string log_directory;
  std::string config;  // the path of a configuration file; empty: none
  bool foreground = false;
  bool reads_input = false;        // ends with its standard input, or at the word "quit" there
  bool ready_devices = false;      // -q: start a server at once
  bool static_partitions = false;  // -S: each client has to name a partition of SMs
  bool multiuser = false;          // -m: root's named servers serve everybody
  bool nvidia_names = false;       // servers have the name of NVIDIA's server
};

// In the background: returns when the socket accepts (0) or the start has failed (1). In the
// foreground: returns when the daemon has ended.
int start_daemon(DaemonOptions options);

}  // namespace openmps::control
