// SPDX-License-Identifier: Apache-2.0
// CUDA_VISIBLE_DEVICES on a machine with one or more devices: the devices that are visible with
// each value. Run by run_e2e.py. usage: drv_visible
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "driver.h"

namespace {

struct Answer {
  CUresult initialised = CUDA_SUCCESS;
  int count = 0;
  unsigned char first[16] = {};  // UUID of the first device
};

// In a process of its own: the driver reads the variable once. nullptr: it is not set.
Answer ask(const char* value) {
  int ends[2];
  if (pipe(ends) != 0) exit(1);
  const pid_t child = fork();
  if (child == 0) {
    if (value == nullptr) {
      unsetenv("CUDA_VISIBLE_DEVICES");
    } else {
      setenv("CUDA_VISIBLE_DEVICES", value, 1);
    }
    Answer answer;
    answer.initialised = cuInit(0);
    if (answer.initialised == CUDA_SUCCESS) {
      CHECK_CU(cuDeviceGetCount(&answer.count));
      CUuuid uuid{};
      CHECK_CU(cuDeviceGetUuid_v2(&uuid, 0));
      memcpy(answer.first, uuid.bytes, sizeof(answer.first));
    }
    exit(write(ends[1], &answer, sizeof(answer)) == sizeof(answer) ? 0 : 1);
  }
  close(ends[1]);
  Answer answer;
  if (read(ends[0], &answer, sizeof(answer)) != sizeof(answer)) {
    e2e::expect(false, "the process for \"%s\" died", value);
  }
  close(ends[0]);
  waitpid(child, nullptr, 0);
  return answer;
}

// Prints the devices for a value. `shown` is printed instead of a value that differs between
// machines.
void tell(const std::string& value, const char* shown = nullptr) {
  const Answer answer = ask(value.c_str());
  printf("\"%s\": %s, %d\n", shown == nullptr ? value.c_str() : shown,
         e2e::name(answer.initialised), answer.count);
}

std::string text_of(const unsigned char (&uuid)[16]) {
  std::string text = "GPU";
  for (int i = 0; i < 16; i++) {
    char byte[4];
    const bool starts = i == 0 || i == 4 || i == 6 || i == 8 || i == 10;
    snprintf(byte, sizeof(byte), starts ? "-%02x" : "%02x", uuid[i]);
    text += byte;
  }
  return text;
}

}  // namespace

int main() {
  setvbuf(stdout, nullptr, _IOLBF, 0);
  const Answer all = ask(nullptr);
  e2e::expect(all.initialised == CUDA_SUCCESS && all.count > 0, "not set: all devices");
  for (const char* value : {"",
                            " ",
                            "0",
                            "0 ",
                            " 0",
                            "  0",
                            "\t0",
                            "0x0",
                            "0.5",
                            "0;1",
                            "0:1",
                            "0-1",
                            "0 1",
                            "0a",
                            "00",
                            "+0",
                            "-0",
                            "0,",
                            "0,,",
                            "0,-1",
                            "0,99",
                            "0,none",
                            "-1",
                            "-1,0",
                            ",0",
                            "99",
                            "a",
                            "none",
                            "4294967296",
                            "18446744073709551616",
                            "\"0\"",
                            "0,0",
                            "0, 0",
                            "0,00",
                            "0,0x",
                            "GPU",
                            "GPU-",
                            "GPU-zz",
                            "MIG-",
                            "MIG-0",
                            "0,GPU-ff00ff00"}) {
    tell(value);
  }
  const std::string uuid = text_of(all.first);
  std::string upper = uuid;
  for (char& c : upper) c = static_cast<char>(toupper(c));
  std::string plain = uuid;
  std::erase(plain, '-');
  tell(uuid, "GPU-UUID");
  tell(upper, "GPU-UUID, capital letters");
  tell("GPU-" + plain.substr(3), "GPU-UUID, no dashes");
  tell("gpu" + uuid.substr(3), "gpu-UUID");
  tell(uuid + "x", "GPU-UUIDx");
  tell(uuid + " ", "GPU-UUID and a space");
  tell(" " + uuid, "a space and GPU-UUID");
  tell(uuid + ",99", "GPU-UUID,99");
  tell(uuid + ",0", "GPU-UUID,0");
  tell("0," + uuid, "0,GPU-UUID");
  tell(uuid + "," + uuid, "GPU-UUID,GPU-UUID");
  tell("MIG-" + uuid, "MIG-GPU-UUID");
  tell("MIG-" + uuid + "/0/0", "MIG-GPU-UUID/0/0");
  // Several devices may have UUIDs with equal beginnings.
  tell(all.count > 1 ? uuid : uuid.substr(0, 5), "GPU-U");
  return e2e::finish();
}
