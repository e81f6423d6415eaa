// The title comes first and the keys last; between them what the height leaves.
#include "client/output/top.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "client/output/format.h"
#include "client/output/live_line.h"
#include "client/output/top_fields.h"
#include "client/output/top_ranks.h"
#include "common/base/plain_text.h"
#include "common/spec/derived.h"
#include "megatrain/v1/types.pb.h"

namespace mt::client {
namespace {

namespace v1 = megatrain::v1;

int SelectedJob(const TopModel& model) {
  const auto at =
      std::ranges::find(model.jobs, model.place.selected_uid,
                        [](const v1::Job* job) -> const std::string& { return job->uid(); });
  return at == model.jobs.end() ? 0 : static_cast<int>(at - model.jobs.begin());
}

int SelectedRank(const TopModel& model) {
  const int ranks = model.open == nullptr ? 0 : model.open->ranks_size();
  return std::clamp(model.place.rank, 0, std::max(0, ranks - 1));
}

// What every title ends with: no answer, and that the page stands still.
void AddTrouble(const TopModel& model, std::vector<TopField>* fields) {
  if (model.silent_s > 0) {
    fields->push_back({.text = fmt::format("no answer for {}", FormatDuration(model.silent_s)),
                       .goes = 1,
                       .tone = Tone::kBad});
  }
  if (model.place.paused) fields->push_back({.text = "paused", .goes = 2, .tone = Tone::kBusy});
  if (!model.trouble.empty())
    fields->push_back({.text = base::CleanLine(model.trouble), .goes = 90, .tone = Tone::kBad});
}

std::string KeysLine(const TopModel& model, int width, const Style& style) {
  std::vector<TopField> keys = {{.text = "q quit", .goes = 0, .tone = Tone::kDim}};
  const auto add = [&](const char* text) {
    keys.push_back({.text = text, .goes = static_cast<int>(keys.size()), .tone = Tone::kDim});
  };
  if (model.place.open_uid.empty()) {
    add("Enter ranks");
    add("j/k or arrows choose");
  } else {
    add("Esc back");
    add("h/j/k/l or arrows choose");
  }
  add(model.place.paused ? "Space go on" : "Space stand still");
  return FitFields(std::move(keys), width, style);
}

// `count` lines around the selected one.
std::vector<std::string> Window(const std::vector<std::string>& lines, int selected, int count) {
  const int size = static_cast<int>(lines.size());
  if (count >= size) return lines;
  if (count <= 0) return {};
  const int first = std::clamp(selected - count / 2, 0, size - count);
  return {lines.begin() + first, lines.begin() + first + count};
}

std::string StepText(const v1::Job& job) {
  if (!job.has_last_step() && job.total_steps() == 0) return "-";
  return job.total_steps() > 0 ? fmt::format("{}/{}", job.last_step().step(), job.total_steps())
                               : fmt::format("{}", job.last_step().step());
}

std::vector<std::string> JobsTable(const TopModel& model, int width, const Style& style) {
  TopColumn name{.header = "JOB", .goes = 0, .is_name = true};
  TopColumn state{.header = "STATE", .goes = 1, .is_state = true};
  TopColumn step{.header = "STEP", .goes = 2, .right = true};
  TopColumn seconds{.header = "S/STEP", .goes = 3, .right = true};
  TopColumn loss{.header = "LOSS", .goes = 4, .right = true};
  TopColumn rate{.header = "TOK/S", .goes = 5, .right = true};
  TopColumn eta{.header = "LEFT", .goes = 6, .right = true};
  TopColumn slots{.header = "SLOTS", .goes = 7, .right = true};
  TopColumn mesh{.header = "LAYOUT", .goes = 8};
  for (const v1::Job* job : model.jobs) {
    const v1::StepRecord& last = job->last_step();
    const bool stepped = job->has_last_step();
    name.cells.push_back(job->name());
    state.cells.push_back(StateText(*job));
    step.cells.push_back(StepText(*job));
    seconds.cells.push_back(stepped ? fmt::format("{:.3f}", last.step_seconds()) : "-");
    loss.cells.push_back(stepped ? fmt::format("{:.4f}", last.loss()) : "-");
    rate.cells.push_back(stepped ? FormatRate(last.tokens_per_second()) : "-");
    eta.cells.push_back(TimeLeftText(*job));
    slots.cells.push_back(std::to_string(job->slots()));
    mesh.cells.push_back(spec::MeshText(job->spec()));
  }
  return FitTable({name, state, step, seconds, loss, rate, eta, slots, mesh}, SelectedJob(model),
                  width, style);
}

std::vector<std::string> JobsPage(const TopModel& model, const TopSize& size, const Style& style) {
  std::vector<TopField> title = {{.text = "mtctl top", .goes = 0}};
  AddTrouble(model, &title);
  title.push_back(
      {.text = fmt::format("{} live job{}", model.jobs.size(), model.jobs.size() == 1 ? "" : "s"),
       .goes = 3});
  title.push_back({.text = model.endpoint, .goes = 4});
  std::vector<std::string> table = JobsTable(model, size.width, style);
  if (model.jobs.empty())
    table = {"", model.answered ? "  no live jobs" : "  waiting for an answer"};
  const std::string header = table.front();
  table.erase(table.begin());
  std::vector<std::string> page = {FitFields(std::move(title), size.width, style)};
  const bool unlimited = size.height <= 0;
  const bool with_header = unlimited || size.height >= 3;
  const bool with_keys = model.keys && (unlimited || size.height >= 4);
  if (with_header) page.push_back(header);
  const int rows = size.height - 1 - (with_header ? 1 : 0) - (with_keys ? 1 : 0);
  for (std::string& row : unlimited ? table : Window(table, SelectedJob(model), rows))
    page.push_back(std::move(row));
  if (with_keys) page.push_back(KeysLine(model, size.width, style));
  return page;
}

// Lines beside the grid, those that matter more first, which a low screen leaves out from behind.
std::vector<std::string> Beside(const TopModel& model, int width, const Style& style) {
  const v1::Job& job = *model.open;
  std::vector<std::string> lines;
  if (job.has_last_step()) {
    lines.push_back(
        LiveLine(job, job.last_step(), job.last_step().step_seconds(), "", width <= 0 ? 0 : width));
    if (width > 0 && DisplayWidth(lines.back()) > static_cast<size_t>(width)) lines.back().clear();
  } else {
    lines.push_back(job.message().empty()
                        ? "no step yet"
                        : Shortened(base::CleanLine(job.message()), width <= 0 ? 200 : width));
  }
  for (std::string& line : DescribeRank(job, model.readings, SelectedRank(model), width, style))
    lines.push_back(std::move(line));
  return lines;
}

std::vector<std::string> RanksPage(const TopModel& model, const TopSize& size, const Style& style) {
  const v1::Job& job = *model.open;
  const int width = size.width;
  std::vector<TopField> title = {
      {.text = width > 0 ? Shortened(job.name(), std::max(8, width / 3)) : job.name(), .goes = 0},
      {.text = StateText(job), .goes = 3, .tone = ToneOfState(StateText(job))}};
  AddTrouble(model, &title);
  title.push_back({.text = spec::MeshText(job.spec()), .goes = 5});
  title.push_back({.text = model.endpoint, .goes = 6});
  std::vector<std::string> page = {FitFields(std::move(title), width, style)};
  RankGrid grid = DrawRanks(job, model.readings, SelectedRank(model), width);
  if (grid.lines.empty()) grid.lines.emplace_back("  no ranks yet");
  const std::vector<std::string> beside = Beside(model, width, style);
  const int rows = static_cast<int>(grid.lines.size());
  const bool unlimited = size.height <= 0;
  // The grid keeps up to three lines before anything else is shown; keys come first of the rest.
  const int others =
      unlimited ? static_cast<int>(beside.size()) + 1 : size.height - 1 - std::min(rows, 3);
  const bool with_keys = model.keys && others > 0;
  const auto shown = static_cast<size_t>(
      std::clamp(others - (with_keys ? 1 : 0), 0, static_cast<int>(beside.size())));
  if (shown > 0) page.push_back(beside.front());
  const int left = size.height - 1 - static_cast<int>(shown) - (with_keys ? 1 : 0);
  for (std::string& line : unlimited ? grid.lines : Window(grid.lines, grid.selected_line, left))
    page.push_back(std::move(line));
  for (size_t i = 1; i < shown; ++i) page.push_back(beside[i]);
  if (with_keys) page.push_back(KeysLine(model, width, style));
  return page;
}

}  // namespace

std::vector<std::string> TopPage(const TopModel& model, const TopSize& size, const Style& style) {
  if (model.place.open_uid.empty()) return JobsPage(model, size, style);
  if (model.open != nullptr) return RanksPage(model, size, style);
  std::vector<TopField> title = {
      {.text = model.answered ? "no such job any more" : "waiting for an answer", .goes = 0}};
  AddTrouble(model, &title);
  std::vector<std::string> page = {FitFields(std::move(title), size.width, style)};
  if (model.keys && size.height != 1) page.push_back(KeysLine(model, size.width, style));
  return page;
}

std::vector<TopKey> TakeTopKeys(std::string* bytes, bool last) {
  static constexpr std::array<std::pair<std::string_view, TopKey>, 20> kKeys = {
      {{"\033[A", TopKey::kUp},      {"\033OA", TopKey::kUp},    {"k", TopKey::kUp},
       {"\033[B", TopKey::kDown},    {"\033OB", TopKey::kDown},  {"j", TopKey::kDown},
       {"\033[C", TopKey::kRight},   {"\033OC", TopKey::kRight}, {"l", TopKey::kRight},
       {"\033[D", TopKey::kLeft},    {"\033OD", TopKey::kLeft},  {"h", TopKey::kLeft},
       {"\r", TopKey::kEnter},       {"\n", TopKey::kEnter},     {"\x7f", TopKey::kBack},
       {"\b", TopKey::kBack},        {" ", TopKey::kPause},      {"q", TopKey::kQuit},
       {"\x03", TopKey::kInterrupt}, {"\x1a", TopKey::kSuspend}}};
  std::vector<TopKey> keys;
  std::string_view left = *bytes;
  while (!left.empty()) {
    const auto* const known =
        std::ranges::find_if(kKeys, [&](const auto& key) { return left.starts_with(key.first); });
    if (known != kKeys.end()) {
      keys.push_back(known->second);
      left.remove_prefix(known->first.size());
      continue;
    }
    if (left.front() != '\033') {
      left.remove_prefix(1);
      continue;
    }
    // A sequence: ESC, [ or O, parameters, and a letter that ends it.
    const bool begun = left.size() > 1 && (left[1] == '[' || left[1] == 'O');
    size_t end = 2;
    while (begun && end < left.size() && (left[end] < '@' || left[end] > '~')) ++end;
    if (begun && end < left.size()) {
      left.remove_prefix(end + 1);
    } else if ((begun || left.size() == 1) && !last) {
      break;
    } else {
      if (!begun) keys.push_back(TopKey::kBack);
      left.remove_prefix(begun ? left.size() : 1);
    }
  }
  *bytes = std::string(left);
  return keys;
}

TopPlace MoveTop(const TopModel& model, TopKey key) {
  TopPlace place = model.place;
  if (key == TopKey::kPause) {
    place.paused = !place.paused;
    return place;
  }
  if (place.open_uid.empty()) {
    if (model.jobs.empty()) return place;
    const int last = static_cast<int>(model.jobs.size()) - 1;
    const int by = key == TopKey::kUp ? -1 : key == TopKey::kDown ? 1 : 0;
    const v1::Job& job =
        *model.jobs[static_cast<size_t>(std::clamp(SelectedJob(model) + by, 0, last))];
    place.selected_uid = job.uid();
    if (key == TopKey::kEnter) {
      place.open_uid = job.uid();
      place.rank = 0;
    }
    return place;
  }
  if (key == TopKey::kBack) {
    place.selected_uid = std::exchange(place.open_uid, "");
    return place;
  }
  if (model.open == nullptr || model.open->ranks_size() == 0) return place;
  const int row = RanksInRow(*model.open);
  int to = SelectedRank(model);
  if (key == TopKey::kUp) to -= row;
  if (key == TopKey::kDown) to += row;
  if (key == TopKey::kLeft) to -= 1;
  if (key == TopKey::kRight) to += 1;
  if (to >= 0 && to < model.open->ranks_size()) place.rank = to;
  return place;
}

}  // namespace mt::client
