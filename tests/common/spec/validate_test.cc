// Defaults, derived values, and each refusal with the numbers that it names.
#include "common/spec/validate.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "common/spec/derived.h"
#include "common/spec/print.h"
#include "tests/common/spec/job_text.h"

namespace mt::spec {
namespace {

namespace v1 = megatrain::v1;

TEST(Complete, FillsDefaultsAndDerivedValues) {
  const Loaded loaded = Load();
  ASSERT_EQ(FormatFaults(loaded.faults), "");
  const v1::JobSpec& job = loaded.job;
  EXPECT_EQ(job.namespace_(), "default");
  EXPECT_EQ(job.kind(), v1::JobSpec::KIND_TRAIN);
  EXPECT_EQ(job.model().kv_heads(), 4);
  EXPECT_EQ(job.model().head_dim(), 16);
  EXPECT_EQ(job.model().ffn_size(), 256);
  EXPECT_EQ(job.model().vocab_size(), 257);
  EXPECT_EQ(job.model().max_positions(), 32);
  EXPECT_DOUBLE_EQ(job.model().norm_eps(), 1e-5);
  EXPECT_TRUE(job.model().bias());
  EXPECT_TRUE(job.model().qkv_bias());
  EXPECT_TRUE(job.model().tie_embeddings());
  EXPECT_EQ(job.data().split(), "969,30,1");
  EXPECT_EQ(job.data().split_by(), v1::Data::SPLIT_BY_DOCUMENTS);
  EXPECT_EQ(job.data().seed(), 1234);
  EXPECT_EQ(job.parallel().tensor(), 1);
  EXPECT_EQ(job.parallel().zero_stage(), 0);
  EXPECT_EQ(job.placement().slots(), 2);
  EXPECT_FALSE(job.placement().has_device());
  EXPECT_FALSE(job.placement().has_threads_per_rank());
  EXPECT_FALSE(job.training().has_precision());
  EXPECT_EQ(job.training().log_every(), 1);
  EXPECT_EQ(job.training().nonfinite(), v1::Training::NONFINITE_STOP);
  EXPECT_EQ(job.optimizer().decay(), v1::Optimizer::DECAY_COSINE);
  EXPECT_DOUBLE_EQ(job.optimizer().clip_grad(), 1.0);
  EXPECT_EQ(job.checkpoint().directory(), "demo");
  EXPECT_EQ(job.checkpoint().keep_last(), 3);
  EXPECT_TRUE(job.checkpoint().at_end());
  EXPECT_EQ(job.resilience().timeouts().comm_init(), 600'000);
  EXPECT_EQ(job.resilience().timeouts().collective(), 600'000);
  EXPECT_FALSE(job.resilience().timeouts().has_checkpoint()) << "auto";
  EXPECT_EQ(job.resilience().timeouts().load(), 900'000);
}

TEST(Complete, TheDirectoryOfAServicesJobHasItsNamespace) {
  constexpr ValidateContext kService{.of_service = true};
  v1::JobSpec job = Load().job;
  job.mutable_checkpoint()->clear_directory();
  EXPECT_EQ(FormatFaults(CompleteJob(kService, &job)), "");
  EXPECT_EQ(job.checkpoint().directory(), "default/demo");
  EXPECT_EQ(FormatFaults(CompleteJob({}, &job)), "");
  EXPECT_EQ(job.checkpoint().directory(), "default/demo") << "a rank keeps it";
  job.mutable_checkpoint()->clear_directory();
  job.set_namespace_("team-a");
  job.mutable_checkpoint()->set_second("team-a");
  EXPECT_EQ(FormatFaults(CompleteJob(kService, &job)),
            "checkpoint.second: is checkpoint.directory 'team-a/demo', or one of them lies in the "
            "other");
}

TEST(Complete, IsIdempotent) {
  Loaded loaded =
      Load({"model={preset: gpt2-124m}", "training.train_iters=", "training.train_tokens=10M"});
  ASSERT_EQ(FormatFaults(loaded.faults), "");
  const std::string once = ToJson(loaded.job);
  EXPECT_EQ(FormatFaults(CompleteJob({}, &loaded.job)), "");
  EXPECT_EQ(ToJson(loaded.job), once);
}

TEST(Complete, SlotsAndData) {
  EXPECT_EQ(Load({"parallel.data=auto"}).job.parallel().data(), 1);
  const Loaded slots = Load({"parallel.data=auto", "placement.slots=4"});
  EXPECT_EQ(FormatFaults(slots.faults), "");
  EXPECT_EQ(slots.job.parallel().data(), 4);
  EXPECT_EQ(
      Load({"parallel.data=16", "training.global_batch_size=auto"}).job.training().log_every(), 10);
  EXPECT_EQ(Load({"parallel.data=16", "training.global_batch_size=auto"})
                .job.training()
                .global_batch_size(),
            64);
  EXPECT_EQ(FaultsOf({"placement.slots=3"}),
            "placement.slots: is 3, but tensor 1 x pipeline 1 x context 1 x data 2 = 2; leave "
            "slots or data to auto");
  EXPECT_EQ(
      FaultsOf({"placement.slots=7", "parallel={tensor: 2, pipeline: 2}", "model.ffn_size=256"}),
      "placement.slots: 7 is not a multiple of tensor 2 x pipeline 2 x context 1 = 4; nearest: 4 "
      "or 8");
  EXPECT_EQ(FaultsOf({"parallel={tensor: 65536, pipeline: 65536, data: 65536}"}),
            "parallel: the product of its sizes is more than 1048576 slots");
}

TEST(Complete, BatchArithmetic) {
  EXPECT_EQ(FaultsOf({"training.global_batch_size=30"}),
            "training.global_batch_size: 30 is not micro_batch_size 4 x parallel.data 2 = 8 times "
            "a whole number of "
            "microbatches; nearest: 24 or 32");
  EXPECT_EQ(FaultsOf({"training.global_batch_size=5"}),
            "training.global_batch_size: 5 is not micro_batch_size 4 x parallel.data 2 = 8 times a "
            "whole number of "
            "microbatches; nearest: 8");
}

TEST(Complete, LengthGivenOnce) {
  EXPECT_EQ(FaultsOf({"training.train_tokens=1M"}),
            "training.train_tokens: the length is given more than once: train_iters, train_tokens; "
            "keep one");
  EXPECT_EQ(FaultsOf({"training.train_iters="}),
            "training.train_iters: required: one of train_iters, train_samples, train_tokens");
  EXPECT_EQ(FaultsOf({"training.train_iters=", "training.train_samples=15", "optimizer.warmup=0"}),
            "training.train_samples: 15 is less than one step of global_batch_size 16");
  EXPECT_EQ(FaultsOf({"training.train_iters=", "training.train_tokens=511", "optimizer.warmup=0"}),
            "training.train_tokens: 511 is less than one step of global_batch_size 16 x seq_length "
            "32 = 512 tokens");
  EXPECT_EQ(FaultsOf({"training.train_iters=", "training.train_tokens=512", "optimizer.warmup=0"}),
            "");
}

TEST(Complete, RequiredFieldsAllAtOnce) {
  v1::JobSpec job;
  const std::string faults = FormatFaults(LoadJob("", {}, {}, &job));
  for (const char* path :
       {"name: required", "model.layers: required", "model.hidden_size: required",
        "model.heads: required", "model.seq_length: required", "data.path: required",
        "training.micro_batch_size: required", "training.train_iters: required",
        "optimizer.lr: required"}) {
    EXPECT_NE(faults.find(path), std::string::npos) << path << " in\n" << faults;
  }
}

TEST(Complete, OneMistakeIsReportedOnce) {
  EXPECT_EQ(FaultsOf({"model.hidden_size=wide"}),
            "model.hidden_size: expected a whole number, got \"wide\"");
  EXPECT_EQ(FaultsOf({"training.micro_batch_size=0"}),
            "training.micro_batch_size: must be at least 1, is 0");
  EXPECT_EQ(FaultsOf({"model=3"}), "model: expected a section: fields with values");
  EXPECT_EQ(FaultsOf({"data.path=[[]]"}), "data.path: expected a list of single values");
}

TEST(Complete, Ranges) {
  EXPECT_EQ(FaultsOf({"model.hidden_dropout=1"}), "model.hidden_dropout: must be below 1, is 1");
  EXPECT_EQ(FaultsOf({"model.attention_dropout=-0.1"}),
            "model.attention_dropout: must be at least 0, is -0.1");
  EXPECT_EQ(FaultsOf({"optimizer.eps=0"}), "optimizer.eps: must be above 0, is 0");
  EXPECT_EQ(FaultsOf({"checkpoint.keep_last=1"}), "checkpoint.keep_last: must be at least 2, is 1");
  EXPECT_EQ(FaultsOf({"resilience.timeouts.load=500ms"}),
            "resilience.timeouts.load: must be at least 1s, is 500ms");
  EXPECT_EQ(FaultsOf({"priority=1001"}), "priority: must be at most 1000, is 1001");
  // Gloo listens on ports that the kernel chooses; a port range needs another transport.
  EXPECT_EQ(FaultsOf({"placement.ports=29500-29600"}),
            "placement.ports: 29500-29600 is not supported yet; supported: ephemeral");
}

TEST(Complete, PathsStayBelowTheirRoots) {
  EXPECT_EQ(FaultsOf({"data.path=[/etc/passwd]"}),
            "data.path: \"/etc/passwd\" is absolute; give a path below the worker's root");
  EXPECT_EQ(FaultsOf({"checkpoint.directory=../x"}),
            "checkpoint.directory: \"../x\" has \"..\"; give a path below the worker's root");
  EXPECT_EQ(FaultsOf({"checkpoint.load=a/../b"}),
            "checkpoint.load: \"a/../b\" has \"..\"; give a path below the worker's root");
}

TEST(Complete, ModelSizes) {
  EXPECT_EQ(
      FaultsOf({"model.heads=3"}),
      "model.hidden_size: 64 is not a multiple of heads 3; nearest: 63 or 66 (or give head_dim)");
  EXPECT_EQ(FaultsOf({"model.heads=3", "model.head_dim=20"}), "");
  EXPECT_EQ(FaultsOf({"model.max_positions=16"}),
            "model.max_positions: 16 is less than seq_length 32");
  EXPECT_EQ(FaultsOf({"model.kv_heads=2"}, {.parallelism = false}),
            "model.kv_heads: 2 is not supported yet; supported: as many as heads, 4");
  EXPECT_EQ(FaultsOf({"model.kv_heads=2"}), "");
  EXPECT_EQ(FaultsOf({"model.kv_heads=3"}),
            "model.kv_heads: heads 4 is not a multiple of kv_heads 3");
  EXPECT_EQ(FaultsOf({"model.vocab_size=256"}),
            "model.vocab_size: the byte tokenizer has 257 tokens, so at least 257; is 256");
  EXPECT_EQ(FaultsOf({"data.tokenizer.type=\"null\""}),
            "model.vocab_size: required: neither ids nor mock data have a vocabulary of their own");
  EXPECT_EQ(FaultsOf({"data.tokenizer.type=\"null\"", "model.vocab_size=1000"}), "");
}

TEST(Complete, TokenizersAndTheirFiles) {
  EXPECT_EQ(FaultsOf({"data.tokenizer.type=hf", "data.tokenizer.file=t/tokenizer.json"}), "");
  EXPECT_EQ(FaultsOf({"data.tokenizer={type: gpt2_bpe, vocab: v.json, merges: m.txt}"}), "");
  EXPECT_EQ(FaultsOf({"data.tokenizer={type: ids}", "model.vocab_size=1000"}), "");
  EXPECT_EQ(FaultsOf({"data.tokenizer="}), "");  // the data's record tells
  EXPECT_EQ(FaultsOf({"data.tokenizer={type: hf, vocab: v.json}"}),
            "data.tokenizer.file: required for hf: a tokenizer.json below the data root\n"
            "data.tokenizer.vocab: hf is made of no such file; leave it out");
  EXPECT_EQ(FaultsOf({"data.tokenizer={type: gpt2_bpe, merges: m.txt}"}),
            "data.tokenizer.vocab: required for gpt2_bpe: a vocab.json below the data root");
  EXPECT_EQ(FaultsOf({"data.tokenizer.file=t.json"}),
            "data.tokenizer.file: byte is made of no such file; leave it out");
  EXPECT_EQ(FaultsOf({"data.tokenizer={file: t.json}"}),
            "data.tokenizer.type: required beside file");
  EXPECT_EQ(
      FaultsOf({"data.tokenizer={type: sentencepiece, file: /etc/t.model}"}),
      "data.tokenizer.file: \"/etc/t.model\" is absolute; give a path below the worker's root");
}

TEST(Complete, AVocabularyIsLeftToTheTokenizerOfTheData) {
  const Loaded files =
      Load({"model={preset: gpt2-124m}", "data.tokenizer={type: hf, file: t.json}"});
  ASSERT_EQ(FormatFaults(files.faults), "");
  EXPECT_FALSE(files.job.model().has_vocab_size());
  EXPECT_EQ(KnownVocab(files.job.model()), 50257);  // the preset's, as an estimate
  const Loaded ids = Load({"model={preset: gpt2-124m}", "data.tokenizer={type: ids}"});
  EXPECT_EQ(ids.job.model().vocab_size(), 50257);
}

TEST(Complete, PresetsGiveWayToGivenFields) {
  const Loaded byte = Load({"model={preset: gpt2-124m, layers: 3}"});
  ASSERT_EQ(FormatFaults(byte.faults), "");
  EXPECT_EQ(byte.job.model().layers(), 3);
  EXPECT_EQ(byte.job.model().hidden_size(), 768);
  EXPECT_EQ(byte.job.model().seq_length(), 1024);
  EXPECT_EQ(byte.job.model().vocab_size(), 257);  // from the tokenizer
  const Loaded mock = Load({"model={preset: gpt2-124m}", "data={mock: true}"});
  ASSERT_EQ(FormatFaults(mock.faults), "");
  EXPECT_EQ(mock.job.model().vocab_size(), 50257);
  const Loaded llama =
      Load({"model={preset: tinyllama-1.1b, norm: layernorm}", "data={mock: true}"});
  ASSERT_EQ(FormatFaults(llama.faults), "");
  EXPECT_EQ(llama.job.model().kv_heads(), 4);
  EXPECT_EQ(llama.job.model().norm(), v1::Model::NORM_LAYERNORM);
  EXPECT_EQ(llama.job.model().rope().base(), 10000);
  EXPECT_FALSE(llama.job.model().qkv_bias());
  EXPECT_EQ(FaultsOf({"model={preset: llama3-8b, position: alibi}", "data={mock: true}"}), "");
}

TEST(Complete, DataSets) {
  EXPECT_EQ(FaultsOf({"data.mock=true"}),
            "data: give one of: path (with split); train, valid and test; mock: true");
  EXPECT_EQ(FaultsOf({"data.train=[a]"}),
            "data: give one of: path (with split); train, valid and test; mock: true");
  EXPECT_EQ(FaultsOf({"data.path=", "data.valid=[a]"}),
            "data.train: required beside valid and test");
  EXPECT_EQ(FaultsOf({"data.path=[a, b]"}), "");
  EXPECT_EQ(FaultsOf({"data.path=[0.5, a, 2, b]"}), "");
  EXPECT_EQ(FaultsOf({"data.path=[0, a, 1, b]"}), "data.path: a weight must be above 0, is 0");
  EXPECT_EQ(FaultsOf({"data.path={file: lists/mix.txt}"}), "");
  EXPECT_EQ(FaultsOf({"data.path={file: /etc/passwd}"}),
            "data.path: \"/etc/passwd\" is absolute; give a path below the worker's root");
  EXPECT_EQ(FaultsOf({"data.path={files: a}"}), "data.path: expected a list");
  EXPECT_EQ(FaultsOf({"data.path=[0.5, a]"}), "");
  EXPECT_EQ(FaultsOf({"data.path=", "data.train=[a]", "training.eval.every_iters=10"}),
            "data.valid: required because training.eval.every_iters is 10");
  EXPECT_EQ(FaultsOf({"data.split=\"1\"", "training.eval.every_iters=10"}),
            "data.split: \"1\" leaves nothing to validate on, but training.eval.every_iters is 10");
  EXPECT_EQ(FaultsOf({"data.split=\"0,1,1\""}),
            "data.split: expected up to three weights such as 969,30,1, got \"0,1,1\"");
  EXPECT_EQ(FaultsOf({"data.split_by=tokens"}), "");
  EXPECT_EQ(FaultsOf({"data.split_by=7"}),
            "data.split_by: expected one of documents, tokens, got \"7\"");
}

TEST(Complete, WhatIsNotBuiltIsRefusedUnlessItMeansWhatIs) {
  EXPECT_EQ(FaultsOf({"parallel.tensor=1", "parallel.zero_stage=0", "model.bias=true",
                      "model.qkv_bias=true", "training.recompute.mode=none",
                      "training.deterministic=true", "priority=0", "model.rope.base=10000",
                      "resilience.max_restarts.user=0", "model.moe={}",
                      "parallel.sequence_parallel=false", "resilience.on_agent_exit=stop",
                      "data.reset_attention=false"}),
            "");
  EXPECT_EQ(FaultsOf({"data.reset_positions=true", "data.reset_attention=true"}),
            "data.reset_attention: true is not supported yet; supported: false");
  EXPECT_EQ(FaultsOf({"parallel.context=2"}),
            "parallel.context: 2 is not supported yet; supported: 1");
  EXPECT_EQ(FaultsOf({"parallel.zero_stage=2"}),
            "parallel.zero_stage: 2 is not supported yet; supported: 0, 1");
  EXPECT_EQ(FaultsOf({"parallel.overlap.tensor=true"}),
            "parallel.overlap.tensor: not supported yet");
  EXPECT_EQ(FaultsOf({"model.moe.experts=8"}), "model.moe.experts: not supported yet");
  EXPECT_EQ(FaultsOf({"training.precision=fp8"}),
            "training.precision: fp8 is not supported yet; supported: fp64, fp32, bf16, fp16");
  EXPECT_EQ(FaultsOf({"kind=preflight"}),
            "kind: preflight is not supported yet; supported: train, bench, generate, eval");
  EXPECT_EQ(FaultsOf({"placement.device=gpu"}, {.cuda = false}),
            "placement.device: gpu is not supported yet; supported: cpu");
  EXPECT_EQ(FaultsOf({"parallel.overlap.tensor=true"}),
            "parallel.overlap.tensor: not supported yet");
  EXPECT_EQ(FaultsOf({"resilience.max_restarts.hang=2"}), "");
  EXPECT_EQ(FaultsOf({"resilience.max_restarts.storage=-1"}),
            "resilience.max_restarts.storage: must be at least 0, is -1");
  EXPECT_EQ(FaultsOf({"resilience.orphan_grace=1h"}), "resilience.orphan_grace: not supported yet");
}

TEST(Complete, WithoutParallelismItsFieldsAreRefused) {
  const ValidateContext bare{.parallelism = false};
  EXPECT_EQ(FaultsOf({"parallel.tensor=2", "model.position=rope", "model.bias=false",
                      "training.precision=bf16", "optimizer.decay=wsd",
                      "training.batch_ramp=\"0:256 100M:512\""},
                     bare),
            "model.position: rope is not supported yet; supported: learned\n"
            "model.bias: false is not supported yet; supported: true\n"
            "parallel.tensor: 2 is not supported yet; supported: 1\n"
            "training.batch_ramp: not supported yet\n"
            "training.precision: bf16 is not supported yet; supported: fp64, fp32\n"
            "optimizer.decay: wsd is not supported yet; supported: constant, linear, cosine");
}

TEST(Complete, WhatTheServiceBrings) {
  EXPECT_EQ(FaultsOf({"priority=7", "training.exit_after=90m", "training.exit_at_iter=50",
                      "placement.node_selector={zone: b}", "placement.exclusive=true",
                      "resilience.on_agent_exit=continue", "resilience.deadline=2h"}),
            "");
  EXPECT_EQ(FaultsOf({"resilience.deadline=500ms"}),
            "resilience.deadline: must be at least 1s, is 500ms");
  EXPECT_EQ(FaultsOf({"resilience.deadline=400d"}),
            "resilience.deadline: must be at most 366d, is 400d");
  const ValidateContext bare{.service = false};
  EXPECT_EQ(FaultsOf({"priority=7"}, bare), "priority: 7 is not supported yet; supported: 0");
  EXPECT_EQ(FaultsOf({"resilience.deadline=2h"}, bare), "resilience.deadline: not supported yet");
  EXPECT_EQ(FaultsOf({"placement.node_selector={a: b}"}, bare),
            "placement.node_selector: not supported yet");
}

TEST(Complete, Checkpoints) {
  EXPECT_EQ(
      FaultsOf({"checkpoint={directory: none, every_iters: 5}"}),
      "checkpoint.directory: is none, but every_iters or every asks for saves; give a directory");
  EXPECT_EQ(FaultsOf({"checkpoint={fresh: true, load: other/step-00000010-e0001}"}),
            "checkpoint.fresh: starts over, but checkpoint.load names what to load; keep one");
  EXPECT_EQ(FaultsOf({"checkpoint={fresh: true, load_tag: best}"}),
            "checkpoint.fresh: starts over, but checkpoint.load_tag names what to load; keep one");
  EXPECT_EQ(
      FaultsOf({"checkpoint.load_kind=weights"}),
      "checkpoint.load_kind: weights are of another run's checkpoint; name it by checkpoint.load "
      "or load_tag");
  EXPECT_EQ(FaultsOf({"checkpoint={load_kind: weights, load_tag: best}"}), "");
  for (const char* const said : {"checkpoint={load_kind: llmc}",
                                 "checkpoint={load_kind: llmc, load: a.bin, load_tag: best}"}) {
    EXPECT_EQ(
        FaultsOf({said}),
        "checkpoint.load_kind: llmc reads a model file of llm.c (model_00001000.bin): name it, "
        "below checkpoint_root, by checkpoint.load alone");
  }
  EXPECT_EQ(FaultsOf({"checkpoint={load_kind: llmc, load: llmc/model_00001000.bin}"}), "");
  EXPECT_EQ(
      FaultsOf({"checkpoint={directory: none, load_tag: best}"}),
      "checkpoint.load_tag: is looked for in checkpoint.directory, which is none; name one by "
      "checkpoint.load");
  EXPECT_EQ(
      FaultsOf({"checkpoint.keep_last=2", "checkpoint.every=15m", "checkpoint.every_iters=10"}),
      "");
}

TEST(Complete, TheSecondDirectoryIsAnotherOne) {
  EXPECT_EQ(FaultsOf({"checkpoint={directory: runs/a, second: copies/a}"}), "");
  EXPECT_EQ(FaultsOf({"checkpoint={directory: runs/a, second: runs/ab}"}), "");
  EXPECT_EQ(FaultsOf({"checkpoint={directory: none, second: copies}"}),
            "checkpoint.second: means nothing without a directory");
  for (const char* const second : {"runs/a", "runs", "runs/a/copies"}) {
    EXPECT_EQ(FaultsOf({fmt::format("checkpoint={{directory: runs/a, second: {}}}", second)}),
              "checkpoint.second: is checkpoint.directory 'runs/a', or one of them lies in the "
              "other");
  }
}

TEST(Complete, AnEvaluationWritesAFewTexts) {
  const auto prompts = [](size_t number) {
    const std::vector<std::string> all(number, "a");
    return fmt::format("training.eval.prompts=[{}]", fmt::join(all, ", "));
  };
  EXPECT_EQ(FaultsOf({"training.eval.every_iters=10", prompts(64)}), "");
  EXPECT_EQ(FaultsOf({"training.eval.every_iters=10", prompts(65)}),
            "training.eval.prompts: 65 texts, and an evaluation goes on from at most 64: leave "
            "some out, or have mtctl generate read a checkpoint");
}

TEST(Complete, WhatIsAskedForHasThePositionsOfTheModel) {
  EXPECT_EQ(FaultsOf({"training.eval.decode_tokens=32"}), "");
  EXPECT_EQ(FaultsOf({"training.eval.decode_tokens=33"}),
            "training.eval.decode_tokens: 33 tokens, and the model has 32 positions "
            "(model.max_positions): give at most these");
  EXPECT_EQ(FaultsOf({"training.eval.decode_tokens=33", "model.max_positions=64"}), "");
}

TEST(Complete, TheBestIsChosenByTheSameSamples) {
  using Eval = v1::Training::Eval;
  const auto windows = [](const std::vector<std::string>& overrides) {
    const Loaded loaded = Load(overrides);
    EXPECT_EQ(FormatFaults(loaded.faults), "");
    return loaded.job.training().eval().windows();
  };
  const auto best = [&](const std::string& more) {
    return windows({"training.train_iters=1000", "checkpoint.keep_best=1",
                    "checkpoint.every_iters=100", "training.eval.every_iters=100", more});
  };
  EXPECT_EQ(windows({}), Eval::WINDOWS_ROLLING) << "as Megatron";
  EXPECT_EQ(windows({"training.eval.windows=fixed"}), Eval::WINDOWS_FIXED);
  EXPECT_EQ(best("training.eval.windows=auto"), Eval::WINDOWS_FIXED);
  EXPECT_EQ(best("training.eval.windows=rolling"), Eval::WINDOWS_ROLLING);
  v1::JobSpec before;  // the field is not set
  EXPECT_FALSE(HasFixedWindows(before));
  before.mutable_checkpoint()->set_keep_best(1);
  EXPECT_TRUE(HasFixedWindows(before));
}

TEST(Complete, TheBestCheckpointIsChosenAmongStepsThatAreSavedAndEvaluated) {
  const auto faults = [](const std::string& saves, const std::string& evaluations) {
    return FaultsOf({"training.train_iters=1000", "checkpoint.keep_best=2",
                     "checkpoint.every_iters=" + saves,
                     "training.eval.every_iters=" + evaluations});
  };
  const std::string begin =
      "checkpoint.keep_best: chooses among steps that are saved and evaluated, but ";
  EXPECT_EQ(faults("100", "50"), "");
  EXPECT_EQ(faults("60", "40"), "");
  EXPECT_EQ(faults("100", "0"), begin + "none is evaluated; give training.eval.every_iters");
  EXPECT_EQ(faults("0", "100"), begin + "none is sure to be saved; give checkpoint.every_iters");
  EXPECT_EQ(faults("125", "80"),
            begin +
                "checkpoint.every_iters 125 and training.eval.every_iters 80 first meet at step "
                "2000, and the run has 1000; let one be a multiple of the other");
  EXPECT_EQ(faults("1000", "500").substr(0, begin.size()), begin);
  EXPECT_EQ(faults("4294967291", "4294967296").substr(0, begin.size()), begin);
  EXPECT_EQ(FaultsOf({"checkpoint.keep_best=-1"}),
            "checkpoint.keep_best: must be at least 0, is -1");
  EXPECT_EQ(FaultsOf({"checkpoint.keep_every=500"}), "");
}

TEST(Complete, AJobFromTheWireIsCheckedLikeText) {
  v1::JobSpec job = Load().job;
  job.set_kind(static_cast<v1::JobSpec::Kind>(77));
  job.mutable_optimizer()->set_lr(std::numeric_limits<double>::quiet_NaN());
  job.mutable_model()->set_layers(-5);
  job.mutable_checkpoint()->set_directory("/abs");
  job.mutable_optimizer()->set_warmup("soon");
  job.set_name("");
  job.mutable_data()->mutable_path(0)->set_weight(-1);
  EXPECT_EQ(
      FormatFaults(CompleteJob({}, &job)),
      "name: expected 1 to 63 of a-z, 0-9 and -, got \"\"\n"
      "kind: expected one of train, bench, preflight, generate, eval, got number 77\n"
      "model.layers: must be at least 1, is -5\n"
      "data.path: a weight must be above 0, is -1\n"
      "optimizer.lr: must be finite, is nan\n"
      "optimizer.warmup: expected a count or a percentage, such as 100, 2M or 5%, got \"soon\"\n"
      "checkpoint.directory: \"/abs\" is absolute; give a path below the worker's root");
}

}  // namespace
}  // namespace mt::spec
