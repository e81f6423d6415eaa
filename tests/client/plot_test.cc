// Curves in the terminal and as pictures: two of them without colour, smoothed, with perplexity, at
// several widths; pictures are read by a decoder of its own (decode_png.py).
#include "client/plot/plot.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <sstream>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "client/output/format.h"
#include "client/plot/axes.h"
#include "client/plot/plot_image.h"
#include "common/base/files.h"
#include "tests/client/fake_coordinator.h"
#include "tests/paths.h"

namespace mt::client {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

std::vector<std::string> LinesOf(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

TEST(PlotTest, AStraightLineInAscii) {
  const Series line{.name = "loss", .x = {0, 50, 100}, .y = {1, 0.5, 0}};
  EXPECT_EQ(Plot({line}, {.width = 30, .height = 9, .ascii = true}),
            "* loss\n"
            "1.0 +****\n"
            "    |    ******\n"
            "    |          *****\n"
            "0.5 +               ****\n"
            "    |                   ****\n"
            "0.0 +                       **\n"
            "    ++-----------+-----------+\n"
            "     0          50         100\n");
}

TEST(PlotTest, BrailleDotsMarksAndAxes) {
  const Series loss{.name = "loss", .x = {1, 2, 3, 4}, .y = {4, 3, 2, 1}};
  const Series valid{.name = "validation loss", .x = {2.5}, .y = {3.5}, .marks = true};
  const std::string text = Plot({loss, valid}, {.width = 40, .height = 10});
  EXPECT_THAT(text, HasSubstr("─ loss   o validation loss\n"));
  EXPECT_THAT(text, HasSubstr("4 ┤⠉⠒⠢"));  // the first point, at the top left
  EXPECT_THAT(text, HasSubstr("└"));
  EXPECT_THAT(text, HasSubstr("o"));
  size_t lines = 0;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line); ++lines)
    EXPECT_LE(DisplayWidth(line), 40U) << line;
  EXPECT_EQ(lines, 10U);
  const std::string colored = Plot({loss}, {.width = 40, .height = 10, .color = true});
  EXPECT_THAT(colored, HasSubstr("\033[36m"));
}

TEST(PlotTest, GapsSinglePointsAndNothing) {
  const double nan = std::nan("");
  EXPECT_EQ(Plot({}, {}), "");
  EXPECT_EQ(Plot({{.name = "x", .x = {1}, .y = {nan}}}, {}), "");
  EXPECT_THAT(Plot({{.name = "x", .x = {7}, .y = {0}}}, {.ascii = true}), HasSubstr("*"));
  // The curve stops at a value that is not finite.
  const std::string text = Plot({{.name = "x", .x = {0, 1, 2}, .y = {1, nan, 1}}},
                                {.width = 40, .height = 8, .ascii = true});
  EXPECT_EQ(std::count(text.begin(), text.end(), '*'), 3) << text;  // the title's and two points
}

TEST(PlotTest, TicksAreRound) {
  const auto near = [](double v) { return testing::DoubleNear(v, 1e-9); };
  EXPECT_THAT(RoundTicks(0, 100, 4), ElementsAre(near(0), near(50), near(100)));
  EXPECT_THAT(RoundTicks(2.31, 2.49, 4), ElementsAre(near(2.35), near(2.4), near(2.45)));
  EXPECT_THAT(RoundTicks(-1, 1, 4), ElementsAre(near(-1), near(-0.5), near(0), near(0.5), near(1)));
}

// A curve of `count` points from (1, from) to (count, to).
Series Straight(const std::string& name, int count, double from, double to, bool second = false) {
  Series out{.name = name, .second = second};
  for (int i = 0; i < count; ++i) {
    out.x.push_back(i + 1);
    out.y.push_back(from + (to - from) * i / (count - 1));
  }
  return out;
}

