// The loader of a pipeline's stage, which reads inputs, labels or nothing, against one that reads
// all.
#include <atomic>
#include <cmath>

#include <gmock/gmock.h>

#include "worker/data/loader.h"
#include "worker/data/mock_dataset.h"

namespace mt::data {
namespace {

using ::testing::ElementsAre;

std::vector<Microbatch> ReadAllOf(const Loader::Args& args) {
  auto loader = Loader::Create(args);
  EXPECT_TRUE(loader.ok()) << loader.status();
  std::vector<Microbatch> batches;
  for (int64_t m = 0; m < (*loader)->num_microbatches(); ++m) {
    auto batch = (*loader)->Next();
    EXPECT_TRUE(batch.ok()) << batch.status();
    batches.push_back(*std::move(batch));
    const int64_t read = args.first_sample + (m + 1) * args.micro_batch_size * args.dp_size;
    EXPECT_EQ((*loader)->consumed_samples(), std::min(read, args.dataset->num_samples()));
  }
  EXPECT_EQ((*loader)->Next().status().code(), absl::StatusCode::kOutOfRange);
  return batches;
}

// Of replica 1 of 2, whose last microbatch is padding in part.
Loader::Args OfReplica(std::shared_ptr<const Dataset> dataset) {
  return {.dataset = std::move(dataset),
          .first_sample = 1,
          .micro_batch_size = 2,
          .dp_rank = 1,
          .dp_size = 2,
          .pad_last = true};
}

TEST(LoaderPartsTest, AnEndOfThePipelineReadsItsPart) {
  Loader::Args args = OfReplica(std::make_shared<MockDataset>(
      MockDataset::Args{.num_samples = 16, .seq_length = 8, .vocab_size = 50, .seed = 1}));
  const auto whole = ReadAllOf(args);
  args.parts = {.inputs = true, .labels = false};
  const auto inputs = ReadAllOf(args);
  args.parts = {.inputs = false, .labels = true};
  const auto labels = ReadAllOf(args);
  const Microbatch empty = EmptyMicrobatch(8, 2);
  ASSERT_EQ(whole.size(), 4U);
  ASSERT_EQ(inputs.size(), 4U);
  ASSERT_EQ(labels.size(), 4U);
  EXPECT_THAT(whole[3].samples, ElementsAre(15, -1));
  for (size_t m = 0; m < whole.size(); ++m) {
    EXPECT_EQ(inputs[m].samples, whole[m].samples);
    EXPECT_EQ(inputs[m].tokens, whole[m].tokens);
    EXPECT_EQ(inputs[m].order, whole[m].order);
    EXPECT_EQ(inputs[m].segment_token, whole[m].segment_token);
    EXPECT_EQ(inputs[m].segment_start, whole[m].segment_start);
    EXPECT_EQ(inputs[m].segment_count, whole[m].segment_count);
    EXPECT_EQ(inputs[m].labels, empty.labels);
    EXPECT_EQ(inputs[m].weights, empty.weights);
    EXPECT_EQ(labels[m].samples, whole[m].samples);
    EXPECT_EQ(labels[m].labels, whole[m].labels);
    EXPECT_EQ(labels[m].weights, whole[m].weights);
    EXPECT_EQ(labels[m].weight_sum, whole[m].weight_sum);
    EXPECT_EQ(labels[m].tokens, empty.tokens);
    EXPECT_EQ(labels[m].order, empty.order);
  }
}

// Bytes of labels: where labels are read, by id, weighted; a padding sample has none.
TEST(LoaderPartsTest, LabelsStandForBytes) {
  Loader::Args args = OfReplica(std::make_shared<MockDataset>(
      MockDataset::Args{.num_samples = 16, .seq_length = 8, .vocab_size = 50, .seed = 1}));
  for (const Microbatch& batch : ReadAllOf(args))
    EXPECT_TRUE(std::isnan(batch.label_bytes)) << "nobody knows";
  std::vector<int32_t> bytes(40);  // ids from 40 on stand for no text
  for (int32_t id = 0; id < 40; ++id) bytes[static_cast<size_t>(id)] = id % 7;
  args.token_bytes = std::make_shared<const std::vector<int32_t>>(bytes);
  const auto batches = ReadAllOf(args);
  ASSERT_EQ(batches.size(), 4U);
  double whole = 0;
  for (const Microbatch& batch : batches) {
    double want = 0;
    for (size_t i = 0; i < batch.labels.size(); ++i) {
      const int32_t id = batch.labels[i];
      if (id < 40) want += static_cast<double>(batch.weights[i]) * (id % 7);
    }
    EXPECT_EQ(batch.label_bytes, want);
    whole += want;
  }
  EXPECT_GT(whole, 0);
  args.parts = {.inputs = true, .labels = false};
  for (const Microbatch& batch : ReadAllOf(args)) EXPECT_EQ(batch.label_bytes, 0);
}

// A data set of which no sample can be read.
class UnreadableDataset final : public Dataset {
 public:
  int64_t num_samples() const override { return 16; }
  int64_t seq_length() const override { return 8; }
  Status Read(int64_t sample, std::span<int32_t>, std::span<float>) const override {
    reads_.fetch_add(1);
    return base::DataLoss("sample {} was read", sample);
  }
  const IndexRecord& record() const override { return record_; }
  int64_t reads() const { return reads_.load(); }

 private:
  IndexRecord record_;
  mutable std::atomic<int64_t> reads_{0};
};

TEST(LoaderPartsTest, AStageInTheMiddleReadsNothing) {
  const auto dataset = std::make_shared<UnreadableDataset>();
  Loader::Args args = OfReplica(dataset);
  args.parts = {.inputs = false, .labels = false};
  const auto batches = ReadAllOf(args);
  EXPECT_EQ(dataset->reads(), 0);
  ASSERT_EQ(batches.size(), 4U);
  const Microbatch empty = EmptyMicrobatch(8, 2);
  for (size_t m = 0; m < batches.size(); ++m) {
    const auto first = static_cast<int64_t>(3 + 4 * m);
    EXPECT_THAT(batches[m].samples, ElementsAre(first, m == 3 ? -1 : first + 1));
    EXPECT_EQ(batches[m].tokens, empty.tokens);
    EXPECT_EQ(batches[m].labels, empty.labels);
    EXPECT_EQ(batches[m].weights, empty.weights);
    EXPECT_EQ(batches[m].order, empty.order);
    EXPECT_EQ(batches[m].segment_start, empty.segment_start);
  }
  args.parts.labels = true;
  EXPECT_TRUE(absl::IsDataLoss((*Loader::Create(args))->Next().status())) << "the test's own proof";
}

}  // namespace
}  // namespace mt::data
