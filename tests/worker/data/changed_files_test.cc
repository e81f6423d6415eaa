// Data files that are cut, written over, lengthened or replaced while they are mapped: the process
// lives, and what is said names the file.
#include <array>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sys/stat.h>
#include <thread>

#include <gmock/gmock.h>

#include "common/base/log.h"
#include "tests/worker/data/temp_data.h"
#include "worker/data/data_source.h"
#include "worker/data/file_watch.h"
#include "worker/data/loader.h"

namespace mt::data {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

// In place: the mapped file itself.
void WriteOver(const std::string& path, int64_t at, std::string_view bytes) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(at);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  ASSERT_TRUE(file.good());
}

// What a call writes to the log.
template <class Call>
std::string LogOf(const Call& call) {
  testing::internal::CaptureStderr();
  call();
  log::Flush();
  return testing::internal::GetCapturedStderr();
}

class ChangedFilesTest : public ::testing::Test {
 protected:
  // 40,000 tokens of 4 bytes in 100 documents.
  void SetUp() override { data_ = NumberedDataset(prefix_, std::vector<int32_t>(100, 400)); }
  Status Read(int64_t sequence) const {
    std::vector<int32_t> tokens(400);
    return data_->Read(sequence, 0, int64_t{1} << 31, tokens);
  }
  // The two files' watches: .idx, .bin.
  Status Look(std::vector<FileWatch>* watches) const {
    for (FileWatch& watch : *watches) RETURN_IF_ERROR(watch.Check());
    return OkStatus();
  }

  TempDir dir_;
  const std::string prefix_ = dir_.Path("d");
  const std::string bin_ = prefix_ + ".bin";
  const std::string idx_ = prefix_ + ".idx";
  std::shared_ptr<const IndexedDataset> data_;
};

TEST_F(ChangedFilesTest, AFileThatIsCutUnderAReadIsNamedWithBothSizes) {
  ASSERT_TRUE(Read(99).ok());
  fs::resize_file(bin_, 4096);
  const Status cut = Read(99);
  EXPECT_TRUE(absl::IsDataLoss(cut)) << cut;
  EXPECT_THAT(base::Message(cut), AllOf(HasSubstr(bin_), HasSubstr("4096 bytes"),
                                        HasSubstr("had 160000"), HasSubstr("cut")));
  EXPECT_EQ(Read(0), cut) << "what is left of it is not believed either";
  EXPECT_TRUE(NumberedDataset(prefix_, {7})->Intact().ok()) << "another mapping is not concerned";
}

TEST_F(ChangedFilesTest, EveryThreadThatReadsWhatIsGoneHearsOfIt) {
  fs::resize_file(bin_, 0);
  std::array<Status, 8> statuses;
  std::vector<std::thread> threads;
  for (size_t i = 0; i < statuses.size(); ++i)
    threads.emplace_back([&, i] { statuses[i] = Read(static_cast<int64_t>(99 - 11 * i)); });
  for (std::thread& thread : threads) thread.join();
  for (const Status& status : statuses) EXPECT_TRUE(absl::IsDataLoss(status)) << status;
}

TEST_F(ChangedFilesTest, AnIndexThatIsCutOrWrittenOverIsNoFaultOfTheProgram) {
  const std::string whole = ReadText(idx_);
  // Within its only page, whose rest reads as zeros without a signal.
  fs::resize_file(idx_, 40);
  Status status = Read(50);
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_THAT(base::Message(status), HasSubstr(idx_));
  WriteText(idx_, std::string(whole.size(), '\x7f'));
  status = Read(50);
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  fs::resize_file(idx_, 0);
  status = Read(50);
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_THAT(base::Message(status), AllOf(HasSubstr("0 bytes"), HasSubstr("had 2042")));
}

