// The tuning table: keys as texts, the registration of GEMMs by planning, export and import between
// backends of one GPU (equal bits), refusals, all forms of fused GEMMs, SM budgets.
#include "kernels/ops/tuning.h"

#include <algorithm>

#include "kernels/cuda/gemm/gemm_key.h"
#include "tests/kernels/cuda/twin.h"

namespace mt::kernels::cuda {
namespace {

TEST(TableKeyTest, TextsComeBackAsTheyWere) {
  const TableKey keys[] = {
      {.form = false, .gemm = {.transpose_a = true, .m = 3072, .n = 32768, .k = 768}},
      {.form = true,
       .gemm = {.m = 8,
                .n = 1,
                .k = 24,
                .in = DType::kF16,
                .out = DType::kF16,
                .epilogue = Epilogue::kGeluGrad,
                .alignment = 4}},
      {.form = true,
       .gemm = {.m = 768, .n = 2304, .k = 4096, .epilogue = Epilogue::kGeluAux, .sms = 100}},
      {.form = false,
       .gemm = {.transpose_b = true,
                .m = 768,
                .n = 2304,
                .k = 4096,
                .out = DType::kF32,
                .add = true,
                .sms = 100}},
      {.form = true, .gemm = {.m = 8, .n = 8, .k = 8, .epilogue = Epilogue::kGeluGradBias}},
      {.form = true, .gemm = {.m = 8, .n = 8, .k = 8, .epilogue = Epilogue::kSwigluAux}},
      {.form = true, .gemm = {.m = 8, .n = 8, .k = 8, .epilogue = Epilogue::kSwigluGrad}}};
  for (const TableKey& key : keys) {
    const std::optional<TableKey> parsed = ParseTableKey(ToText(key));
    ASSERT_TRUE(parsed.has_value()) << ToText(key);
    EXPECT_EQ(*parsed, key) << ToText(key);
  }
  EXPECT_EQ(ToText(keys[0]), "product tn 3072x32768x768 bf16 bf16 none write align 16 sms 0");
  EXPECT_EQ(ToText(keys[2]), "form nn 768x2304x4096 bf16 bf16 gelu_aux write align 16 sms 100");
  EXPECT_EQ(ToText(keys[3]), "product nt 768x2304x4096 bf16 f32 none add align 16 sms 100");
}

TEST(TableKeyTest, OtherTextsAreNoKeys) {
  const std::string good = "product tn 3072x32768x768 bf16 bf16 none write align 16 sms 0";
  ASSERT_TRUE(ParseTableKey(good).has_value());
  for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{
           {"product", "produkt"},
           {"tn", "tx"},
           {"product", "form"},  // of an epilogue that has no other form
           {"3072x32768x768", "3072x32768"},
           {"3072", "03072"},
           {"3072", "-3072"},
           {"3072", "0"},
           {"3072", "99999999999999999999"},
           {"bf16 bf16", "bf16 f64"},
           {"none", "gelu"},
           {"write", "overwrite"},
           {"align 16", "align 12"},
           {"align 16", "align 32"},
           {"sms 0", "sms -1"},
           {"sms 0", "sms 0 "},
           {" sms 0", ""}}) {
    std::string bad = good;
    bad.replace(bad.find(from), from.size(), to);
    EXPECT_FALSE(ParseTableKey(bad).has_value()) << bad;
  }
  EXPECT_FALSE(ParseTableKey("").has_value());
  // A GEMM without another form, since custom kernels take 16 bits only.
  EXPECT_FALSE(ParseTableKey("form tn 8x8x8 f32 f32 bias write align 16 sms 0").has_value());
  EXPECT_TRUE(ParseTableKey("form tn 8x8x8 bf16 bf16 bias write align 16 sms 0").has_value());
  const std::string custom = "nn 8x8x8 bf16 bf16 gelu_grad_bias write align 16 sms 0";
  EXPECT_TRUE(ParseTableKey("form " + custom).has_value());
  EXPECT_FALSE(ParseTableKey("product " + custom).has_value()) << "has no algorithm";
}

// Checkpoints of earlier versions hold them, which no product reads any more.
TEST(TableKeyTest, KeysOfTheFormerBiasGradientsAreRetired) {
  const std::string rest = " nt 768x2304x4096 bf16 f32 bias_grad add align 16 sms 0";
  for (const char* const kind : {"form", "product"}) {
    EXPECT_TRUE(IsRetiredKey(kind + rest));
    EXPECT_FALSE(ParseTableKey(kind + rest).has_value());
  }
  EXPECT_FALSE(IsRetiredKey("form nn 8x8x8 bf16 bf16 gelu_grad_bias write align 16 sms 0"));
  EXPECT_FALSE(IsRetiredKey("bias_grad"));
}

// Tables in checkpoints and caches hold these texts, whatever the code calls the forms.
TEST(TableKeyTest, FormsHaveTheTextsOfOlderTables) {
  const std::pair<Form, const char*> texts[] = {
      {Form::kCustom, "own"}, {Form::kFused, "fused"}, {Form::kSeparate, "separate"}};
  for (const auto& [form, text] : texts) {
    EXPECT_STREQ(Name(form), text);
    EXPECT_EQ(ParseForm(text), form);
  }
  EXPECT_EQ(ParseForm("custom"), std::nullopt);
}

// Each test has backends of its own, whose tables are empty.
class CudaTuningTest : public GpuTest {
 protected:
  static std::unique_ptr<Backend> NewBackend() { return LoadCudaBackend(TestConfig()).value(); }
};
INSTANTIATE_TEST_SUITE_P(Types, CudaTuningTest, testing::Values(DType::kBf16, DType::kF16),
                         TypeName);

constexpr int64_t kTokens = 1024, kN = 768, kK = 256;

// Operands of a layer's five GEMMs, on both sides; outputs are poisoned before each run.
struct Layer {
  explicit Layer(DType dtype, int sm_budget = 0)
      : x(twins.Random(dtype, {kTokens, kK})),
        w(twins.Random(dtype, {kN, kK}, 0.1)),
        bias(twins.Random(dtype, {kN})),
        dy(twins.Random(dtype, {kTokens, kN})),
        w2(twins.Random(dtype, {kK, kN}, 0.1)),
        dout(twins.Random(dtype, {kTokens, kK})),
        pre(Twins::Output(dtype, {kTokens, kN})),
        y(Twins::Output(dtype, {kTokens, kN})),
        dpre(Twins::Output(dtype, {kTokens, kN})),
        dx(Twins::Output(dtype, {kTokens, kK})),
        dw(Twins::Output(DType::kF32, {kN, kK})),
        dbias(Twins::Output(DType::kF32, {kN})),
        dpre_sums(Twins::Output(DType::kF32, {kN})),
        budget(sm_budget) {}

