// SPDX-License-Identifier: Apache-2.0
// Runs a fuzz target on the files of folders: its ctest entry if it is not linked with libFuzzer. A
// target that knows what its corpus has to cover then reports whether it did.
// usage: NAME_fuzz CORPUS_FOLDER...

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
// Whether the inputs so far have covered what the corpus has to cover. Prints what is missing.
extern "C" [[gnu::weak]] bool corpus_is_complete();

int main(int argc, char** argv) {
  if (argc < 2) return fprintf(stderr, "usage: %s CORPUS_FOLDER...\n", argv[0]), 2;
  std::vector<std::filesystem::path> files;
  for (int i = 1; i < argc; ++i) {
    for (const auto& entry : std::filesystem::directory_iterator(argv[i])) {
      files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  for (const auto& path : files) {
    std::ifstream file(path, std::ios::binary);
    // The buffer is as long as the input, so that a sanitizer notices a read of the byte behind it.
    const std::vector<char> read((std::istreambuf_iterator<char>(file)),
                                 std::istreambuf_iterator<char>());
    printf("%s: %zu bytes\n", path.filename().c_str(), read.size());
    fflush(stdout);  // so that after a crash the last line names the input
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(read.data()), read.size());
  }
  if (files.empty()) return fprintf(stderr, "%s has no files\n", argv[1]), 1;
  return corpus_is_complete == nullptr || corpus_is_complete() ? 0 : 1;
}
