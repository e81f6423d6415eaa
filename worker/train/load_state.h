// Brings a checkpoint's state into the engine: all of it, or its weights.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/files.h"
#include "common/base/status.h"
#include "common/spec/course.h"
#include "worker/checkpoint/exchange.h"
#include "worker/checkpoint/format/checkpoint_id.h"
#include "worker/checkpoint/format/manifest.h"
#include "worker/data/index_record.h"
#include "worker/engine/engine.h"
#include "worker/train/records.h"

namespace megatrain::v1 {
class JobSpec;
}

namespace mt::train {

// The pointers outlive the call.
struct LoadStateArgs {
  const megatrain::v1::JobSpec* job = nullptr;
  std::string directory;  // of the checkpoint
  checkpoint::CheckpointId id;
  // Opens the training data of this course, where other data are open, and returns their record.
  std::function<StatusOr<data::IndexRecord>(const spec::Course& course)> data;
  engine::Engine* engine = nullptr;
  std::function<void(int64_t bytes)> progress;  // may be empty
  base::FileOpener open{};  // of the checkpoint's files (spec::BelowRoot of the checkpoint root)
};

// Loads masters, moments and scalars into the engine, each rank on its own, whatever layout,
// precision or optimizer saved them; Engine::RebuildWeights must follow on all. Moments that the
// checkpoint does not have, as another optimizer saved it, begin at zero; a static loss scale is
// the job's, and a dynamic one begins anew in another precision. Where the job's batch sizes are
// others the run keeps its place in the order of samples, and its length, and the engine takes over
// its course. Refuses (kFailedPrecondition, both values named) another model, sample order, seed or
// length in samples. Returns the manifest.
StatusOr<checkpoint::Manifest> LoadState(const LoadStateArgs& args);

// Loads the masters alone (checkpoint.load_kind: weights): everything else is that of a run before
// its first step. Refuses other shapes (kFailedPrecondition) and names (kNotFound) alone.
StatusOr<checkpoint::Manifest> LoadWeights(const LoadStateArgs& args);

// Collective and blocking: loads the masters from what another program has written, `directory`: by
// checkpoint.load_kind a folder of Hugging Face's (hf) or a model file of llm.c (llmc), which must
// say the job's model. Everything else stays as Engine::Initialize has made it, and
// Engine::RebuildWeights must follow. `id` and `data` are not used. An error on all ranks, this
// rank's or another's: kFailedPrecondition names the fields that differ, and, with the cause
// STORAGE, files that are not the same on all ranks or were written over while they were read; else
// hf::ModelFiles::Open's or llmc::ModelFile::Open's errors.
Status LoadForeignWeights(const LoadStateArgs& args, std::string_view load_kind,
                          checkpoint::Exchange* exchange);

// The fields in which the job differs from the one that saved the checkpoint, as
// spec::ChangeText. Fields that either version does not know are left out. Pure.
std::vector<std::string> ChangedFields(const checkpoint::Manifest& manifest,
                                       const megatrain::v1::JobSpec& job);

// The record of a checkpoint that an earlier placement has saved, from its manifest and its files.
// The times of its save are not known and stay 0.
StatusOr<CheckpointRecord> RecordOf(const std::string& directory,
                                    const checkpoint::Manifest& manifest, int64_t seq_length);

}  // namespace mt::train
