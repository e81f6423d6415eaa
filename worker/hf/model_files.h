// A folder of Hugging Face's as the parameters of a model: its config.json, and any box of any
// parameter, whatever way the files store it. Blocking; used by one thread. Legend: R rows and C
// columns of a box.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/base/files.h"
#include "worker/checkpoint/box_runs.h"
#include "worker/hf/config_read.h"
#include "worker/hf/parameter_source.h"
#include "worker/hf/shard_files.h"
#include "worker/hf/tensors.h"

namespace mt::hf {

class ModelFiles final : public ParameterSource {
 public:
  // Reads config.json and the headers of the files, and sees that every tensor of the model is
  // there with its shape and a floating type, and nothing besides but masks and tables of rotations
  // of older files. A tied head that is stored must equal the word table. Errors: ParseConfig's and
  // ShardFiles::Open's, with the path; kInvalidArgument, naming tensors: missing, of another shape
  // or type, or of no use; kFailedPrecondition: a tied head that differs, both values named.
  static StatusOr<ModelFiles> Open(const std::string& folder, const base::FileOpener& open = {});

  const HfConfig& config() const { return config_; }
  const std::map<std::string, Shape>& parameters() const override { return parameters_; }
  // Said of what was read: the config's notes, and what is done to GPT-NeoX's norms.
  const std::vector<std::string>& notes() const { return notes_; }

  Status Read(const std::string& parameter, const checkpoint::Box& box, const std::string& dtype,
              std::byte* out) const override;
  StatusOr<std::string> Fingerprint() const override;

 private:
  // GPT-NeoX has two norms of a layer's input beside its parallel residual, the engine one. Where
  // they differ, the engine's is the plain normalisation, and gain and shift of each are multiplied
  // into the products that read it: W (g y + s) + c = (W g) y + (W s + c).
  struct Folded {
    std::vector<double> gain, shift;  // [h]
  };

  Status FindTensors();
  Status CheckTiedHead() const;
  Status FoldNorms();
  StatusOr<std::vector<double>> ReadVector(const std::string& tensor) const;
  // What is multiplied into a parameter; nullptr: nothing.
  const Folded* FoldedInto(const std::string& parameter) const;
  Status ReadStored(const std::string& parameter, const checkpoint::Box& box,
                    const std::string& dtype, std::byte* out) const;
  Status ReadFolded(const std::string& parameter, const Folded& norm, const checkpoint::Box& box,
                    std::vector<double>* out) const;

  HfConfig config_;
  ShardFiles files_;
  std::vector<HfTensor> tensors_;
  std::map<std::string, std::vector<Source>> sources_;
  std::map<std::string, ShardFiles::Place> places_;  // by HfTensor::name
  std::map<std::string, Shape> parameters_;
  std::map<std::string, Folded> folded_;  // "layers.0.attention." and "layers.0.ffn."
  std::vector<std::string> notes_;
};

}  // namespace mt::hf
