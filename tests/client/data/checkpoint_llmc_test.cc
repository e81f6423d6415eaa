// `mtctl checkpoint export --format llmc` and the import of such a file: the name, what is said,
// what is refused, the job file.
#include <filesystem>
#include <string>
#include <sys/stat.h>
#include <utility>
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
#include "worker/hf/tensors.h"

namespace mt::client {
namespace {

using nlohmann::json;
using testing::HasSubstr;

const std::string kLlmcGolden = MT_SOURCE_DIR "/tests/golden/llmc/";

class CheckpointLlmcTest : public testing::Test {
 protected:
  // A checkpoint of ones of a small job with this model.
  std::string Save(const std::string& model,
                   v1::Training::Precision precision = v1::Training::PRECISION_FP32,
                   int64_t vocab = 96) {
    v1::JobSpec job = hf::JobOf(model);
    job.mutable_model()->set_vocab_size(vocab);
    job.mutable_training()->set_precision(precision);
    checkpoint::SavedState state;
    state.manifest.spec_json = spec::ToJson(job);
    for (const auto& [name, shape] : hf::ParametersOf(job.model())) {
      int64_t count = 1;
      for (const int64_t size : shape) count *= size;
      state.tensors["weights/" + name] = {
          .dtype = kernels::DType::kF32,
          .shape = shape,
          .values = std::vector<double>(static_cast<size_t>(count), 1.0)};
    }
    return checkpoint::SaveState(dir_.File("ckpt-" + std::to_string(saved_++)), state);
  }
  static Ran Export(const std::string& from, const std::string& to,
                    std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"checkpoint", "export", from, to, "--format", "llmc"});
    return Mtctl(nullptr, more);
  }

  const checkpoint::TempDir dir_;
  int saved_ = 0;
};

TEST_F(CheckpointLlmcTest, OneFileOfEitherVersion) {
  const std::string from = Save("position: learned");
  const std::string file = dir_.File("model.bin");
  const Ran ran = Export(from, file);
  ASSERT_EQ(ran.code, kExitOk) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("llm.c version 3, float32, vocabulary 96 padded to 128"));
  EXPECT_THAT(ran.out, testing::Not(HasSubstr("note:")));
  const Ran again = Export(from, file);
  EXPECT_NE(again.code, kExitOk);
  EXPECT_THAT(again.err, HasSubstr("--overwrite"));
  const Ran bf16 = Mtctl(nullptr, {"-o", "json", "checkpoint", "export", from, dir_.path(),
                                   "--format", "llmc", "--dtype", "bfloat16"});
  ASSERT_EQ(bf16.code, kExitOk) << bf16.err;
  const json said = json::parse(bf16.out);
  EXPECT_EQ(said["architecture"], "llm.c version 5");
  EXPECT_EQ(said["dtype"], "bfloat16");
  ASSERT_EQ(said["files"].size(), 1U);
  const std::string named = said["files"][0];
  EXPECT_THAT(named, testing::MatchesRegex("model_[0-9]{8}\\.bin"));
  EXPECT_EQ(base::FileSize(dir_.File(named)).value(), said["bytes"].get<int64_t>());
}

TEST_F(CheckpointLlmcTest, WhatBecomesOfItIsNoted) {
  const Ran whole =
      Export(Save("position: learned", v1::Training::PRECISION_FP32, 128), dir_.File("whole.bin"));
  ASSERT_EQ(whole.code, kExitOk) << whole.err;
  EXPECT_THAT(whole.out, HasSubstr("vocabulary 128 padded to 128"));
  EXPECT_THAT(whole.out, HasSubstr("note: llm.c's dev/eval/export_hf.py"));
  const std::string wide = Save("position: learned", v1::Training::PRECISION_FP64);
  const Ran rounded = Export(wide, dir_.File("rounded.bin"));
  ASSERT_EQ(rounded.code, kExitOk) << rounded.err;
  EXPECT_THAT(rounded.out, HasSubstr("note: the job trains in float64"));
  EXPECT_THAT(rounded.out, testing::Not(HasSubstr("export_hf.py")));
  const Ran asked = Export(wide, dir_.File("asked.bin"), {"--dtype", "bfloat16"});
  ASSERT_EQ(asked.code, kExitOk) << asked.err;
  EXPECT_THAT(asked.out, testing::Not(HasSubstr("note:")));
}

TEST_F(CheckpointLlmcTest, ABareNameIsInThisFolder) {
  const std::string from = Save("position: learned");
  const std::string here = std::filesystem::current_path().string();
  std::filesystem::current_path(dir_.path());
  const Ran ran =
      Mtctl(nullptr, {"-o", "json", "checkpoint", "export", from, "bare.bin", "--format", "llmc"});
  std::filesystem::current_path(here);
  ASSERT_EQ(ran.code, kExitOk) << ran.err;
  const json said = json::parse(ran.out);
  EXPECT_EQ(said["folder"], ".");
  EXPECT_EQ(said["files"], json::array({"bare.bin"}));
  EXPECT_TRUE(base::Exists(dir_.File("bare.bin")));
}

