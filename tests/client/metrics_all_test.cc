// `mtctl metrics --all`: every step, page by page, in each format; rollbacks while it reads; and
// what a thinned answer says.
#include <map>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/client/fake_coordinator.h"
#include "tests/common/tensorboard/event_records.h"

namespace mt::client {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

constexpr int kPage = 4;  // steps of an answer, however many are asked for

// A history that answers as the coordinator does. `change` runs before each page.
class Steps {
 public:
  void Add(int64_t first, int64_t last, int64_t epoch) {
    at_.erase(at_.lower_bound(first), at_.end());
    for (int64_t step = first; step <= last; ++step) at_[step] = epoch;
    base_ = epoch == epoch_ ? base_ : first - 1;
    epoch_ = epoch;
  }
  std::function<void(int page)> change = [](int) {};
  std::vector<std::vector<std::string>> names;  // that were asked for, by page
  int64_t late_column = 1 << 30;                // first step that reports grad_norm

  v1::History Answer(const v1::QueryHistoryRequest& request) {
    v1::History out;
    const bool page = request.limit() > 1;
    if (page) {
      names.emplace_back(request.names().begin(), request.names().end());
      change(static_cast<int>(names.size()));
    }
    const int64_t to = request.to_step() > 0 ? request.to_step() : 1 << 30;
    const int64_t from = std::max(request.from_step(), request.after_step() + 1);
    out.set_epoch(epoch_);
    out.set_epoch_base(base_);
    out.set_first_step(1);
    out.set_last_step(at_.rbegin()->first);
    for (auto step = at_.lower_bound(from); step != at_.end() && step->first <= to; ++step) {
      if (request.limit() > 0 && out.steps_size() == std::min(kPage, request.limit())) break;
      if (request.limit() == 0) out.clear_steps();  // one point that stands for all
      out.add_steps(step->first);
      out.add_epochs(step->second);
    }
    if (request.limit() == 0) out.set_level(1);
    Column("loss", request, 1, &out);
    if (request.limit() == 0 ? known_late
                             : !out.steps().empty() && out.steps().rbegin()[0] >= late_column)
      Column("grad_norm", request, late_column, &out);
    const int64_t last = out.steps().empty() ? to : out.steps().rbegin()[0];
    if (request.limit() > 0 && last < std::min(to, at_.rbegin()->first)) out.set_next_step(last);
    return out;
  }
  bool known_late = true;  // grad_norm is in the answer for the whole range

