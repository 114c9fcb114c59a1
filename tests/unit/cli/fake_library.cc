// SPDX-License-Identifier: Apache-2.0
// Replaces the client library in tests that only load it.
extern "C" {
extern const char openmps_fake_library;
const char openmps_fake_library = 0;
}