TEST(PlotTest, TwoRunsDifferWithoutColour) {
  const std::vector<Series> two = {Straight("one loss", 100, 4, 1),
                                   Straight("other loss", 100, 3, 2, true)};
  const std::string ascii = Plot(two, {.width = 60, .height = 12, .ascii = true});
  EXPECT_EQ(LinesOf(ascii)[0], "A * one loss   B + other loss");
  for (const char sign : {'A', 'B', '*', '+'})
    EXPECT_GE(std::count(ascii.begin(), ascii.end(), sign), 3) << sign << "\n" << ascii;
  const std::string braille = Plot(two, {.width = 60, .height = 12});
  EXPECT_EQ(LinesOf(braille)[0], "A ─ one loss   B ─ other loss");
  // Beside the legend's, several of each on the curves: A above B on the left, below it on the
  // right.
  const auto rows_of = [&](char letter) {
    std::vector<size_t> rows;
    const std::vector<std::string> lines = LinesOf(braille);
    for (size_t row = 1; row < lines.size(); ++row) {
      if (lines[row].find(letter) != std::string::npos) rows.push_back(row);
    }
    return rows;
  };
  ASSERT_GE(rows_of('A').size(), 3U) << braille;
  ASSERT_GE(rows_of('B').size(), 2U) << braille;
  EXPECT_LT(rows_of('A').front(), rows_of('B').front());
  EXPECT_GT(rows_of('A').back(), rows_of('B').back());
  // A curve that is too short for the way between letters has one in its middle.
  const std::string brief = Plot({Straight("one", 5, 4, 3), Straight("other", 200, 3, 2, true)},
                                 {.width = 60, .height = 12, .ascii = true});
  EXPECT_EQ(std::count(brief.begin(), brief.end(), 'A'), 2) << brief;
  // One run has no letters.
  EXPECT_THAT(Plot({two[0]}, {.width = 60, .ascii = true}), Not(HasSubstr("A")));
  const Series marks{.name = "m", .x = {50}, .y = {3.9}, .marks = true, .second = true};
  EXPECT_THAT(Plot({two[0], two[1], marks}, {.width = 60, .ascii = true}), HasSubstr("   x m\n"));
}

TEST(PlotTest, PerplexityStandsOnTheRight) {
  const std::string text = Plot({Straight("loss", 50, 2, 0)},
                                {.width = 60, .height = 11, .ascii = true, .perplexity = true});
  const std::vector<std::string> lines = LinesOf(text);
  EXPECT_EQ(lines[0], "* loss" + std::string(44, ' ') + "perplexity");
  EXPECT_TRUE(lines[1].starts_with("2 +*") && lines[1].ends_with("+ 7.39")) << text;
  EXPECT_TRUE(lines[8].starts_with("0 +") && lines[8].ends_with("*+ 1")) << text;
  EXPECT_EQ(PerplexityText(std::log(1234.0)), "1.2k");
  EXPECT_EQ(PerplexityText(0.5), "1.65");
  // There is no room for it in a narrow one.
  EXPECT_THAT(Plot({Straight("loss", 50, 2, 0)}, {.width = 40, .perplexity = true}),
              Not(HasSubstr("perplexity")));
}

TEST(PlotTest, NoLineIsWiderThanThePlot) {
  const std::string long_name(63, 'n');
  for (const int width : {30, 60, 80, 120}) {
    for (const bool ascii : {false, true}) {
      std::vector<Series> series = {Straight(long_name + " loss", 300, 9, 1),
                                    Straight("b loss", 300, 8, 2, true)};
      series.push_back({.name = "validation loss of it all", .x = {3}, .y = {2}, .marks = true});
      const std::string text =
          Plot(series, {.width = width, .height = 14, .ascii = ascii, .perplexity = true});
      const std::vector<std::string> lines = LinesOf(text);
      EXPECT_LE(lines.size(), 14U) << text;
      for (const std::string& line : lines)
        EXPECT_LE(DisplayWidth(line), static_cast<size_t>(width)) << line;
      for (const char* name : {"nnn", "B", "o validation"}) EXPECT_THAT(text, HasSubstr(name));
      const size_t widest = DisplayWidth(
          *std::ranges::max_element(lines, {}, [](const auto& l) { return DisplayWidth(l); }));
      EXPECT_GE(widest + 8, static_cast<size_t>(width)) << text;
    }
  }
}