 private:
  static void Column(const char* name, const v1::QueryHistoryRequest& request, int64_t from,
                     v1::History* out) {
    if (request.names_size() > 0 && request.names(0) != name) return;
    auto* column = out->add_columns();
    column->set_name(name);
    for (const int64_t step : out->steps())
      column->add_last(step < from ? std::nan("") : static_cast<double>(step) / 2);
  }
  std::map<int64_t, int64_t> at_;  // epochs of steps
  int64_t epoch_ = 0;
  int64_t base_ = 0;
};

class MetricsAllTest : public testing::Test {
 protected:
  void SetUp() override {
    server_.state().jobs = {MakeJob("tiny", v1::RUNNING)};
    server_.state().answer_history = [this](const v1::QueryHistoryRequest& request) {
      EXPECT_TRUE(request.limit() == 0 || request.job().uid() == "uid-of-tiny");
      return steps_.Answer(request);
    };
  }
  // "step/epoch" of each row of CSV.
  static std::vector<std::string> RowsOf(const std::string& csv) {
    std::vector<std::string> rows;
    std::istringstream lines(csv);
    std::string line;
    std::getline(lines, line);
    while (std::getline(lines, line)) {
      const size_t time = line.find(',');
      const size_t epoch = line.find(',', time + 1);
      rows.push_back(line.substr(0, time) + "/" +
                     line.substr(epoch + 1, line.find(',', epoch + 1) - epoch - 1));
    }
    return rows;
  }
  static std::vector<std::string> Wanted(std::vector<std::array<int, 3>> ranges) {
    std::vector<std::string> rows;
    for (const auto& [first, last, epoch] : ranges) {
      for (int step = first; step <= last; ++step)
        rows.push_back(std::to_string(step) + "/" + std::to_string(epoch));
    }
    return rows;
  }
  FakeCoordinator server_;
  Steps steps_;
};

TEST_F(MetricsAllTest, EveryStepInEveryFormat) {
  steps_.Add(1, 11, 1);
  const Ran csv = Mtctl(&server_, {"metrics", "tiny", "--all", "-o", "csv"});
  EXPECT_EQ(csv.code, 0);
  EXPECT_EQ(csv.err, "");
  EXPECT_EQ(RowsOf(csv.out), Wanted({{1, 11, 1}}));
  EXPECT_EQ(csv.out.find("step,time"), csv.out.rfind("step,time")) << "one header";
  const Ran jsonl = Mtctl(&server_, {"metrics", "tiny", "--all", "-o", "jsonl"});
  EXPECT_EQ(std::count(jsonl.out.begin(), jsonl.out.end(), '\n'), 11);
  const Ran table = Mtctl(&server_, {"metrics", "tiny", "--all"});
  EXPECT_EQ(std::count(table.out.begin(), table.out.end(), '\n'), 12) << "with its header";
  EXPECT_EQ(Mtctl(&server_, {"metrics", "tiny", "--all", "-o", "name"}).out,
            "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n11\n");
  EXPECT_EQ(Mtctl(&server_, {"metrics", "tiny", "--all", "-o", "none"}).out, "");
  EXPECT_EQ(
      RowsOf(Mtctl(&server_, {"metrics", "tiny", "--all", "--steps", "3:9", "-o", "csv"}).out),
      Wanted({{3, 9, 1}}));
  EXPECT_EQ(Mtctl(&server_, {"metrics", "tiny", "--all", "--points", "5"}).code, kExitUsage);
  EXPECT_EQ(Mtctl(&server_, {"metrics", "tiny", "--all", "-w"}).code, kExitUsage);
  EXPECT_EQ(Mtctl(&server_, {"metrics", "nobody", "--all"}).code, kExitInvalidInput);
}

TEST_F(MetricsAllTest, NamesAreAskedForAndMustExist) {
  steps_.Add(1, 6, 1);
  const Ran ran = Mtctl(&server_, {"metrics", "tiny", "--all", "-o", "csv", "--names", "loss"});
  EXPECT_THAT(ran.out, testing::StartsWith("step,time_us,epoch,loss,validation_loss,"
                                           "validation_perplexity,validation_bits_per_byte\r\n"));
  EXPECT_EQ(steps_.names, (std::vector<std::vector<std::string>>(2, {"loss"})));
  const Ran none = Mtctl(&server_, {"metrics", "tiny", "--all", "--names", "nope"});
  EXPECT_EQ(none.code, kExitInvalidInput);
  EXPECT_THAT(none.err, HasSubstr("has no metric nope"));
}

// A column that only later steps have is in the header from the first row on.
TEST_F(MetricsAllTest, ColumnsAreThoseOfTheWholeRange) {
  steps_.Add(1, 9, 1);
  steps_.late_column = 6;
  const Ran csv = Mtctl(&server_, {"metrics", "tiny", "--all", "-o", "csv"});
  EXPECT_THAT(csv.out, HasSubstr("epoch,loss,grad_norm,validation_loss,validation_perplexity,"
                                 "validation_bits_per_byte\r\n"));
  EXPECT_THAT(csv.out, HasSubstr("\n1,0,1,0.5,,,,\r\n"));
  EXPECT_THAT(csv.out, HasSubstr("\n6,0,1,3,3,,,\r\n"));
  EXPECT_EQ(csv.err, "");
  // It came up after the header was written: said, where rows do not name their columns.
  steps_.known_late = false;
  const Ran late = Mtctl(&server_, {"metrics", "tiny", "--all", "-o", "csv"});
  EXPECT_THAT(late.out, HasSubstr("\n6,0,1,3,,,\r\n"));
  EXPECT_THAT(late.err, HasSubstr("grad_norm came up while the steps were read and is left out"));
  const Ran lines = Mtctl(&server_, {"metrics", "tiny", "--all", "-o", "jsonl"});
  EXPECT_THAT(lines.out,
              HasSubstr("\"step\":6,\"time_us\":0,\"epoch\":1,\"loss\":3.0,\"grad_norm\":3.0"));
  EXPECT_EQ(lines.err, "");
}

TEST_F(MetricsAllTest, ARollbackRestartsTheWalkFromItsBase) {
  steps_.Add(1, 20, 1);
  steps_.change = [this](int page) {
    if (page == 4) steps_.Add(6, 14, 2);  // 12 steps were printed
  };
  const Ran ran = Mtctl(&server_, {"metrics", "tiny", "--all", "-o", "csv"});
  EXPECT_EQ(ran.code, 0);
  EXPECT_EQ(RowsOf(ran.out), Wanted({{1, 12, 1}, {6, 14, 2}}));
  EXPECT_THAT(ran.err, HasSubstr("a rollback replaced steps 6 to 12 while they were read"));
}

TEST_F(MetricsAllTest, ARollbackBehindWhatWasReadChangesNothing) {
  steps_.Add(1, 20, 1);
  steps_.change = [this](int page) {
    if (page == 2) steps_.Add(5, 14, 2);  // 4 steps were printed: none of them was replaced
  };
  const Ran ran = Mtctl(&server_, {"metrics", "tiny", "--all", "-o", "csv"});
  EXPECT_EQ(RowsOf(ran.out), Wanted({{1, 4, 1}, {5, 14, 2}}));
  EXPECT_EQ(ran.err, "");
}

// The newest epoch began behind what the one before it had replaced.
TEST_F(MetricsAllTest, SeveralRollbacksAtOnceMissNoStep) {
  steps_.Add(1, 20, 1);
  steps_.change = [this](int page) {
    if (page != 4) return;
    steps_.Add(3, 30, 2);
    steps_.Add(11, 16, 3);
  };
  const Ran ran = Mtctl(&server_, {"metrics", "tiny", "--all", "-o", "csv"});
  EXPECT_EQ(RowsOf(ran.out), Wanted({{1, 12, 1}, {3, 10, 2}, {11, 16, 3}}));
  EXPECT_THAT(ran.err, HasSubstr("replaced steps 3 to 12"));
}

TEST_F(MetricsAllTest, AThinnedAnswerSaysSoWithTheCommandForAll) {
  steps_.Add(1, 25, 1);
  const std::string place = " --coordinator " + server_.address() + "\n";
  const Ran csv = Mtctl(&server_, {"metrics", "tiny", "-o", "csv"});
  EXPECT_EQ(
      csv.err,
      "mtctl: thinned: 1 points for the steps 1 to 25; every step: mtctl metrics tiny --all -o "
      "csv" +
          place);
  const Ran some = Mtctl(&server_, {"metrics", "tiny", "--steps", "5:", "--names", "loss"});
  EXPECT_THAT(some.err, HasSubstr("steps 5 to 25; every step: mtctl metrics tiny --all --steps 5: "
                                  "--names loss" +
                                  place));
  EXPECT_THAT(Mtctl(&server_, {"metrics", "tiny", "--since", "10m", "-n", "default"}).err,
              HasSubstr("--all --since 600000ms -n default" + place));
  // Single steps are not thinned.
  server_.state().answer_history = [](const v1::QueryHistoryRequest&) {
    v1::History out;
    out.add_steps(1);
    return out;
  };
  EXPECT_EQ(Mtctl(&server_, {"metrics", "tiny"}).err, "");
}

TEST_F(MetricsAllTest, AsAnEventFile) {
  steps_.Add(1, 6, 1);
  steps_.late_column = 6;
  server_.state().answer_history = [this](const v1::QueryHistoryRequest& request) {
    v1::History page = steps_.Answer(request);
    if (page.steps().empty() || page.steps(0) > 4) return page;
    auto* samples = page.add_columns();
    samples->set_name("consumed_samples");
    auto* bits = page.add_columns();
    bits->set_name("bits_per_byte");
    for (const int64_t step : page.steps()) {
      page.add_times_us(1'000'000 * step);
      samples->add_last(static_cast<double>(8 * step));
      bits->add_last(step == 3 ? 1.5 : std::nan(""));
    }
    auto* eval = page.add_evals();
    eval->set_step(4);
    eval->set_loss(0.75);
    return page;
  };
  const Ran ran = Mtctl(&server_, {"metrics", "tiny", "--all", "-o", "tensorboard"});
  EXPECT_EQ(ran.code, 0);
  EXPECT_EQ(ran.err, "");
  EXPECT_THAT(
      tensorboard::EventLinesOf(ran.out),
      testing::ElementsAre("brain.Event:2", "start 1", "1 lm loss=0.5", "1 consumed_samples=8",
                           "1 batch-size=8", "2 lm loss=1", "2 consumed_samples=16",
                           "2 batch-size=8", "3 lm loss=1.5", "3 consumed_samples=24",
                           "3 batch-size=8", "3 bits_per_byte=1.5", "4 lm loss=2",
                           "4 consumed_samples=32", "4 batch-size=8", "4 lm loss validation=0.75",
                           "5 lm loss=2.5", "5 grad-norm=nan", "6 lm loss=3", "6 grad-norm=3"));
  EXPECT_EQ(tensorboard::EventRecordsOf(ran.out)[2].wall_time(), 1);
}

TEST_F(MetricsAllTest, AnEventFileSaysWhatComesAgain) {
  steps_.Add(1, 12, 1);
  steps_.change = [this](int page) {
    if (page == 3) steps_.Add(3, 10, 2);
  };
  const Ran ran = Mtctl(&server_, {"metrics", "tiny", "--all", "-o", "tensorboard"});
  const std::vector<std::string> lines = tensorboard::EventLinesOf(ran.out);
  EXPECT_THAT(lines, testing::Contains("start 1"));
  const auto again = std::find(lines.begin(), lines.end(), "start 3");
  ASSERT_NE(again, lines.end());
  ASSERT_NE(again + 1, lines.end());
  EXPECT_EQ(*(again + 1), "3 lm loss=1.5");
}

TEST_F(MetricsAllTest, AnEventFileIsOfAllStepsOfAJob) {
  steps_.Add(1, 3, 1);
  const Ran some = Mtctl(&server_, {"metrics", "tiny", "-o", "tensorboard"});
  EXPECT_EQ(some.code, kExitUsage);
  EXPECT_THAT(some.err, HasSubstr("--all"));
  EXPECT_EQ(Mtctl(&server_, {"metrics", "tiny", "-w", "-o", "tensorboard"}).code, kExitUsage);
  const Ran jobs = Mtctl(&server_, {"get", "jobs", "-o", "tensorboard"});
  EXPECT_EQ(jobs.code, kExitUsage);
  EXPECT_THAT(jobs.err, HasSubstr("`mtctl metrics`"));
}

}  // namespace
}  // namespace mt::client
