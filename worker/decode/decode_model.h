// A GPT that answers what comes next: the forward of worker/model with keys and values of earlier
// tokens kept in a cache, over the same ops and parameters, in any type that the backend computes
// in. A sequence's results do not depend on what other sequences are computed beside it, to the
// bit, where calls have up to kernels::kMaxFewRows rows.
// Legend: R rows of a call, h hidden, V vocabulary, c sequences, n positions.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "common/base/status.h"
#include "kernels/ops/backend.h"
#include "worker/decode/decode_forward.h"
#include "worker/decode/decode_weights.h"
#include "worker/decode/network_part.h"
#include "worker/decode/weight_source.h"
#include "worker/memory/memory.h"
#include "worker/memory/stack_arena.h"
#include "worker/model/gpt_config.h"
#include "worker/model/position_tables.h"

namespace mt::decode {

// A token, and where it stands.
struct Row {
  int32_t token = 0;
  int32_t sequence = 0;
  int32_t position = 0;
};

// Used by one thread. Errors: misuse aborts (CHECK).
class DecodeModel {
 public:
  // Rows of one call, unless Args say more.
  static constexpr int64_t kMaxRows = 128;

  struct Args {
    // As DecodeConfig gives it, or with trained weights TrainedDecodeConfig; its seq is n.
    model::GptConfig config;
    int64_t sequences = 1;                      // c
    int64_t max_rows = kMaxRows;                // of one call; a multiple of kMaxRows
    int64_t logit_rows = kernels::kMaxFewRows;  // of one call of Logits, at most
    int64_t memory_limit_bytes = 0;
    kernels::Backend* backend = nullptr;  // this and the stream outlive the model
    kernels::Stream* stream = nullptr;
    // Outlives the model, and is bound when that is made; nullptr: weights of its own.
    const WeightSource* trained = nullptr;
    NetworkPart part;  // with trained weights
  };
  // Allocates everything; own weights are zero. kResourceExhausted: it does not fit the limit, by
  // kind. kFailedPrecondition: the backend does not decode a model of this kind, or in this type.
  static StatusOr<std::unique_ptr<DecodeModel>> Make(const Args& args);
  DecodeModel(const DecodeModel&) = delete;
  DecodeModel& operator=(const DecodeModel&) = delete;

  const model::GptConfig& config() const { return args_.config; }
  int64_t sequences() const { return args_.sequences; }
  int64_t max_rows() const { return args_.max_rows; }
  // Its own (CHECK). To be loaded before the first Forward, constant afterwards.
  const DecodeWeights& weights() const;

  // Computes the rows and keeps their keys and values, in place of what the cache had at their
  // positions. Each attends to the positions of its sequence up to its own, which must all have
  // been computed, by this call or earlier ones. Up to kernels::kMaxFewRows rows are read against
  // the weights at the memory's pace; more, a part of a prompt, are matrix products.
  void Forward(std::span<const Row> rows);
  // The logits [rows.size(), V] of up to args.logit_rows rows of the last Forward, by their numbers
  // in it, in host memory, f32 or f64; more than kernels::kMaxFewRows are a matrix product. Waits
  // for the device. Valid until the next call.
  kernels::Tensor Logits(std::span<const int> rows);
  // Forward of one row of each of some sequences (CHECK), at most args.logit_rows and
  // kernels::kMaxFewRows, and the logits of all of them. A device that has recordings launches the
  // whole step as one.
  kernels::Tensor Step(std::span<const Row> rows);
  // Makes the first `positions` positions of a sequence those of another one.
  void CopySequence(int64_t from, int64_t to, int64_t positions);
  // OK, or the first error of the calls between ranks: logits since then are void.
  Status status() const { return exchange_.status(); }

 private:
  explicit DecodeModel(const Args& args);
  Status Plan(memory::MemoryPlan* plan);
  void Bind();
  bool has_head() const { return chunks_.back().place.has_head; }
  DecodeBuffers Take(memory::StackArena* arena) const;
  void TakeCaches(memory::StackArena* arena);
  void TakePinned(memory::StackArena* arena);
  int64_t WorkspaceBytes();
  // What the calls of an op are made with.
  ForwardPass Pass();
  // Brings the rows to the device, repeating the last one up to `count`.
  void Put(std::span<const Row> rows, int64_t count);
  // Enqueues the layers, over `count` rows that were put.
  void Compute(int64_t count);
  // Enqueues the head over rows x [.., h], and the copy of the logits of the first `count` to the
  // host.
  void Head(const kernels::Tensor& x, int64_t count);
  // Of the last Head, once the device has made them.
  kernels::Tensor HostLogits(int64_t count);
  // The rows that a product is made of: on a GPU one shape for short prompts and one for long ones.
  int64_t PaddedRows(int64_t count) const;
  // Whether the rows are the beginning of one sequence, long enough to be computed as training
  // computes a sequence.
  bool IsLongPrompt(std::span<const Row> rows) const;
  bool on_host() const { return args_.backend->device().kind() == kernels::DeviceKind::kCpu; }

  const Args args_;
  PartExchange exchange_;
  std::optional<DecodeWeights> own_weights_;
  model::PositionTables tables_;
  std::vector<DecodeChunk> chunks_;
  NetworkEnds ends_;
  memory::Block buffers_block_, caches_block_, workspace_block_, pinned_block_;
  std::unique_ptr<memory::Memory> memory_;
  DecodeBuffers buffers_;
  kernels::Workspace workspace_;
  kernels::Tensor host_rows_;            // pinned, i32 [3, max_rows]: tokens, sequences, positions
  kernels::Tensor host_logits_;          // pinned, as the device's, where that is not the host
  kernels::Tensor joined_;               // pinned, [logit_rows, V], where ranks share them
  std::unique_ptr<kernels::Event> put_;  // behind the last copy of host_rows_
  // Steps of so many rows: how often they ran, and their recording once there is one.
  struct Recorded {
    int runs = 0;
    bool refused = false;
    std::unique_ptr<kernels::Recording> recording;
  };
  std::array<Recorded, kernels::kMaxFewRows + 1> steps_;
  int64_t rows_ = 0;           // of the last Forward
  bool long_prompt_ = false;   // IsLongPrompt of it
  bool one_row_each_ = false;  // AttentionDecodeArgs::one_row_each of it
};

}  // namespace mt::decode
