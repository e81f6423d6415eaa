// The parameters of a model as files of another program hold them: a folder of Hugging Face's
// (model_files.h), a model file of llm.c (worker/llmc). Blocking; used by one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>

#include "common/base/ids.h"
#include "common/base/status.h"
#include "worker/checkpoint/box_runs.h"
#include "worker/hf/tensors.h"

namespace mt::hf {

class ParameterSource {
 public:
  virtual ~ParameterSource() = default;

  // By name, with their shapes; as long as the object.
  virtual const std::map<std::string, Shape>& parameters() const = 0;

  // Reads a box of a parameter (CHECK: it has one of this name, and the box lies inside),
  // row-major, as `dtype`, "F32" or "F64". Errors: I/O, and kDataLoss for a file that has become
  // shorter.
  virtual Status Read(const std::string& parameter, const checkpoint::Box& box,
                      const std::string& dtype, std::byte* out) const = 0;

  // A digest by which two models of one shape differ: of what the files say of their tensors, and
  // of the first and last bytes of each, as they are now. Errors as Read's.
  virtual StatusOr<std::string> Fingerprint() const = 0;

 protected:
  // What Read promises of its arguments.
  void CheckInside(const std::string& parameter, const checkpoint::Box& box) const;
  // Reads bytes of a tensor, from an offset in it on.
  using ReadBytes = std::function<Status(int64_t offset, std::span<std::byte> out)>;
  // Adds the ends of a tensor of so many bytes to a digest.
  static Status AddEnds(int64_t bytes, const ReadBytes& read, base::Hash128* digest);
};

}  // namespace mt::hf