TEST_F(CheckpointLlmcTest, WhatIsNoneOfLlmCIsRefused) {
  const std::string from = Save(hf::kLlamaModel);
  const Ran llama = Export(from, dir_.File("model.bin"));
  EXPECT_NE(llama.code, kExitOk);
  EXPECT_THAT(llama.err, HasSubstr("model.norm: rmsnorm"));
  EXPECT_THAT(llama.err, HasSubstr("model.tie_embeddings"));
  EXPECT_THAT(llama.err, HasSubstr("model.position: rope"));
  EXPECT_THAT(llama.err, HasSubstr("--format hf writes it"));
  EXPECT_FALSE(base::Exists(dir_.File("model.bin")));
  for (const std::vector<std::string>& flags :
       {std::vector<std::string>{"--max-shard-size", "1GB"}, {"--tokenizer", "null"}}) {
    const Ran ran = Export(from, dir_.File("model.bin"), flags);
    EXPECT_EQ(ran.code, kExitUsage) << flags[0];
    EXPECT_THAT(ran.err, HasSubstr("--format hf"));
  }
}

TEST_F(CheckpointLlmcTest, AnImportWritesAJobThatFits) {
  const std::string file = dir_.File("job.yaml");
  const Ran looked = Mtctl(nullptr, {"checkpoint", "import", kLlmcGolden + "small_f32.bin"});
  ASSERT_EQ(looked.code, kExitOk) << looked.err;
  EXPECT_THAT(looked.out, HasSubstr("llm.c version 3"));
  EXPECT_THAT(looked.out, HasSubstr("the 28 rows from 100 on"));
  const Ran ran = Mtctl(nullptr, {"checkpoint", "import", kLlmcGolden + "small_bf16.bin",
                                  "--job-file", file, "--load", "models/a.bin"});
  ASSERT_EQ(ran.code, kExitOk) << ran.err;
  v1::JobSpec job;
  const spec::Faults faults = spec::LoadJobFile(file, {}, {}, &job);
  EXPECT_TRUE(faults.empty()) << spec::FormatFaults(faults);
  EXPECT_EQ(job.name(), "small-bf16");
  EXPECT_EQ(job.checkpoint().load(), "models/a.bin");
  EXPECT_EQ(job.checkpoint().load_kind(), v1::Checkpoint::LOAD_KIND_LLMC);
  EXPECT_EQ(job.training().precision(), v1::Training::PRECISION_BF16);
  EXPECT_EQ(job.model().vocab_size(), 100);
  EXPECT_EQ(job.model().max_positions(), 20);
  // Its own name is where it lies, unless another is given.
  const Ran plain = Mtctl(nullptr, {"checkpoint", "import", kLlmcGolden + "small_bf16.bin",
                                    "--job-file", file, "--overwrite"});
  ASSERT_EQ(plain.code, kExitOk) << plain.err;
  v1::JobSpec own;
  EXPECT_TRUE(spec::LoadJobFile(file, {}, {}, &own).empty());
  EXPECT_EQ(own.checkpoint().load(), "small_bf16.bin");
  EXPECT_EQ(own.name(), "small-bf16");
}

TEST_F(CheckpointLlmcTest, WhatIsNoModelFileIsNotImported) {
  const Ran foreign = Mtctl(nullptr, {"checkpoint", "import", kLlmcGolden + "expected.json"});
  EXPECT_NE(foreign.code, kExitOk);
  EXPECT_THAT(foreign.err, HasSubstr("no model file of llm.c"));
  const Ran missing = Mtctl(nullptr, {"checkpoint", "import", dir_.File("missing.bin")});
  EXPECT_NE(missing.code, kExitOk);
  EXPECT_THAT(missing.err, HasSubstr("missing.bin: No such file"));
  ASSERT_EQ(::mkfifo(dir_.File("pipe").c_str(), 0600), 0);
  const Ran pipe = Mtctl(nullptr, {"checkpoint", "import", dir_.File("pipe")});
  EXPECT_NE(pipe.code, kExitOk);
  EXPECT_THAT(pipe.err, HasSubstr("no regular file"));
  const std::string folder = MT_SOURCE_DIR "/tests/golden/hf/gpt2";
  for (const std::string name : {"config.json", "model.safetensors"}) {
    const Ran part = Mtctl(nullptr, {"checkpoint", "import", base::JoinPath(folder, name)});
    EXPECT_NE(part.code, kExitOk);
    EXPECT_THAT(part.err, HasSubstr("name the folder, " + folder));
  }
}

}  // namespace
}  // namespace mt::client