  LinearForwardActArgs ForwardAct(Side s) const {
    return {.x = x[s],
            .w = w[s],
            .bias = bias[s],
            .pre = pre[s],
            .y = y[s],
            .workspace = {},
            .sm_budget = budget};
  }
  LinearInputGradActArgs InputGradAct(Side s) const {
    return {.dy = dout[s],
            .w = w2[s],
            .pre = pre[s],
            .dpre = dpre[s],
            .dbias = dpre_sums[s],
            .workspace = {},
            .sm_budget = budget};
  }
  LinearInputGradArgs InputGrad(Side s) const {
    return {.dy = dy[s], .w = w[s], .dx = dx[s], .workspace = {}, .sm_budget = budget};
  }
  LinearWeightGradArgs WeightGrad(Side s, GradMode mode) const {
    return {.dy = dy[s],
            .x = x[s],
            .mode = mode,
            .dw = dw[s],
            .dbias = dbias[s],
            .workspace = {},
            .sm_budget = budget};
  }
  // What a run would ask while its memory is planned.
  int64_t Plan(LinearOps* ops) const {
    return std::max({ops->Plan(ForwardAct(Side::kGpu)), ops->Plan(InputGradAct(Side::kGpu)),
                     ops->Plan(InputGrad(Side::kGpu)),
                     ops->Plan(WeightGrad(Side::kGpu, GradMode::kOverwrite))});
  }
  // Forward and backward on one side; the weight gradient is written, then added to once.
  void Run(Side side, Backend& backend) const {
    for (const Operand* out : {&pre, &y, &dpre, &dx, &dw, &dbias, &dpre_sums}) out->Poison();
    LinearOps& ops = backend.linear();
    SideScratch scratch(side, Plan(&ops));
    Stream& stream = StreamOf(side);
    const auto run = [&](auto args, auto entry) {
      args.workspace = scratch.workspace();
      (ops.*entry)(stream, args);
    };
    run(ForwardAct(side), &LinearOps::ForwardAct);
    run(InputGradAct(side), &LinearOps::InputGradAct);
    run(InputGrad(side), &LinearOps::InputGrad);
    run(WeightGrad(side, GradMode::kOverwrite), &LinearOps::WeightGrad);
    run(WeightGrad(side, GradMode::kAdd), &LinearOps::WeightGrad);
    stream.Synchronize();
  }
  // The bits of all outputs on the GPU.
  std::vector<std::vector<std::byte>> Bits() const {
    std::vector<std::vector<std::byte>> all;
    for (const Operand* out : {&pre, &y, &dpre, &dx, &dw, &dbias, &dpre_sums}) {
      all.push_back(out->Bytes(Side::kGpu));
    }
    return all;
  }
  // Runs on the GPU, then on the CPU with the GPU's `pre`, and compares.
  void ExpectTheCpus(Backend& gpu, DType dtype, const std::string& what) const {
    Run(Side::kGpu, gpu);
    const auto bits = Bits();
    Run(Side::kCpu, BackendOf(Side::kCpu));
    size_t i = 0;
    for (const Operand* out : {&pre, &y, &dpre, &dx, &dw, &dbias, &dpre_sums}) {
      out->SetBytes(Side::kGpu, bits[i++].data());
    }
    ExpectClose(pre, Kind::kGemm, dtype, what + " pre");
    ExpectClose(y, Kind::kFused, dtype, what + " y");
    ExpectClose(dpre, Kind::kFused, dtype, what + " dpre");
    ExpectClose(dx, Kind::kGemm, dtype, what + " dx");
    ExpectClose(dw, Kind::kGemm, DType::kF32, what + " dw");
    ExpectClose(dbias, Kind::kSum, DType::kF32, what + " dbias");
    ExpectClose(dpre_sums, Kind::kFused, dtype, what + " sums of dpre");
  }

