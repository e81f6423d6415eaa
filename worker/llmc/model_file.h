// A model file of llm.c as the parameters of a model. Blocking; used by one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/base/files.h"
#include "worker/hf/parameter_source.h"
#include "worker/llmc/header.h"

namespace mt::llmc {

// What is read at once where elements are converted, or only some columns are wanted.
inline constexpr int64_t kReadBytes = int64_t{16} << 20;

class ModelFile final : public hf::ParameterSource {
 public:
  // Reads the header, and sees that the file is as long as it says; of the tensors only the padded
  // rows are read. Errors, with the path: ParseHeader's and ModelOf's; kDataLoss for a file that
  // ends early, with the byte and the tensor; kInvalidArgument for one that is longer, and for what
  // is no regular file, such as a pipe, which is not waited for; I/O errors.
  static StatusOr<ModelFile> Open(const std::string& path, const base::FileOpener& open = {},
                                  int64_t read_bytes = kReadBytes);

  const Header& header() const { return header_; }
  const megatrain::v1::Model& model() const { return *model_; }  // completed
  const std::map<std::string, hf::Shape>& parameters() const override { return parameters_; }
  // Said of what was read: padded rows that are not zero.
  const std::vector<std::string>& notes() const { return notes_; }

  Status Read(const std::string& parameter, const checkpoint::Box& box, const std::string& dtype,
              std::byte* out) const override;
  StatusOr<std::string> Fingerprint() const override;

 private:
  struct Run;
  Status CheckSize(int64_t file_bytes) const;
  // llm.c gives the padding probability 0, whatever stands there.
  Status NotePadding();
  Status ReadRun(const Run& run) const;
  Status ReadAt(int64_t offset, std::span<std::byte> out) const;

  std::string path_;
  base::Fd fd_;
  int64_t read_bytes_ = kReadBytes;
  Header header_;
  std::shared_ptr<const megatrain::v1::Model> model_;
  std::vector<hf::HfTensor> tensors_;
  std::vector<int64_t> offsets_;  // in the file, of each of them
  std::map<std::string, std::vector<hf::Source>> sources_;
  std::map<std::string, hf::Shape> parameters_;
  std::vector<std::string> notes_;
};

}  // namespace mt::llmc
