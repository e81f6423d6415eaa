// Pages of `mtctl top` as pure text: golden pages (top_pages.txt; MT_GOLDEN_WRITE=1 writes them
// anew), and what holds for every width and height.
#include "client/output/top.h"

#include <cctype>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "client/output/format.h"
#include "client/output/top_fields.h"
#include "megatrain/v1/reading.pb.h"
#include "megatrain/v1/types.pb.h"
#include "tests/sanitized.h"

namespace mt::client {
namespace {

namespace v1 = megatrain::v1;

v1::Job NewJob(const std::string& name, v1::JobState state, int64_t step) {
  v1::Job job;
  job.set_uid("uid-" + name);
  job.set_name(name);
  job.set_state(state);
  job.set_slots(8);
  job.set_total_steps(4'000);
  v1::Parallel* parallel = job.mutable_spec()->mutable_parallel();
  parallel->set_tensor(2);
  parallel->set_pipeline(2);
  parallel->set_data(2);
  parallel->set_context(1);
  if (step > 0) {
    v1::StepRecord* last = job.mutable_last_step();
    last->set_step(step);
    last->set_step_seconds(0.1234);
    last->set_loss(2.34567);
    last->set_tokens_per_second(81'234);
  }
  return job;
}

class TopTest : public testing::Test {
 protected:
  TopTest() {
    jobs_.push_back(NewJob("gpt-demo", v1::RUNNING, 1'234));
    jobs_.push_back(
        NewJob("a-job-with-a-name-that-is-as-long-as-names-may-be-63-characters", v1::QUEUED, 0));
    for (int i = 0; i < 30; ++i)
      jobs_.push_back(NewJob(fmt::format("sweep-{}", i), v1::STARTING, i));
    v1::Job& job = jobs_.front();
    for (int rank = 0; rank < 8; ++rank) {
      v1::RankStatus* status = job.add_ranks();
      status->set_rank(rank);
      status->set_node(rank < 4 ? "node-a" : "node-b");
      status->set_state(rank == 7 ? v1::COMM_INIT : v1::TRAINING);
      status->set_gpu(fmt::format("GPU-8c5c3b0{}-aaaa", rank));
      if (rank == 7) continue;
      v1::RankReading* reading = readings_.add_ranks();
      reading->set_rank(rank);
      reading->set_step(1'234);
      reading->set_step_seconds(0.1 * (rank + 1));
      reading->set_age_ms(rank == 6 ? 12'000 : 800);
      reading->set_host_memory_bytes(int64_t{345} << 20);
      (*reading->mutable_memory_bytes())["weights"] = int64_t{11} << 30;
      (*reading->mutable_memory_bytes())["activations"] = int64_t{23} << 30;
      (*reading->mutable_phase_shares())["forward"] = 0.31;
      (*reading->mutable_phase_shares())["backward"] = 0.52;
      (*reading->mutable_phase_shares())["tp_comm"] = 0.10;
      (*reading->mutable_phase_shares())["pp_wait"] = 0.07;
      if (rank != 3) reading->set_gpu_utilization(0.97);
    }
  }
  // The list, or the ranks of the first job.
  TopModel Model(bool ranks) const {
    TopModel model;
    model.endpoint = "127.0.0.1:7070";
    for (const v1::Job& job : jobs_) model.jobs.push_back(&job);
    model.place.selected_uid = "uid-sweep-20";
    if (!ranks) return model;
    model.place.open_uid = "uid-gpt-demo";
    model.place.rank = 5;
    model.open = &jobs_.front();
    model.readings = &readings_;
    return model;
  }

  std::vector<v1::Job> jobs_;
  v1::RankReadings readings_;
};

std::string Join(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

// "0.123", "1234", "34.0": what a reader takes for a number.
std::set<std::string> NumbersOf(const std::string& text) {
  std::set<std::string> numbers;
  std::string number;
  for (const char c : text + " ") {
    if (std::isdigit(static_cast<unsigned char>(c)) != 0 || (c == '.' && !number.empty())) {
      number += c;
    } else {
      if (!number.empty()) numbers.insert(number);
      number.clear();
    }
  }
  return numbers;
}

TEST_F(TopTest, PagesAreTheGoldenOnes) {
  std::string pages;
  for (const bool ranks : {false, true}) {
    for (const int width : {60, 80, 120}) {
      for (const int height : {1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 24, 40}) {
        pages += fmt::format("=== {} {} x {}\n", ranks ? "ranks" : "jobs", width, height);
        pages += Join(TopPage(Model(ranks), {.width = width, .height = height}, {}));
      }
    }
    pages += fmt::format("=== {} plain\n", ranks ? "ranks" : "jobs");
    TopModel plain = Model(ranks);
    plain.keys = false;
    pages += Join(TopPage(plain, {}, {}));
  }
  if (std::getenv("MT_GOLDEN_WRITE") != nullptr) std::ofstream(MT_TOP_PAGES) << pages;
  std::ifstream file(MT_TOP_PAGES);
  std::stringstream golden;
  golden << file.rdbuf();
  EXPECT_EQ(pages, golden.str());
}

TEST_F(TopTest, NothingWrapsAndNoNumberIsCut) {
  for (const bool ranks : {false, true}) {
    TopModel model = Model(ranks);
    for (const bool silent : {false, true}) {
      if (silent) {
        model.silent_s = 75;
        model.trouble = "connect 127.0.0.1:7070: refused";
        model.place.paused = true;
      }
      const std::set<std::string> numbers = NumbersOf(Join(TopPage(model, {}, {})));
      for (int width = 1; width <= 140; width += width < 40 ? 1 : 5) {
        for (int height = 1; height <= 40; height += kSanitized ? 7 : 1) {
          const auto page = TopPage(model, {.width = width, .height = height}, {});
          ASSERT_LE(page.size(), static_cast<size_t>(height)) << width;
          for (const std::string& line : page) {
            ASSERT_LE(DisplayWidth(line), static_cast<size_t>(width)) << height << ": " << line;
            // Names may be shortened; their ends are marked.
            if (line.find('~') != std::string::npos) continue;
            for (const std::string& number : NumbersOf(line))
              ASSERT_TRUE(numbers.contains(number)) << number << " in: " << line;
          }
        }
      }
    }
  }
}

TEST_F(TopTest, TheSelectedOneIsAlwaysThere) {
  for (const bool ranks : {false, true}) {
    for (const int width : {60, 80, 120}) {
      for (int height = 2; height <= 40; ++height) {
        const std::string page =
            Join(TopPage(Model(ranks), {.width = width, .height = height}, {}));
        EXPECT_NE(page.find(ranks ? ">r5" : "> sweep-20"), std::string::npos)
            << width << " x " << height << "\n"
            << page;
      }
    }
  }
}

TEST_F(TopTest, ColoursChangeNoWidth) {
  const TopSize size{.width = 80, .height = 24};
  const auto plain = TopPage(Model(true), size, {});
  const auto painted = TopPage(Model(true), size, {.color = true});
  ASSERT_EQ(plain.size(), painted.size());
  EXPECT_NE(Join(plain), Join(painted));
  for (size_t i = 0; i < plain.size(); ++i)
    EXPECT_EQ(DisplayWidth(plain[i]), DisplayWidth(painted[i]));
}

TEST_F(TopTest, KeysLeadThroughJobsAndRanks) {
  TopModel model = Model(false);
  model.place = {};
  model.place = MoveTop(model, TopKey::kDown);
  EXPECT_EQ(model.place.selected_uid, jobs_[1].uid());
  model.place = MoveTop(model, TopKey::kUp);
  model.place = MoveTop(model, TopKey::kUp);
  EXPECT_EQ(model.place.selected_uid, jobs_[0].uid()) << "the first stays the first";
  model.place = MoveTop(model, TopKey::kEnter);
  EXPECT_EQ(model.place.open_uid, jobs_[0].uid());
  model.open = &jobs_[0];
  model.place = MoveTop(model, TopKey::kDown);
  EXPECT_EQ(model.place.rank, 2) << "the next row of two tensor ranks";
  model.place = MoveTop(model, TopKey::kRight);
  EXPECT_EQ(model.place.rank, 3);
  for (int i = 0; i < 9; ++i) model.place = MoveTop(model, TopKey::kDown);
  EXPECT_EQ(model.place.rank, 7);
  EXPECT_TRUE(MoveTop(model, TopKey::kPause).paused);
  model.place = MoveTop(model, TopKey::kBack);
  EXPECT_EQ(model.place.open_uid, "");
  EXPECT_EQ(model.place.selected_uid, jobs_[0].uid());
}

TEST(TopKeys, SequencesAreTakenWhole) {
  using enum TopKey;
  std::string bytes = "jk\033[A\033OB\033[5~x\r q";
  EXPECT_EQ(TakeTopKeys(&bytes, false),
            (std::vector<TopKey>{kDown, kUp, kUp, kDown, kEnter, kPause, kQuit}));
  EXPECT_EQ(bytes, "");
  bytes = "\033";
  EXPECT_TRUE(TakeTopKeys(&bytes, false).empty()) << "an arrow may be on its way";
  EXPECT_EQ(TakeTopKeys(&bytes, true), std::vector<TopKey>{kBack});
  bytes = "\033[";
  EXPECT_TRUE(TakeTopKeys(&bytes, false).empty());
  bytes += "B";
  EXPECT_EQ(TakeTopKeys(&bytes, false), std::vector<TopKey>{kDown});
  bytes = "\x03\x1a";
  EXPECT_EQ(TakeTopKeys(&bytes, false), (std::vector<TopKey>{kInterrupt, kSuspend}));
}

TEST(TopFields, GoWholeTheLeastFirst) {
  const std::vector<TopField> fields = {
      {.text = "job"}, {.text = "12.5 GiB", .goes = 1}, {.text = "forward 41%", .goes = 2}};
  EXPECT_EQ(FitFields(fields, 0, {}), "job  12.5 GiB  forward 41%");
  EXPECT_EQ(FitFields(fields, 20, {}), "job  12.5 GiB");
  EXPECT_EQ(FitFields(fields, 12, {}), "job");
  EXPECT_EQ(FitFields({{.text = "12.5 GiB"}}, 5, {}), "") << "not 12.5";
  EXPECT_EQ(FitFields({{.text = "nothing"}}, 5, {}), "noth~");
}

}  // namespace
}  // namespace mt::client
