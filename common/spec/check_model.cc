// The model section: preset, derived sizes, and the vocabulary against the tokenizer; then the data
// section.
#include <google/protobuf/descriptor.h>

#include "common/base/math.h"
#include "common/spec/complete.h"
#include "common/spec/derived.h"
#include "common/spec/number.h"
#include "common/spec/presets.h"
#include "common/spec/rules.h"
#include "common/spec/text_forms.h"
#include "megatrain/v1/job.pb.h"

namespace mt::spec {
namespace {

namespace v1 = megatrain::v1;

// 256 byte values and one end-of-document id.
constexpr int64_t kByteVocab = 257;
// Together with the ranges in job.proto this keeps parameter counts within 63 bits.
constexpr int64_t kMaxAttentionWidth = int64_t{1} << 24;

using Tokenizer = v1::Data::Tokenizer;

bool HasByteTokenizer(const v1::Data& data) {
  return data.tokenizer().type() == Tokenizer::TYPE_BYTE;
}

// Whether a rank finds the vocabulary: in the tokenizer's files or the data's record.
bool VocabComesWithData(const v1::Data& data) {
  return !data.mock() && !HasByteTokenizer(data) && data.tokenizer().type() != Tokenizer::TYPE_NULL;
}

void CompleteVocab(const CheckArgs& args) {
  v1::Model& model = *args.job->mutable_model();
  const bool byte = HasByteTokenizer(args.job->data());
  if (!args.faults->Clean({"model.vocab_size", "data.tokenizer.type", "model.preset"})) return;
  if (!model.has_vocab_size() && byte) model.set_vocab_size(kByteVocab);
  if (!model.has_vocab_size()) {
    if (VocabComesWithData(args.job->data())) return;
    args.faults->Add("model.vocab_size",
                     "required: neither ids nor mock data have a vocabulary of their own");
  } else if (byte && model.vocab_size() < kByteVocab) {
    args.faults->Add("model.vocab_size",
                     fmt::format("the byte tokenizer has {} tokens, so at least {}; is {}",
                                 kByteVocab, kByteVocab, model.vocab_size()));
  }
}

void CheckHeads(const CheckArgs& args) {
  v1::Model& model = *args.job->mutable_model();
  FaultList& faults = *args.faults;
  if (!model.has_heads() || !model.has_hidden_size()) return;
  if (!faults.Clean({"model.heads", "model.hidden_size", "model.head_dim", "model.kv_heads"}))
    return;
  if (!model.has_kv_heads()) model.set_kv_heads(model.heads());
  if (model.heads() % model.kv_heads() != 0) {
    faults.Add("model.kv_heads", fmt::format("heads {} is not a multiple of kv_heads {}",
                                             model.heads(), model.kv_heads()));
  } else if (model.kv_heads() != model.heads() && !args.context.parallelism) {
    faults.Add("model.kv_heads",
               fmt::format("{} is not supported yet; supported: as many as heads, {}",
                           model.kv_heads(), model.heads()));
  }
  if (!model.has_head_dim()) {
    if (model.hidden_size() % model.heads() != 0) {
      faults.Add("model.hidden_size",
                 fmt::format("{} is not a multiple of heads {}; nearest: {} (or give head_dim)",
                             model.hidden_size(), model.heads(),
                             NearestMultiples(model.hidden_size(), model.heads())));
      return;
    }
    model.set_head_dim(model.hidden_size() / model.heads());
  }
  if (model.heads() * model.head_dim() > kMaxAttentionWidth) {
    faults.Add("model.head_dim", fmt::format("heads {} x head_dim {} is more than {}",
                                             model.heads(), model.head_dim(), kMaxAttentionWidth));
  }
}

void CompletePositions(const CheckArgs& args) {
  v1::Model& model = *args.job->mutable_model();
  if (!model.has_seq_length() || !args.faults->Clean({"model.seq_length", "model.max_positions"}))
    return;
  if (!model.has_max_positions()) model.set_max_positions(model.seq_length());
  if (model.max_positions() < model.seq_length()) {
    args.faults->Add("model.max_positions", fmt::format("{} is less than seq_length {}",
                                                        model.max_positions(), model.seq_length()));
  }
}

void CheckDataSets(const CheckArgs& args) {
  const v1::Data& data = args.job->data();
  FaultList& faults = *args.faults;
  if (!faults.Clean({"data.path", "data.train", "data.valid", "data.test", "data.mock"})) return;
  const bool parts = data.train_size() + data.valid_size() + data.test_size() > 0;
  const int ways = (data.path_size() > 0 ? 1 : 0) + (parts ? 1 : 0) + (data.mock() ? 1 : 0);
  if (ways == 0) {
    faults.Add("data.path", "required: path (with split), or train, valid and test, or mock: true");
  } else if (ways > 1) {
    faults.Add("data", "give one of: path (with split); train, valid and test; mock: true");
  } else if (parts && data.train_size() == 0) {
    faults.Add("data.train", "required beside valid and test");
  }
  const bool evaluates = args.job->training().eval().every_iters() > 0;
  if (ways != 1 || !evaluates || data.mock()) return;
  if (parts && data.valid_size() == 0) {
    faults.Add("data.valid", fmt::format("required because training.eval.every_iters is {}",
                                         args.job->training().eval().every_iters()));
  }
  const auto shares = ParseSplit(data.split());
  if (!parts && faults.Clean({"data.split"}) && shares && shares->at(1) <= 0) {
    faults.Add(
        "data.split",
        fmt::format("\"{}\" leaves nothing to validate on, but training.eval.every_iters is {}",
                    data.split(), args.job->training().eval().every_iters()));
  }
}

// Which files the tokenizer's type is made of; none for bytes and ids.
void CheckTokenizerFiles(const Tokenizer& tokenizer, FaultList* faults) {
  const bool bpe = tokenizer.type() == Tokenizer::TYPE_GPT2_BPE;
  const bool one_file =
      tokenizer.type() == Tokenizer::TYPE_HF || tokenizer.type() == Tokenizer::TYPE_SENTENCEPIECE;
  const std::string name =
      tokenizer.has_type()
          ? EnumText(*Tokenizer::Type_descriptor()->FindValueByNumber(tokenizer.type()))
          : "";
  const auto check = [&](const char* field, bool given, bool wanted, const char* what) {
    const std::string path = fmt::format("data.tokenizer.{}", field);
    if (given == wanted) return;
    if (wanted) {
      faults->Add(path, fmt::format("required for {}: {} below the data root", name, what));
    } else if (!tokenizer.has_type()) {
      faults->Add("data.tokenizer.type", fmt::format("required beside {}", field));
    } else {
      faults->Add(path, fmt::format("{} is made of no such file; leave it out", name));
    }
  };
  check("file", tokenizer.has_file(), one_file,
        tokenizer.type() == Tokenizer::TYPE_HF ? "a tokenizer.json" : "a SentencePiece model");
  check("vocab", tokenizer.has_vocab(), bpe, "a vocab.json");
  check("merges", tokenizer.has_merges(), bpe, "a merges.txt");
}

}  // namespace

void FillFromPreset(const CheckArgs& args) {
  v1::Model& model = *args.job->mutable_model();
  if (!model.has_preset() || !args.faults->Clean({"model.preset"})) return;
  const v1::Data& data = args.job->data();
  const bool with_vocab = !HasByteTokenizer(data) && !VocabComesWithData(data);
  ApplyPreset(*FindPreset(model.preset()), with_vocab, &model);
}

void CompleteModel(const CheckArgs& args) {
  v1::Model& model = *args.job->mutable_model();
  CompleteVocab(args);
  CheckHeads(args);
  CompletePositions(args);
  if (model.has_hidden_size() && args.faults->Clean({"model.hidden_size", "model.ffn_size"})) {
    if (FfnSize(model) < 1) {
      args.faults->Add("model.ffn_size",
                       "required: hidden_size is too small for a gated layer of its own");
    } else {
      model.set_ffn_size(FfnSize(model));
    }
  }
  if (!model.has_qkv_bias()) model.set_qkv_bias(model.bias());
  CompleteVariants(args);
}

void CheckTokenizer(const CheckArgs& args) {
  if (args.faults->Clean({"data.tokenizer.type", "data.tokenizer.file", "data.tokenizer.vocab",
                          "data.tokenizer.merges"})) {
    CheckTokenizerFiles(args.job->data().tokenizer(), args.faults);
  }
}

void CheckData(const CheckArgs& args) {
  v1::JobSpec& job = *args.job;
  CheckDataSets(args);
  CheckTokenizer(args);
  if (!job.data().has_seed() && args.faults->Clean({"data.seed", "training.seed"})) {
    job.mutable_data()->set_seed(job.training().seed());
  }
}

}  // namespace mt::spec