TEST(SmoothedTest, IsTheExponentialAverageThatItSays) {
  // From 0 to 1 at x = 1: N steps later the old value counts 1/e of what the new ones do.
  Series step{.name = "s"};
  for (int x = 0; x <= 200; ++x) {
    step.x.push_back(x);
    step.y.push_back(x < 100 ? 0 : 1);
  }
  const Series smooth = Smoothed(step, 10);
  EXPECT_DOUBLE_EQ(smooth.y[0], 0);
  EXPECT_DOUBLE_EQ(smooth.y[99], 0);
  EXPECT_NEAR(smooth.y[109], 1 - std::exp(-1), 1e-4);  // after ten points of the new value
  EXPECT_NEAR(smooth.y[200], 1, 1e-4);
  // Not biased at its start, and thinning does not change what a step is.
  const Series constant = Smoothed({.name = "c", .x = {5, 6, 7}, .y = {3, 3, 3}}, 100);
  EXPECT_THAT(constant.y,
              ElementsAre(testing::DoubleEq(3), testing::DoubleEq(3), testing::DoubleEq(3)));
  const Series apart = Smoothed({.name = "a", .x = {0, 10}, .y = {0, 1}}, 10);
  EXPECT_DOUBLE_EQ(apart.y[1], 1 / (1 + std::exp(-1)));
  const Series gap = Smoothed({.name = "g", .x = {0, 1, 2}, .y = {2, std::nan(""), 2}}, 10);
  EXPECT_TRUE(std::isnan(gap.y[1]));
  EXPECT_DOUBLE_EQ(gap.y[2], 2);
}

