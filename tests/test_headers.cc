// SPDX-License-Identifier: Apache-2.0
// Nothing of its own: the program that the unit tests share their precompiled headers with.
