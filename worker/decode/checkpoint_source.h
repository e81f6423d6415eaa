// The checkpoint that is decoded: found by folder, step or tag, or the newest; its job; its weights
// in one piece, whatever layout saved them. Only reads, and takes no lock: a job may train and
// prune beside it. Functions block.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "common/base/files.h"
#include "common/base/status.h"
#include "kernels/ops/backend.h"
#include "worker/checkpoint/format/checkpoint_id.h"
#include "worker/checkpoint/format/manifest.h"
#include "worker/decode/decode_weights.h"
#include "worker/model/gpt_config.h"

namespace megatrain::v1 {
class JobSpec;
}

namespace mt::decode {

struct CheckpointChoice {
  std::string directory;                       // of the checkpoints
  std::optional<checkpoint::CheckpointId> id;  // nullopt: the newest when it is read
};

// `path`: a directory of checkpoints, or one checkpoint, then without step and tag. Errors:
// checkpoint::FindPlace's; kNotFound: no such step or tag; kInvalidArgument: a checkpoint and a
// step or tag.
StatusOr<CheckpointChoice> ChooseCheckpoint(const std::string& path, std::optional<int64_t> step,
                                            const std::string& tag);

// Calls `use` with the chosen checkpoint. Where `use` fails and the newest was removed meanwhile,
// as a job does that saves another, it is called again with what is the newest then. kNotFound: the
// directory has none, or the one that was chosen by name is gone; else the error of `use`.
Status UseCheckpoint(const CheckpointChoice& choice,
                     const std::function<Status(const checkpoint::CheckpointId&)>& use);

// What a manifest says of the model.
struct SavedModel {
  std::string folder;
  checkpoint::Manifest manifest;
  std::shared_ptr<const megatrain::v1::JobSpec> job;  // shared: it is declared elsewhere
  model::GptConfig config;                            // as the job trains it
};
// Errors: checkpoint::ReadManifest's; kFailedPrecondition: the job is none that this program knows.
StatusOr<SavedModel> ReadSavedModel(const std::string& directory,
                                    const checkpoint::CheckpointId& id);

// Fills in all weights, rounded to their type; on a GPU and in 16 bits one after the other, each
// through host memory in fp32. Errors: checkpoint::LoadTensors's.
struct LoadWeightsArgs {
  std::string directory;
  const SavedModel* saved = nullptr;
  const DecodeWeights* weights = nullptr;
  kernels::Backend* backend = nullptr;  // of their memory
  kernels::Stream* stream = nullptr;
  base::FileOpener open{};
};
Status LoadWeights(const LoadWeightsArgs& args);

}  // namespace mt::decode