// What the decoder, which shares no code with the encoder, finds in the file.
nlohmann::json Decoded(const std::string& path) {
  std::FILE* pipe =
      ::popen(("python3 " MT_SOURCE_DIR "/tests/client/decode_png.py " + path).c_str(), "r");
  std::string out;
  std::array<char, 4096> buffer{};
  for (size_t n = 0; (n = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;)
    out.append(buffer.data(), n);
  EXPECT_EQ(::pclose(pipe), 0) << out;
  return nlohmann::json::parse(out, nullptr, false);
}

std::string TempFile(const std::string& name) {
  return (std::filesystem::temp_directory_path() / (name + std::to_string(::getpid()))).string();
}

constexpr char kBlue[] = "0072b2";
constexpr char kOrange[] = "d55e00";

TEST(PlotImageTest, TheCurveIsWhereItsValuesAre) {
  const std::string path = TempFile("mt-plot-");
  const std::vector<Series> two = {Straight("one loss", 101, 4, 2),
                                   Straight("other loss", 101, 2, 4, true)};
  ASSERT_TRUE(
      base::WriteFileAtomic(
          path, PlotPng(two, {.width = 900, .height = 500, .y_name = "loss", .perplexity = true}))
          .ok());
  const nlohmann::json png = Decoded(path);
  EXPECT_EQ(png["width"], 900);
  EXPECT_EQ(png["height"], 500);
  // The axes: the longest runs of their colour. The curves begin and end in the corners.
  const int left = png["y_axis"]["x"], top = png["y_axis"]["from"], bottom = png["y_axis"]["to"];
  const int right = png["x_axis"]["to"];
  EXPECT_EQ(png["x_axis"]["y"], bottom);
  EXPECT_GT(right - left, 600);
  EXPECT_GT(bottom - top, 300);
  const auto has = [&](const char* color, int x, int y) {
    const nlohmann::json& columns = png["colors"][color];
    const auto rows = columns.find(std::to_string(x));
    if (rows == columns.end()) return false;
    return std::ranges::any_of(
        *rows, [&](const auto& row) { return std::abs(row.template get<int>() - y) <= 2; });
  };
  const int middle_x = (left + right) / 2;
  const int middle_y = (top + bottom) / 2;
  const int quarter_x = left + (right - left) / 4;
  const int quarter_y = top + (bottom - top) / 4;
  EXPECT_TRUE(has(kBlue, left + 1, top));
  EXPECT_TRUE(has(kBlue, right, bottom));
  EXPECT_TRUE(has(kBlue, quarter_x, quarter_y));
  EXPECT_FALSE(has(kBlue, quarter_x, middle_y));
  // The second curve rises, in dashes: of sixteen columns about eight have it.
  int dashed = 0;
  int solid = 0;
  for (int x = quarter_x; x < quarter_x + 16; ++x) {
    const int y = bottom - (bottom - top) * (x - left) / (right - left);
    dashed += has(kOrange, x, y) ? 1 : 0;
    solid += has(kBlue, x, top + bottom - y) ? 1 : 0;
  }
  EXPECT_GE(dashed, 7);
  EXPECT_LE(dashed, 11);
  EXPECT_EQ(solid, 16);
  EXPECT_TRUE(has(kBlue, middle_x, middle_y) || has(kOrange, middle_x, middle_y));
  // Ticks and their numbers on both sides, below, and the legend above.
  EXPECT_GE(static_cast<int>(png["ink"]["left"]), 300);
  EXPECT_GE(static_cast<int>(png["ink"]["right"]), 300);
  EXPECT_GE(static_cast<int>(png["ink"]["below"]), 300);
  EXPECT_GE(static_cast<int>(png["ink"]["above"]), 300);
  std::filesystem::remove(path);
  EXPECT_EQ(PlotPng({}, {}), "");
}

class PlotCommandTest : public testing::Test {
 protected:
  void SetUp() override {
    server_.state().jobs = {MakeJob("tiny", v1::RUNNING), MakeJob("other", v1::RUNNING)};
    v1::History& history = server_.state().history;
    auto* loss = history.add_columns();
    loss->set_name("loss");
    for (int step = 1; step <= 50; ++step) {
      history.add_steps(step);
      loss->add_last(5.0 - 0.05 * step);
    }
    history.add_evals()->set_step(25);
    history.mutable_evals(0)->set_loss(4.0);
    history.mutable_evals(0)->set_split("valid");
  }
  Ran Run(std::vector<std::string> args) const {
    args.insert(args.begin(), {"plot", "tiny", "loss", "--ascii"});
    return Mtctl(&server_, args);
  }
  FakeCoordinator server_;
};

TEST_F(PlotCommandTest, DrawsTrainAndValidationLoss) {
  const Ran ran = Run({"--width", "60", "--height", "12"});
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(LinesOf(ran.out)[0],
            "* loss   o validation loss" + std::string(24, ' ') + "perplexity");
  EXPECT_EQ(Mtctl(&server_, {"plot", "tiny", "-o", "json"}).code, kExitUsage);
  EXPECT_EQ(Mtctl(&server_, {"plot", "tiny", "grad_norm"}).code, kExitInvalidInput);
  server_.state().history.Clear();
  EXPECT_THAT(Mtctl(&server_, {"plot", "tiny"}).err, HasSubstr("no steps"));
}

TEST_F(PlotCommandTest, TwoJobsAndSmoothing) {
  const Ran ran = Run({"--vs", "other", "--smooth", "20", "--width", "120"});
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(LinesOf(ran.out)[0].substr(0, 75),
            "A * tiny loss (EMA over 20 steps)   o tiny validation loss   B + other loss");
  EXPECT_EQ(server_.state().asked.points(), 10000);  // an average wants every step
  EXPECT_EQ(Run({"--vs", "nobody"}).code, kExitInvalidInput);
  EXPECT_THAT(Run({"--vs", "other", "--attempt", "1"}).err, HasSubstr("do not go together"));
  EXPECT_EQ(Run({"--smooth", "0"}).code, kExitUsage);
  // A thinned answer says how many points the average is of.
  for (int i = 0; i < 50; ++i) server_.state().history.set_steps(i, 25 * (i + 1));
  EXPECT_THAT(Run({"--smooth", "100", "--width", "120"}).out,
              HasSubstr("loss (EMA over 100 steps, 1 point in 25)"));
  server_.state().history.mutable_columns(0)->set_name("grad_norm");
  const Ran other = Mtctl(&server_, {"plot", "tiny", "grad_norm", "--ascii"});
  EXPECT_EQ(other.code, 0) << other.err;
  EXPECT_THAT(other.out, Not(HasSubstr("perplexity")));
}

// Evaluations in the units that they are known in are marks of these metrics, too.
TEST_F(PlotCommandTest, OtherUnitsOfTheLossHaveTheirEvaluations) {
  v1::History& history = server_.state().history;
  history.mutable_columns(0)->set_name("bits_per_byte");
  EXPECT_EQ(LinesOf(Mtctl(&server_, {"plot", "tiny", "bits_per_byte", "--ascii"}).out)[0],
            "* bits_per_byte")
      << "none is known";
  history.mutable_evals(0)->set_bits_per_byte(3.5);
  history.mutable_evals(0)->set_perplexity(40);
  EXPECT_EQ(LinesOf(Mtctl(&server_, {"plot", "tiny", "bits_per_byte", "--ascii"}).out)[0],
            "* bits_per_byte   o validation bits_per_byte");
  history.mutable_columns(0)->set_name("perplexity");
  EXPECT_EQ(LinesOf(Mtctl(&server_, {"plot", "tiny", "perplexity", "--ascii"}).out)[0],
            "* perplexity   o validation perplexity");
}

TEST_F(PlotCommandTest, EachCurveIsThatOfItsJob) {
  constexpr char kOther[] = "22222222-d9cb-469f-a165-70867728950e";
  server_.state().jobs[1].set_uid(kOther);
  server_.state().answer_history = [&](const v1::QueryHistoryRequest& request) {
    v1::History out = server_.state().history;
    for (double& loss : *out.mutable_columns(0)->mutable_last())
      loss = request.job().uid() == kOther ? 1 : 3;
    out.clear_evals();
    return out;
  };
  const std::vector<std::string> lines = LinesOf(Run({"--vs", "other", "--height", "12"}).out);
  EXPECT_THAT(lines[1], HasSubstr("*A*"));
  EXPECT_THAT(lines[9], HasSubstr("+B+"));
}

TEST_F(PlotCommandTest, WritesAPicture) {
  const std::string path = TempFile("mt-plot-command-");
  const Ran ran = Run({"--vs", "other", "--png", path});
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(ran.out, "");
  EXPECT_EQ(ran.err, "wrote " + path + " (1200 x 700)\n");
  const nlohmann::json png = Decoded(path);
  EXPECT_EQ(png["width"], 1200);
  EXPECT_GT(png["colors"][kBlue].size(), 500U);
  EXPECT_EQ(server_.state().asked.points(), 2400);
  std::filesystem::remove(path);
  EXPECT_EQ(Run({"--png", "/nonexistent/x.png"}).code, kExitIo);
  server_.state().history.Clear();
  const Ran none = Run({"--png", path});
  EXPECT_EQ(none.code, kExitInvalidInput);
  EXPECT_THAT(none.err, HasSubstr("is not written"));
  EXPECT_FALSE(std::filesystem::exists(path));
}

}  // namespace
}  // namespace mt::client
