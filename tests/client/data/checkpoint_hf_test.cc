// `mtctl checkpoint export` and `import`: which tokenizer goes along, what is refused, the job
// file.
#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/base/files.h"
#include "common/spec/print.h"
#include "tests/client/fake_coordinator.h"
#include "tests/paths.h"
#include "tests/worker/checkpoint/saved_state.h"
#include "tests/worker/checkpoint/temp_dir.h"
#include "tests/worker/hf/hf_models.h"
#include "worker/checkpoint/inspect/saved_tokenizer.h"
#include "worker/data/tokenizer.h"
#include "worker/hf/tensors.h"

namespace mt::client {
namespace {

using nlohmann::json;
using testing::HasSubstr;

const std::string kTokenizer = MT_SOURCE_DIR "/tests/worker/data/tokenizer/golden/llama3.json";
constexpr int64_t kTokens = 1200;  // of that file; the last one ends documents

// A checkpoint of a small Llama of ones, whose run had this tokenizer.
class CheckpointHfTest : public testing::Test {
 protected:
  void SetUp() override {
    v1::JobSpec job = hf::JobOf(hf::kLlamaModel);
    job.mutable_model()->set_vocab_size(kTokens);
    job.mutable_data()->mutable_tokenizer()->set_type(v1::Data::Tokenizer::TYPE_HF);
    job.mutable_data()->mutable_tokenizer()->set_file("tokenizer.json");
    checkpoint::SavedState state;
    state.manifest.spec_json = spec::ToJson(job);
    checkpoint::PutTokenizer({.type = "hf", .digest = digest_}, &state.manifest);
    for (const auto& [name, shape] : hf::ParametersOf(job.model())) {
      int64_t count = 1;
      for (const int64_t size : shape) count *= size;
      state.tensors["weights/" + name] = {
          .dtype = kernels::DType::kF32,
          .shape = shape,
          .values = std::vector<double>(static_cast<size_t>(count), 1.0)};
    }
    folder_ = checkpoint::SaveState(directory_, state);
    ASSERT_TRUE(data::KeepTokenizer({.type = "hf", .file = kTokenizer}, digest_, directory_).ok());
  }
  Ran Export(std::vector<std::string> more = {}) const {
    std::vector<std::string> args = {"checkpoint", "export", folder_, out_};
    args.insert(args.end(), more.begin(), more.end());
    return Mtctl(nullptr, args);
  }
  bool Has(const std::string& name) const { return base::Exists(base::JoinPath(out_, name)); }
  json Json(const std::string& name) const {
    return json::parse(base::ReadFile(base::JoinPath(out_, name)).value());
  }

  const checkpoint::TempDir dir_;
  const std::string directory_ = dir_.File("ckpt");
  const std::string out_ = dir_.File("out");
  const std::string digest_ = (*data::MakeTokenizer({.type = "hf", .file = kTokenizer}))->digest();
  std::string folder_;
};

TEST_F(CheckpointHfTest, TheTokenizerBesideTheCheckpointGoesAlong) {
  const Ran ran = Export();
  ASSERT_EQ(ran.code, kExitOk) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("LlamaForCausalLM, float32"));
  EXPECT_EQ(*base::ReadFile(out_ + "/tokenizer.json"), *base::ReadFile(kTokenizer));
  EXPECT_EQ(Json("config.json")["vocab_size"], kTokens);
  EXPECT_EQ(Json("config.json")["eos_token_id"], kTokens - 1);
  EXPECT_TRUE(Has("model.safetensors"));
  // What is there is replaced on request alone; in shards the one file goes.
  const Ran again = Export();
  EXPECT_NE(again.code, kExitOk);
  EXPECT_THAT(again.err, HasSubstr("--overwrite"));
  ASSERT_EQ(Export({"--overwrite", "--max-shard-size", "100KB"}).code, kExitOk);
  EXPECT_FALSE(Has("model.safetensors"));
  EXPECT_GT(Json("model.safetensors.index.json")["weight_map"].size(), 2U);
}

TEST_F(CheckpointHfTest, WithoutATokenizerNothingIsSaidOfTheEnd) {
  ASSERT_EQ(Export().code, kExitOk);
  const Ran ran = Export({"--tokenizer", "null", "--overwrite", "--dtype", "bfloat16"});
  ASSERT_EQ(ran.code, kExitOk) << ran.err;
  EXPECT_FALSE(Has("tokenizer.json")) << "of the export before";
  EXPECT_FALSE(Has("tokenizer_config.json"));
  EXPECT_TRUE(Json("config.json")["eos_token_id"].is_null()) << "the last id is a token of another";
  EXPECT_EQ(Json("config.json")["dtype"], "bfloat16");
}

TEST_F(CheckpointHfTest, AnotherTokenizerIsRefused) {
  const std::string other = dir_.File("other.json");
  ASSERT_TRUE(base::WriteFileAtomic(other, *base::ReadFile(kTokenizer) + " ").ok());
  const Ran named = Export({"--tokenizer-file", other});
  EXPECT_NE(named.code, kExitOk);
  EXPECT_THAT(named.err, HasSubstr(digest_));
  EXPECT_FALSE(base::Exists(out_)) << "before anything is written";
  // Not beside it: flags name the file.
  std::filesystem::remove_all(base::JoinPath(directory_, data::KeptTokenizerName(digest_)));
  const Ran missing = Export();
  EXPECT_NE(missing.code, kExitOk);
  EXPECT_THAT(missing.err, HasSubstr("--tokenizer-file"));
  EXPECT_EQ(Export({"--tokenizer-file", kTokenizer}).code, kExitOk);
}

TEST_F(CheckpointHfTest, AnImportWritesAJobThatFits) {
  const std::string golden = MT_SOURCE_DIR "/tests/golden/hf/llama3";
  const std::string file = dir_.File("job.yaml");
  const Ran looked = Mtctl(nullptr, {"checkpoint", "import", golden});
  ASSERT_EQ(looked.code, kExitOk) << looked.err;
  EXPECT_THAT(looked.out, HasSubstr("LlamaForCausalLM"));
  const Ran ran = Mtctl(nullptr, {"checkpoint", "import", golden, "--job-file", file});
  ASSERT_EQ(ran.code, kExitOk) << ran.err;
  v1::JobSpec job;
  const spec::Faults faults = spec::LoadJobFile(file, {}, {}, &job);
  EXPECT_TRUE(faults.empty()) << spec::FormatFaults(faults);
  EXPECT_EQ(job.checkpoint().load(), "llama3");
  EXPECT_EQ(job.checkpoint().load_kind(), v1::Checkpoint::LOAD_KIND_HF);
  EXPECT_EQ(job.model().kv_heads(), 2);
  const Ran again = Mtctl(nullptr, {"checkpoint", "import", golden, "--job-file", file});
  EXPECT_NE(again.code, kExitOk);
  EXPECT_THAT(again.err, HasSubstr("--overwrite"));
  // Of the job file alone.
  EXPECT_EQ(Mtctl(nullptr, {"checkpoint", "import", golden, "--load", "x"}).code, kExitUsage);
}

}  // namespace
}  // namespace mt::client
