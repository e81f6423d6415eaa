// Which tokenizer a run has, and its vocabulary: the job's word against the records of its data.
#include "worker/train/job_data/job_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/log.h"
#include "megatrain/v1/job.pb.h"
#include "tests/paths.h"
#include "tests/worker/data/temp_data.h"
#include "worker/data/tokenizer.h"

namespace mt::train {
namespace {

using megatrain::v1::Data;
using megatrain::v1::JobSpec;
using ::testing::HasSubstr;

class JobTokenizerTest : public ::testing::Test {
 protected:
  JobTokenizerTest() {
    job_.mutable_data()->add_path()->set_prefix("a");
    std::filesystem::copy_file(MT_SOURCE_DIR "/tests/worker/data/tokenizer/golden/llama3.json",
                               dir_.Path("t.json"));
  }
  void Record(const std::string& prefix, const data::TokenizerRecord& record) {
    ASSERT_TRUE(data::WriteTokenizerRecord(dir_.Path(prefix), record).ok());
  }
  void UseFile() {
    job_.mutable_data()->mutable_tokenizer()->set_type(Data::Tokenizer::TYPE_HF);
    job_.mutable_data()->mutable_tokenizer()->set_file("t.json");
  }
  data::TokenizerRecord OfFile() {
    return *data::RecordOf({.type = "hf", .file = dir_.Path("t.json")}, nullptr);
  }
  // The vocabulary that the job comes to, or why it has none.
  std::string Settled() {
    JobSpec job = job_;
    const Status status = SettleVocabulary(dir_.path(), &job);
    return status.ok() ? std::to_string(job.model().vocab_size()) : base::Message(status);
  }
  const data::TempDir dir_;
  const data::TokenizerRecord byte_ = {.type = "byte", .vocab_size = 257, .eod = 256};
  JobSpec job_;
};

TEST_F(JobTokenizerTest, WithoutOneTheDatasHolds) {
  Record("a", OfFile());
  EXPECT_EQ(Settled(), "1200");
  EXPECT_EQ((*FindJobTokenizer(dir_.path(), job_))->eod, 1199);
  job_.mutable_model()->set_vocab_size(1500);
  EXPECT_EQ(Settled(), "1500");
  job_.mutable_model()->set_vocab_size(1100);
  EXPECT_THAT(Settled(), HasSubstr("model.vocab_size: 1100 is less than the 1200 tokens of hf"));
}

// Records of an earlier version and of this one: what one of them tells holds.
TEST_F(JobTokenizerTest, ARecordThatTellsBytesIsPreferred) {
  job_.mutable_data()->add_path()->set_prefix("b");
  data::TokenizerRecord earlier = OfFile();
  earlier.token_bytes.clear();
  Record("a", earlier);
  EXPECT_EQ((*FindJobTokenizer(dir_.path(), job_))->token_bytes.size(), 0U);
  Record("b", OfFile());
  EXPECT_EQ((*FindJobTokenizer(dir_.path(), job_))->token_bytes.size(), 1200U);
  UseFile();
  Record("b", earlier);
  EXPECT_EQ((*FindJobTokenizer(dir_.path(), job_))->token_bytes.size(), 1200U) << "of the file";
  earlier.eod = 7;
  Record("a", earlier);
  Record("b", earlier);
  const auto of_both = *FindJobTokenizer(dir_.path(), job_);
  EXPECT_EQ(of_both->eod, 7) << "the data's, not the file's";
  EXPECT_EQ(of_both->token_bytes.at(7), 0) << "the end of a document is no text";
  EXPECT_EQ(of_both->token_bytes.at(8), 1);
}

TEST_F(JobTokenizerTest, DataOfAnotherTokenizerIsRefused) {
  UseFile();
  Record("a", OfFile());
  EXPECT_EQ(Settled(), "1200");
  Record("a", byte_);
  EXPECT_THAT(Settled(), HasSubstr("/a were made by byte (257 tokens)"));
  data::TokenizerRecord other = OfFile();
  other.digest[0] = other.digest[0] == '0' ? '1' : '0';
  Record("a", other);
  EXPECT_THAT(Settled(), HasSubstr("leave data.tokenizer out"));
}

TEST_F(JobTokenizerTest, IdsTakeAnyData) {
  job_.mutable_data()->mutable_tokenizer()->set_type(Data::Tokenizer::TYPE_NULL);
  job_.mutable_model()->set_vocab_size(64);
  Record("a", byte_);
  EXPECT_EQ(Settled(), "64");
}

TEST_F(JobTokenizerTest, DataSetsOfSeveralTokenizersAreRefused) {
  job_.mutable_data()->clear_path();
  job_.mutable_data()->add_train()->set_prefix("a");
  job_.mutable_data()->add_valid()->set_prefix("b");
  Record("a", byte_);
  EXPECT_EQ(Settled(), "257");  // that without a record is taken as it is
  Record("b", OfFile());
  EXPECT_THAT(Settled(), HasSubstr("a job's data are of one tokenizer"));
  // Ids of two sizes have no digest that tells them apart.
  Record("a", {.type = "null", .vocab_size = 100, .eod = 99});
  Record("b", {.type = "null", .vocab_size = 200, .eod = 199});
  EXPECT_THAT(Settled(), HasSubstr("a job's data are of one tokenizer"));
}

// Which of its tokens ends documents is chosen as data are prepared; one alone can be masked.
TEST_F(JobTokenizerTest, DataSetsThatEndDocumentsDifferentlyCannotBeMasked) {
  job_.mutable_data()->add_path()->set_prefix("b");
  job_.mutable_data()->set_eod_mask_loss(true);
  data::TokenizerRecord other = OfFile();
  other.eod = 7;
  for (const bool named : {false, true}) {
    if (named) UseFile();
    Record("a", OfFile());
    Record("b", OfFile());
    EXPECT_EQ(Settled(), "1200");
    Record("b", other);
    EXPECT_THAT(Settled(), HasSubstr("documents end with id 1199 in " + dir_.Path("a") +
                                     " and with id 7 in " + dir_.Path("b")));
    EXPECT_THAT(Settled(), HasSubstr("as it did without " + dir_.Path("b.tokenizer.json")));
    Record("a", other);
    EXPECT_EQ(Settled(), "1200");
    EXPECT_EQ((*FindJobTokenizer(dir_.path(), job_))->eod, 7) << "the data's, not the file's";
    other.eod = data::kNoEod;
    Record("b", other);
    EXPECT_THAT(Settled(), HasSubstr("and with no id in " + dir_.Path("b")));
    other.eod = 7;
  }
  // Ids are taken as they are.
  job_.mutable_data()->mutable_tokenizer()->clear_file();
  job_.mutable_data()->mutable_tokenizer()->set_type(Data::Tokenizer::TYPE_NULL);
  job_.mutable_model()->set_vocab_size(1200);
  EXPECT_EQ(Settled(), "1200");
}

TEST_F(JobTokenizerTest, WithoutAMaskTheyDrawAWarning) {
  job_.mutable_data()->add_path()->set_prefix("b");
  const auto log_of_settled = [&] {
    testing::internal::CaptureStderr();
    EXPECT_EQ(Settled(), "1200");
    log::Flush();
    return testing::internal::GetCapturedStderr();
  };
  data::TokenizerRecord other = OfFile();
  other.eod = 7;
  for (const bool named : {false, true}) {
    if (named) UseFile();
    Record("a", OfFile());
    Record("b", OfFile());
    EXPECT_EQ(log_of_settled(), "");
    Record("b", other);
    const std::string log = log_of_settled();
    EXPECT_THAT(log, HasSubstr("end documents with different tokens"));
    EXPECT_THAT(log, HasSubstr("eod=\"id 1199\""));
    EXPECT_THAT(log, HasSubstr("other_eod=\"id 7\""));
  }
  // Ids are taken as they are.
  job_.mutable_data()->mutable_tokenizer()->clear_file();
  job_.mutable_data()->mutable_tokenizer()->set_type(Data::Tokenizer::TYPE_NULL);
  job_.mutable_model()->set_vocab_size(1200);
  EXPECT_EQ(log_of_settled(), "");
}

TEST_F(JobTokenizerTest, PositionsRestartBehindOneEndAlone) {
  job_.mutable_data()->add_path()->set_prefix("b");
  job_.mutable_data()->set_reset_positions(true);
  data::TokenizerRecord earlier = OfFile(), other = OfFile();
  earlier.token_bytes.clear();
  other.eod = 7;
  Record("a", earlier);
  Record("b", other);
  EXPECT_THAT(Settled(), HasSubstr("data.reset_positions: documents end with id 1199 in "));
  job_.mutable_data()->set_reset_positions(false);
  EXPECT_EQ(Settled(), "1200");
  const auto of_both = *FindJobTokenizer(dir_.path(), job_);
  EXPECT_EQ(of_both->eod, 1199) << "the first one's, though the second one alone tells bytes";
  EXPECT_EQ(of_both->token_bytes.size(), 1200U);
}

TEST_F(JobTokenizerTest, WithoutARecordTheFileOrThePresetTells) {
  EXPECT_THAT(Settled(), HasSubstr("model.vocab_size: required"));
  job_.mutable_model()->set_preset("gpt2-124m");
  EXPECT_EQ(Settled(), "50257");
  UseFile();
  EXPECT_EQ(Settled(), "1200");
  job_.mutable_data()->mutable_tokenizer()->set_file("nowhere.json");
  EXPECT_THAT(Settled(), HasSubstr("data.tokenizer: "));
  job_.mutable_data()->mutable_tokenizer()->set_file("../t.json");
  EXPECT_THAT(Settled(), HasSubstr("\"..\""));
}

TEST_F(JobTokenizerTest, ADamagedRecordIsNamed) {
  data::WriteText(dir_.Path("a.tokenizer.json"), "{");
  EXPECT_THAT(Settled(), HasSubstr("a.tokenizer.json: not a tokenizer's record"));
}

TEST_F(JobTokenizerTest, ItsFilesAreKeptBesideTheCheckpoints) {
  const data::TokenizerRecord record = OfFile();
  const auto kept_in = [&](const std::string& directory) {
    testing::internal::CaptureStderr();
    KeepBesideCheckpoints(dir_.path(), job_, record, dir_.Path(directory));
    log::Flush();
    const std::string said = testing::internal::GetCapturedStderr();
    const auto kept = data::FindKeptTokenizer("hf", record.digest, dir_.Path(directory));
    EXPECT_EQ(said.empty(), kept.has_value()) << said;
    return kept.has_value();
  };
  EXPECT_FALSE(kept_in("nothing names them"));
  // Beside the data, where `mtctl data prepare` keeps them.
  job_.mutable_data()->mutable_path(0)->set_prefix("sets/a");
  ASSERT_TRUE(data::KeepTokenizer({.type = "hf", .file = dir_.Path("t.json")}, record.digest,
                                  dir_.Path("sets"))
                  .ok());
  EXPECT_TRUE(kept_in("of the data"));
  UseFile();
  EXPECT_TRUE(kept_in("of the job"));
  // Changed since the run began.
  data::WriteText(dir_.Path("t.json"), "{}");
  EXPECT_FALSE(kept_in("changed"));
}

}  // namespace
}  // namespace mt::train
