// SPDX-License-Identifier: Apache-2.0
// Numbers in text: since glibc 2.38 strtol() and sscanf() are compiled into calls of functions that
// know C23's binary numbers, too. Nothing of ours reads any. Any thread.
#include <cstdarg>
#include <cstddef>
#include <cstdio>

extern "C" {

// By these names the compiler must not know them: it would call what is defined here.
long old_strtol(const char* text, char** end, int base) __asm__("strtol");
unsigned long old_strtoul(const char* text, char** end, int base) __asm__("strtoul");
long long old_strtoll(const char* text, char** end, int base) __asm__("strtoll");
unsigned long long old_strtoull(const char* text, char** end, int base) __asm__("strtoull");
int old_vsscanf(const char* text, const char* format, va_list places) __asm__("__isoc99_vsscanf");

long __isoc23_strtol(const char* text, char** end, int base) { return old_strtol(text, end, base); }
unsigned long __isoc23_strtoul(const char* text, char** end, int base) {
  return old_strtoul(text, end, base);
}
long long __isoc23_strtoll(const char* text, char** end, int base) {
  return old_strtoll(text, end, base);
}
unsigned long long __isoc23_strtoull(const char* text, char** end, int base) {
  return old_strtoull(text, end, base);
}
int __isoc23_sscanf(const char* text, const char* format, ...) {
  va_list places;
  va_start(places, format);
  const int read = old_vsscanf(text, format, places);
  va_end(places);
  return read;
}

}  // extern "C"
