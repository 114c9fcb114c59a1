// SPDX-License-Identifier: Apache-2.0
// Files: stat() and its like, which were inline until glibc 2.33, memfd_create() and
// copy_file_range() (2.27), as system calls. Any thread.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

extern "C" {

#if __GLIBC_PREREQ(2, 33)
// The kernel's structure is glibc's on x86_64, by both names.
int stat(const char* path, struct stat* found) noexcept {
  return static_cast<int>(syscall(SYS_stat, path, found));
}
int lstat(const char* path, struct stat* found) noexcept {
  return static_cast<int>(syscall(SYS_lstat, path, found));
}
int fstat(int descriptor, struct stat* found) noexcept {
  return static_cast<int>(syscall(SYS_fstat, descriptor, found));
}
int fstatat(int folder, const char* path, struct stat* found, int flags) noexcept {
  return static_cast<int>(syscall(SYS_newfstatat, folder, path, found, flags));
}
int stat64(const char* path, struct stat64* found) noexcept {
  return static_cast<int>(syscall(SYS_stat, path, found));
}
int lstat64(const char* path, struct stat64* found) noexcept {
  return static_cast<int>(syscall(SYS_lstat, path, found));
}
int fstat64(int descriptor, struct stat64* found) noexcept {
  return static_cast<int>(syscall(SYS_fstat, descriptor, found));
}
#endif

ssize_t copy_file_range(int from, off64_t* from_offset, int to, off64_t* to_offset, size_t count,
                        unsigned flags) {
  return syscall(SYS_copy_file_range, from, from_offset, to, to_offset, count, flags);
}
int memfd_create(const char* name, unsigned flags) noexcept {
  return static_cast<int>(syscall(SYS_memfd_create, name, flags));
}

}  // extern "C"
