// A temporary folder that is removed with the object, and small data sets in it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/ids.h"
#include "worker/data/indexed_dataset.h"
#include "worker/data/indexed_dataset_writer.h"

namespace mt::data {

class TempDir {
 public:
  TempDir()
      : path_(
            (std::filesystem::temp_directory_path() / ("mt-data-" + base::RandomHex(8))).string()) {
    std::filesystem::create_directories(path_);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  ~TempDir() { std::filesystem::remove_all(path_); }
  std::string Path(std::string_view name) const { return path_ + "/" + std::string(name); }
  const std::string& path() const { return path_; }
  // Names of the files in it, sorted.
  std::vector<std::string> Files() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path_)) {
      names.push_back(entry.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
  }

 private:
  const std::string path_;
};

inline void WriteText(const std::string& path, std::string_view text) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out.write(text.data(), static_cast<std::streamsize>(text.size()));
  ASSERT_TRUE(out.good()) << path;
}

inline std::string ReadText(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

// One document per sequence; token t of sequence i is token_of(i, t).
inline void WriteDataset(const std::string& prefix, const std::vector<int32_t>& lengths,
                         TokenType type, const std::function<int32_t(int64_t, int64_t)>& token_of) {
  auto writer = IndexedDatasetWriter::Create(prefix, type);
  ASSERT_TRUE(writer.ok()) << writer.status();
  for (size_t i = 0; i < lengths.size(); ++i) {
    std::vector<int32_t> tokens(static_cast<size_t>(lengths[i]));
    for (size_t t = 0; t < tokens.size(); ++t) {
      tokens[t] = token_of(static_cast<int64_t>(i), static_cast<int64_t>(t));
    }
    ASSERT_TRUE((*writer)->AddSequence(tokens).ok());
    (*writer)->EndDocument();
  }
  const Status status = (*writer)->Finish();
  ASSERT_TRUE(status.ok()) << status;
}

// The same, opened; every token of the data set has its own id: 0, 1, 2, ... in file order.
inline std::shared_ptr<const IndexedDataset> NumberedDataset(const std::string& prefix,
                                                             const std::vector<int32_t>& lengths) {
  int32_t next = 0;
  WriteDataset(prefix, lengths, TokenType::kI32, [&](int64_t, int64_t) { return next++; });
  auto data = IndexedDataset::Open(prefix);
  EXPECT_TRUE(data.ok()) << data.status();
  return data.ok() ? *data : nullptr;
}

}  // namespace mt::data