TEST_F(ChangedFilesTest, ALoaderReturnsTheErrorAtItsMicrobatch) {
  auto source = *OpenDataSource(
      {.train = {{prefix_}}, .seq_length = 16, .vocab_size = 40'000, .train_samples = 2000});
  auto loader = *Loader::Create({.dataset = source.train, .micro_batch_size = 4, .threads = 2});
  ASSERT_TRUE(loader->Next().ok());
  fs::resize_file(bin_, 0);
  Status status;
  while (status.ok()) status = loader->Next().status();
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_THAT(base::Message(status), HasSubstr(bin_));
}

// Somebody else's memory: the signal ends the process as ever.
TEST_F(ChangedFilesTest, OtherFaultsAreHandedOn) {
  EXPECT_DEATH(
      {
        const MappedFile file = *MappedFile::Open(bin_);
        ::raise(SIGBUS);
      },
      "");
}

TEST_F(ChangedFilesTest, NothingIsSaidOfFilesThatStay) {
  auto watches = data_->Watches(false);
  ASSERT_EQ(watches.size(), 2U);
  EXPECT_EQ(LogOf([&] { EXPECT_TRUE(Look(&watches).ok()); }), "");
  fs::last_write_time(bin_, fs::last_write_time(bin_) + std::chrono::seconds(5));
  EXPECT_EQ(LogOf([&] { EXPECT_TRUE(Look(&watches).ok()); }), "") << "touched";
}

TEST_F(ChangedFilesTest, AFileThatWasWrittenOverIsRefused) {
  auto watches = data_->Watches(false);
  const auto time = fs::last_write_time(bin_);
  WriteOver(bin_, 80'000, "abcd");
  fs::last_write_time(bin_, time);  // which alone hides nothing
  const Status status = Look(&watches);
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(base::Message(status),
              AllOf(HasSubstr(bin_), HasSubstr("written over"), HasSubstr("data.allow_changed")));
  EXPECT_EQ(Look(&watches), status) << "as long as it is so";
}

TEST_F(ChangedFilesTest, TokensMayChangeWhereTheJobSaysSoAndTheIndexNever) {
  auto watches = data_->Watches(/*bin_may_change=*/true);
  WriteOver(bin_, 80'000, "abcd");
  EXPECT_THAT(LogOf([&] { EXPECT_TRUE(Look(&watches).ok()); }),
              AllOf(HasSubstr("data.allow_changed"), HasSubstr(bin_)));
  EXPECT_EQ(LogOf([&] { EXPECT_TRUE(Look(&watches).ok()); }), "") << "once";
  WriteOver(idx_, 34, "abcd");
  EXPECT_TRUE(absl::IsFailedPrecondition(Look(&watches)));
}

TEST_F(ChangedFilesTest, AFileThatWasCutIsFoundWithoutARead) {
  auto watches = data_->Watches(/*bin_may_change=*/true);
  fs::resize_file(bin_, 159'996);
  const Status status = Look(&watches);
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_THAT(base::Message(status), AllOf(HasSubstr("159996 bytes"), HasSubstr("had 160000")));
}

TEST_F(ChangedFilesTest, ALongerFileIsSaidOnce) {
  auto watches = data_->Watches(false);
  fs::resize_file(bin_, 170'000);
  EXPECT_THAT(LogOf([&] { EXPECT_TRUE(Look(&watches).ok()); }),
              AllOf(HasSubstr("has grown"), HasSubstr("170000"), HasSubstr("160000")));
  EXPECT_EQ(LogOf([&] { EXPECT_TRUE(Look(&watches).ok()); }), "");
  fs::resize_file(bin_, 160'000);
  EXPECT_TRUE(Look(&watches).ok()) << "what is mapped is as it was";
  fs::resize_file(bin_, 100);
  EXPECT_TRUE(absl::IsDataLoss(Look(&watches)));
}

TEST_F(ChangedFilesTest, AnotherFileOfTheNameIsForTheNextStart) {
  auto watches = data_->Watches(false);
  fs::copy_file(bin_, prefix_ + ".new");
  fs::rename(prefix_ + ".new", bin_);
  EXPECT_EQ(LogOf([&] { EXPECT_TRUE(Look(&watches).ok()); }), "") << "the same content";
  WriteText(prefix_ + ".new", "other");
  fs::rename(prefix_ + ".new", bin_);
  EXPECT_THAT(LogOf([&] { EXPECT_TRUE(Look(&watches).ok()); }),
              AllOf(HasSubstr("replaced by another"), HasSubstr(bin_)));
  EXPECT_EQ(LogOf([&] { EXPECT_TRUE(Look(&watches).ok()); }), "");
  EXPECT_TRUE(Read(99).ok()) << "the old file is still mapped";
  fs::resize_file(bin_, 2);
  EXPECT_TRUE(Look(&watches).ok()) << "it is no file of this attempt";
  fs::remove(bin_);
  EXPECT_THAT(LogOf([&] { EXPECT_TRUE(Look(&watches).ok()); }), HasSubstr("cannot be looked at"));
  EXPECT_EQ(LogOf([&] { EXPECT_TRUE(Look(&watches).ok()); }), "");
}

TEST_F(ChangedFilesTest, IdsBeyondTheVocabularyAreFoundWhenTheDataAreOpened) {
  const auto open = [&](int64_t vocab_size, const std::string& split) {
    return OpenDataSource({.path = {{prefix_}},
                           .split = split,
                           .seq_length = 16,
                           .vocab_size = vocab_size,
                           .train_samples = 10})
        .status();
  };
  EXPECT_TRUE(open(40'000, "1").ok());
  const Status status = open(20'000, "1");
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(base::Message(status), AllOf(HasSubstr(bin_), HasSubstr("has id 20000"),
                                           HasSubstr("vocabulary of 20000 (document 50)")));
  EXPECT_TRUE(open(20'000, "50,50").ok()) << "what is not read may hold anything";
  // One long document, of which the end alone is wrong.
  NumberedDataset(prefix_, {100'000});
  EXPECT_FALSE(open(99'000, "1").ok());
}

TEST_F(ChangedFilesTest, OneDataSetToTrainOnAndToHoldOutIsSaid) {
  for (const char* ending : {".idx", ".bin"})
    fs::copy_file(prefix_ + ending, prefix_ + "2" + ending);
  NumberedDataset(dir_.Path("other"), {500});
  const auto open = [&](const std::string& valid) {
    return LogOf([&] {
      EXPECT_TRUE(OpenDataSource({.train = {{dir_.Path("other"), 1.0}, {prefix_, 1.0}},
                                  .valid = {{valid}},
                                  .seq_length = 16,
                                  .vocab_size = 40'000,
                                  .train_samples = 10,
                                  .valid_samples = kWholeSplit})
                      .ok());
    });
  };
  for (const std::string& valid : {prefix_, prefix_ + "2"})
    EXPECT_THAT(open(valid), AllOf(HasSubstr("trained on and held out"), HasSubstr("split=valid"),
                                   HasSubstr(valid)));
  NumberedDataset(dir_.Path("valid"), {500, 1});
  EXPECT_EQ(open(dir_.Path("valid")), "");
}

TEST(AllowChangedTest, OtherFilesAreTakenOtherOrdersAreNot) {
  const IndexRecord saved = {.split_name = "train",
                             .source = "/data/a",
                             .samples_asked = 100,
                             .epochs = 2,
                             .seq_length = 8,
                             .samples_built = 120,
                             .idx_digest = "aa",
                             .bin_digest = "cc"};
  IndexRecord current = saved;
  current.idx_digest = "bb";
  current.bin_digest = "dd";
  current.epochs = 1;
  current.samples_built = 110;
  const Status refused = CheckSameOrder(saved, current);
  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
  EXPECT_THAT(base::Message(refused), HasSubstr("data.allow_changed"));
  EXPECT_THAT(LogOf([&] { EXPECT_TRUE(CheckSameOrder(saved, current, {.files = true}).ok()); }),
              AllOf(HasSubstr("data.allow_changed"), HasSubstr("checkpoint 'cc', this run 'dd'")));
  current.samples_asked = 101;
  EXPECT_FALSE(CheckSameOrder(saved, current, {.files = true}).ok());
}

}  // namespace
}  // namespace mt::data
