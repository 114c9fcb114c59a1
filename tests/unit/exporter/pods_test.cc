// SPDX-License-Identifier: Apache-2.0
// Containers and pods by the path of a cgroup, in the forms that engines make.
#include "exporter/pods.h"

#include <gtest/gtest.h>

namespace openmps::exporter {
namespace {

const std::string kId = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
const std::string kUid = "12345678-9abc-def0-1234-56789abcdef0";

TEST(Pods, ContainersOfEveryEngine) {
  for (const std::string& path :
       {"/docker/" + kId, "/system.slice/docker-" + kId + ".scope",
        "/machine.slice/libpod-" + kId + ".scope/container", "/libpod_parent/libpod-" + kId,
        "/system.slice/crio-" + kId + ".scope"}) {
    const Place place = place_of_path(path);
    EXPECT_EQ(place.container, kId) << path;
    EXPECT_EQ(place.pod, "") << path;
  }
}

TEST(Pods, PodsOfKubernetes) {
  for (const std::string& path :
       {"/kubepods/burstable/pod" + kUid + "/" + kId, "/kubepods/pod" + kUid + "/" + kId,
        "/kubepods.slice/kubepods-besteffort.slice/"
        "kubepods-besteffort-pod12345678_9abc_def0_1234_56789abcdef0.slice/cri-containerd-" +
            kId + ".scope"}) {
    const Place place = place_of_path(path);
    EXPECT_EQ(place.container, kId) << path;
    EXPECT_EQ(place.pod, kUid) << path;
  }
}

TEST(Pods, OtherPathsAreNone) {
  for (const char* path : {"", "/", "/user.slice/user-0.slice/session-1.scope", "/docker/abc",
                           "/kubepods/podium/x", "/podman", "/kubepods/pod-/x"}) {
    EXPECT_EQ(place_of_path(path).container, "") << path;
    EXPECT_EQ(place_of_path(path).pod, "") << path;
  }
  EXPECT_EQ(place_of_process(0).container, "");
  EXPECT_EQ(user_of_process(0), "");
  EXPECT_EQ(user_of_process(getpid()), std::to_string(geteuid()));
}

}  // namespace
}  // namespace openmps::exporter
