// What a run may change against its checkpoint, and what is refused with both values.
#include <gtest/gtest.h>

#include "worker/checkpoint/loader.h"

namespace mt::checkpoint {
namespace {

TEST(SameRunTest, ListsEveryDifferenceWithBothValues) {
  Manifest manifest;
  manifest.step = 50;
  manifest.spec_json =
      R"({"model":{"layers":2,"heads":4},"training":{"seed":1},"optimizer":{"lr":0.1}})";
  EXPECT_TRUE(CheckSameRun(manifest, manifest.spec_json).ok());
  // What may change does not matter.
  EXPECT_TRUE(
      CheckSameRun(manifest,
                   R"({"model":{"heads":4,"layers":2},"training":{"seed":1,"global_batch_size":8},
                                         "optimizer":{"lr":0.2},"checkpoint":{"every_iters":5}})")
          .ok());
  const Status status = CheckSameRun(
      manifest, R"({"model":{"layers":3,"heads":4,"head_dim":8},"training":{"seed":2}})");
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  const std::string text = base::Message(status);
  EXPECT_NE(text.find("model.layers: checkpoint has 2, job has 3"), std::string::npos) << text;
  EXPECT_NE(text.find("model.head_dim: checkpoint has nothing, job has 8"), std::string::npos)
      << text;
  EXPECT_NE(text.find("training.seed: checkpoint has 1, job has 2"), std::string::npos) << text;
}

TEST(SameRunTest, LayoutPrecisionPaddingAndOptimizerMayChange) {
  Manifest manifest;
  manifest.step = 50;
  manifest.spec_json =
      R"({"model":{"layers":2,"vocab_divisible_by":128},"training":{"precision":"bf16"},
          "optimizer":{"type":"sgd"},
          "parallel":{"tensor":2,"pipeline":2,"data":2,"zero_stage":1,"virtual_stages":1}})";
  const Status status =
      CheckSameRun(manifest,
                   R"({"model":{"layers":2,"vocab_divisible_by":32},"training":{"precision":"fp64"},
          "optimizer":{"type":"adamw"},
          "parallel":{"tensor":1,"pipeline":4,"data":1,"virtual_stages":2,"layout":"1,2,3,4"}})");
  EXPECT_TRUE(status.ok()) << status;
}

}  // namespace
}  // namespace mt::checkpoint
