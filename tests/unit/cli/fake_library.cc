// SPDX-License-Identifier: Apache-2.0
// In place of the client library where nothing of it is called: it can be loaded.
extern "C" {
extern const char openmps_fake_library;
const char openmps_fake_library = 0;
}
