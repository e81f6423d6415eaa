// The inputs of tests/worker/data/corpus, from which the fuzzers make theirs (corpus/README.md).
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "tests/paths.h"

namespace mt::data {

struct CorpusInput {
  std::string name{};  // of its file, with the line where it has several
  std::string bytes{};
};

// What a .hex file spells: two digits a byte, 4d*3 for three of them, # up to the end of a line for
// remarks.
inline std::string BytesOfHex(std::istream& text) {
  std::string bytes;
  for (std::string line; std::getline(text, line);) {
    std::istringstream words(line.substr(0, line.find('#')));
    for (std::string word; words >> word;) {
      const size_t star = word.find('*');
      const int times = star == std::string::npos ? 1 : std::stoi(word.substr(star + 1));
      word.resize(std::min(word.size(), star));
      std::string group;
      for (size_t at = 0; at + 1 < word.size(); at += 2)
        group += static_cast<char>(std::stoi(word.substr(at, 2), nullptr, 16));
      for (int i = 0; i < times; ++i) bytes += group;
    }
  }
  return bytes;
}

// The inputs of all files of this kind ("idx") in the order of their names: a .hex file spells one,
// a line of a .jsonl file is one, and so is another file as it is. At least one is there.
inline std::vector<CorpusInput> Corpus(std::string_view kind) {
  const std::string folder =
      std::string(MT_SOURCE_DIR "/tests/worker/data/corpus/") + std::string(kind);
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  std::vector<CorpusInput> inputs;
  for (const std::filesystem::path& path : paths) {
    std::ifstream in(path, std::ios::binary);
    const std::string name = path.filename().string();
    if (path.extension() == ".hex") {
      inputs.push_back({name, BytesOfHex(in)});
    } else if (path.extension() == ".jsonl") {
      int number = 0;
      for (std::string line; std::getline(in, line);)
        inputs.push_back({name + ":" + std::to_string(++number), line});
    } else {
      std::ostringstream text;
      text << in.rdbuf();
      inputs.push_back({name, text.str()});
    }
  }
  EXPECT_FALSE(inputs.empty()) << folder;
  return inputs;
}

}  // namespace mt::data