  Twins twins;
  Operand x, w, bias, dy, w2, dout, pre, y, dpre, dx, dw, dbias, dpre_sums;
  int budget;
};

std::vector<std::string> KeysOf(const std::vector<TuningEntry>& entries) {
  std::vector<std::string> keys;
  for (const TuningEntry& entry : entries) keys.push_back(entry.key);
  return keys;
}

TEST_P(CudaTuningTest, PlanningNotesWhatIsTimedOnceForAll) {
  const auto gpu = NewBackend();
  TuningTable& table = *gpu->tuning();
  EXPECT_TRUE(table.Missing().empty());
  const Layer layer(GetParam());
  layer.Plan(&gpu->linear());
  const std::vector<std::string> missing = table.Missing();
  // GEMM and form of: GELU, what is plainer, GELU's gradient; the form of that with sums, and
  // what is plainer; the weight gradient written and added; the input gradient.
  EXPECT_EQ(missing.size(), 11U);
  EXPECT_TRUE(table.Entries().empty()) << "planning times nothing";
  ASSERT_TRUE(table.Time(missing).ok());
  EXPECT_TRUE(table.Missing().empty());
  const std::vector<TuningEntry> entries = table.Entries();
  EXPECT_EQ(KeysOf(entries), missing);
  layer.Run(Side::kGpu, *gpu);
  EXPECT_EQ(table.Entries(), entries) << "a planned run times nothing";
}

TEST_P(CudaTuningTest, AnImportedTableGivesTheSameBits) {
  const auto first = NewBackend(), second = NewBackend();
  const Layer layer(GetParam());
  layer.Run(Side::kGpu, *first);
  const auto bits = layer.Bits();
  const auto refused =
      second->tuning()->Import(first->tuning()->Identity(), first->tuning()->Entries());
  ASSERT_TRUE(refused.ok()) << refused.status();
  EXPECT_TRUE(refused->empty()) << refused->front();
  layer.Plan(&second->linear());
  EXPECT_TRUE(second->tuning()->Missing().empty());
  layer.Run(Side::kGpu, *second);
  EXPECT_EQ(layer.Bits(), bits);
  EXPECT_EQ(second->tuning()->Entries(), first->tuning()->Entries());
}

TEST_P(CudaTuningTest, EntriesOfRetiredKeysArePassedOver) {
  const auto gpu = NewBackend();
  TuningTable& table = *gpu->tuning();
  const std::string rest = " nt 256x768x1024 bf16 f32 bias_grad add align 16 sms 0";
  auto refused = table.Import(table.Identity(),
                              {{"product" + rest, "none"}, {"form" + rest, Name(Form::kSeparate)}});
  ASSERT_TRUE(refused.ok()) << refused.status();
  EXPECT_TRUE(refused->empty()) << "sums of columns are what they were";
  refused = table.Import(table.Identity(), {{"form" + rest, Name(Form::kFused)}});
  ASSERT_TRUE(refused.ok()) << refused.status();
  EXPECT_EQ(*refused, std::vector<std::string>{"form" + rest}) << "the GEMM's sums had other bits";
  EXPECT_TRUE(table.Entries().empty());
}

TEST_P(CudaTuningTest, ImportRefusesAnotherIdentityWhole) {
  const auto gpu = NewBackend();
  TuningTable& table = *gpu->tuning();
  EXPECT_NE(table.Identity().find("cuBLASLt"), std::string::npos) << table.Identity();
  const auto refused =
      table.Import("mt_cuda products 1, cuBLASLt 1, Toaster",
                   {{"product nn 8x8x8 bf16 bf16 none write align 16 sms 0", "none"}});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(refused.status().ToString().find("Toaster"), std::string::npos);
  EXPECT_NE(refused.status().ToString().find(table.Identity()), std::string::npos);
  EXPECT_TRUE(table.Entries().empty());
}

TEST_P(CudaTuningTest, WhatTheLibraryDoesNotAcceptIsLeftOutAndTimedAnew) {
  const auto first = NewBackend(), second = NewBackend();
  const Layer layer(GetParam());
  layer.Plan(&first->linear());
  ASSERT_TRUE(first->tuning()->Time(first->tuning()->Missing()).ok());
  std::vector<TuningEntry> entries = first->tuning()->Entries();
  std::vector<std::string> spoiled;
  for (TuningEntry& entry : entries) {
    if (!entry.choice.starts_with("algorithm ")) continue;
    // An algorithm that does not exist, a truncated one, no hexadecimal, in turn.
    const size_t which = spoiled.size() % 3;
    if (which == 0) entry.choice = "algorithm " + std::string(128, 'f');
    if (which == 1) entry.choice.pop_back();
    if (which == 2) entry.choice.back() = 'x';
    spoiled.push_back(entry.key);
  }
  ASSERT_GE(spoiled.size(), 3U);
  entries.push_back({"no key", "fused"});
  auto refused = second->tuning()->Import(first->tuning()->Identity(), entries);
  ASSERT_TRUE(refused.ok()) << refused.status();
  spoiled.emplace_back("no key");
  std::sort(refused->begin(), refused->end());
  std::sort(spoiled.begin(), spoiled.end());
  EXPECT_EQ(*refused, spoiled);
  layer.ExpectTheCpus(*second, GetParam(), "timed anew");
}

TEST_P(CudaTuningTest, TimeAndSurveyTakeKeysOfThisBackendOnly) {
  const auto gpu = NewBackend();
  TuningTable& table = *gpu->tuning();
  EXPECT_EQ(table.Time({"attention"}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(table.Survey("attention").status().code(), absl::StatusCode::kInvalidArgument);
  const std::string key = "product tn 768x1024x256 bf16 bf16 none write align 16 sms 0";
  ASSERT_TRUE(table.Time({key}).ok());  // another rank's: nobody planned it here
  ASSERT_EQ(table.Entries().size(), 1U);
  const auto times = table.Survey(key);
  ASSERT_TRUE(times.ok());
  ASSERT_GT(times->size(), 1U);
  int chosen = 0;
  for (size_t i = 0; i < times->size(); ++i) {
    const TuningTime& time = (*times)[i];
    EXPECT_GT(time.us, 0);
    EXPECT_GE(time.us, (*times)[i == 0 ? 0 : i - 1].us);
    if (!time.chosen) continue;
    ++chosen;
    EXPECT_EQ(time.choice, table.Entries()[0].choice);
  }
  EXPECT_EQ(chosen, 1);
}

bool Has(Form form, const GemmKey& key) {
  if (form == Form::kCustom) return MayBeCustom(key);
  return form == Form::kFused ? HasFusedForm(key.epilogue) : HasSeparateForm(key.epilogue);
}

// Every form of every GEMM, whichever timing would choose.
TEST_P(CudaTuningTest, EveryFormIsTheCpus) {
  const auto timed = NewBackend();
  const Layer layer(GetParam());
  layer.Plan(&timed->linear());
  ASSERT_TRUE(timed->tuning()->Time(timed->tuning()->Missing()).ok());
  struct Expected {
    Form form;
    int keys;
  };
  for (const Expected& e : {Expected{Form::kCustom, 3}, {Form::kFused, 3}, {Form::kSeparate, 3}}) {
    std::vector<TuningEntry> entries = timed->tuning()->Entries();
    int forms = 0;
    for (TuningEntry& entry : entries) {
      if (!entry.key.starts_with("form ")) continue;
      if (!Has(e.form, ParseTableKey(entry.key)->gemm)) continue;
      entry.choice = Name(e.form);
      ++forms;
    }
    ASSERT_EQ(forms, e.keys);
    const auto gpu = NewBackend();
    const auto refused = gpu->tuning()->Import(timed->tuning()->Identity(), entries);
    ASSERT_TRUE(refused.ok()) << refused.status();
    if (e.form == Form::kCustom && !refused->empty()) continue;  // a device without custom kernels
    ASSERT_TRUE(refused->empty()) << refused->front();
    layer.ExpectTheCpus(*gpu, GetParam(), Name(e.form));
    EXPECT_EQ(gpu->tuning()->Entries(), entries);
  }
}

TEST_P(CudaTuningTest, AnSmBudgetHasItsOwnEntriesAndTheSameNumbers) {
  const auto gpu = NewBackend();
  const Layer all(GetParam()), told(GetParam(), 100);
  all.Plan(&gpu->linear());
  const std::vector<std::string> without = gpu->tuning()->Missing();
  told.Plan(&gpu->linear());
  std::vector<std::string> both = gpu->tuning()->Missing();
  EXPECT_EQ(both.size(), 2 * without.size());
  const auto budgeted = std::count_if(
      both.begin(), both.end(), [](const std::string& key) { return key.ends_with(" sms 100"); });
  EXPECT_EQ(static_cast<size_t>(budgeted), without.size());
  told.ExpectTheCpus(*gpu, GetParam(), "100 SMs");
  all.ExpectTheCpus(*gpu, GetParam(), "all SMs");
  EXPECT_EQ(KeysOf(gpu->tuning()->Entries()), both);
}

}  // namespace
}  // namespace mt::kernels::cuda
