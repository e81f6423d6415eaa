// One table, by the command's path; three for each verb.
#include "client/commands/examples.h"

#include <algorithm>
#include <array>

#include <CLI/CLI.hpp>

namespace mt::client {
namespace {

struct Examples {
  std::string_view path;
  std::array<std::string_view, 3> lines;  // behind "mtctl "
};

constexpr Examples kExamples[] = {
    {"init", {"init", "init llama -f llama.yaml", "init gpt2-124m -f gpt2.yaml --name gpt2-demo"}},
    {"submit",
     {"submit -f job.yaml --follow", "submit -f job.yaml --set name=second --set optimizer.lr=3e-4",
      "submit -f job.yaml --dry-run"}},
    {"follow", {"follow gpt-demo", "attach gpt-demo", "follow gpt-demo -n team"}},
    {"bench",
     {"bench -f job.yaml", "bench -f job.yaml --steps 100 --warmup 20",
      "bench -f job.yaml -o json"}},
    {"validate",
     {"validate -f job.yaml", "validate -f job.yaml --set parallel.data=2",
      "validate -f job.yaml -o json"}},
    {"explain", {"explain job.optimizer.lr", "explain model", "explain memory -f job.yaml"}},
    {"explain schedule",
     {"explain schedule -f job.yaml", "explain schedule -f job.yaml --set parallel.pipeline=4",
      "explain schedule -f job.yaml -o json"}},
    {"explain memory",
     {"explain memory -f job.yaml", "explain memory -f job.yaml --set parallel.tensor=2",
      "explain memory -f job.yaml -o json"}},
    {"get", {"get jobs", "get nodes -o wide", "get checkpoints gpt-demo"}},
    {"describe", {"describe gpt-demo", "describe node n1", "describe gpt-demo -o json"}},
    {"events",
     {"events gpt-demo", "events gpt-demo -f",
      "events gpt-demo --types CheckpointFailed,RankFailed"}},
    {"logs", {"logs gpt-demo", "logs -f gpt-demo", "logs gpt-demo --ranks 0,3 --lines 500"}},
    {"metrics",
     {"metrics gpt-demo", "metrics gpt-demo --all -o csv",
      "metrics gpt-demo --steps 1:500 --names loss,grad_norm"}},
    {"plot",
     {"plot gpt-demo", "plot gpt-demo --vs llama-demo --smooth 20",
      "plot gpt-demo grad_norm --steps 500: --png grad_norm.png"}},
    {"samples",
     {"samples gpt-demo", "samples gpt-demo --step 1000", "samples gpt-demo --all -o json"}},
    {"top", {"top", "top gpt-demo", "top --once"}},
    {"wait",
     {"wait gpt-demo", "wait gpt-demo --for state=RUNNING --timeout 60",
      "wait gpt-demo --for checkpoint=1000"}},
    {"pause",
     {"pause gpt-demo --wait", "pause gpt-demo --release --wait",
      "pause gpt-demo --hold --reason maintenance"}},
    {"resume", {"resume gpt-demo", "resume gpt-demo --wait", "resume gpt-demo --allow-older"}},
    {"checkpoint",
     {"checkpoint gpt-demo --wait", "checkpoint save gpt-demo --tag best",
      "checkpoint list checkpoints/default/gpt-demo"}},
    {"profile",
     {"profile gpt-demo -o trace.json", "profile gpt-demo --steps 10 -o trace.json",
      "profile operations/0b7d5e42-9c1f-4a36-8e21-5d3f7c9a1b60 -o trace.json"}},
    {"generate",
     {"generate gpt-demo --prompt 'Once upon a time'",
      "generate gpt-demo --step 1000 --temperature 0.8 --top-k 40 --samples 3",
      "generate checkpoints/default/gpt-demo --prompt - --tokens 200 -o json"}},
    {"eval",
     {"eval gpt-demo -f tasks.yaml", "eval gpt-demo --tag best -f tasks.yaml -o json",
      "eval --dir checkpoints/default/gpt-demo -f tasks.yaml"}},
    {"update",
     {"update gpt-demo --set checkpoint.every_iters=100", "update gpt-demo --label team=nlp",
      "update gpt-demo --set priority=10"}},
    {"cancel",
     {"cancel gpt-demo --yes", "cancel gpt-demo --checkpoint --yes",
      "cancel gpt-demo --yes --no-wait"}},
    {"kill",
     {"kill gpt-demo --yes", "kill gpt-demo --yes --reason stuck",
      "kill gpt-demo --yes --no-wait"}},
    {"delete",
     {"delete gpt-demo --yes", "delete gpt-demo --yes --no-wait",
      "delete gpt-demo --yes --reason mistake"}},
    {"adopt",
     {"adopt gpt-demo", "adopt 0f8fad5b-d9cb-469f-a165-70867728950e",
      "adopt gpt-demo --reason restored"}},
    {"node",
     {"node declare-dead n1 --yes", "node readmit n1 --reason reinstalled",
      "node delete n1 --yes"}},
    {"admin",
     {"admin backup state.tar", "admin restore --yes", "admin restore --yes --reason backup"}},
    {"data",
     {"data prepare --input a.txt b.txt --output text_document --append-eod",
      "data inspect text_document --samples 3 --tokenizer byte",
      "data verify text_document --vocab-size 257"}},
    {"data prepare",
     {"data prepare --input a.txt b.txt --output text_document --append-eod",
      "data prepare --input texts --jsonl-key text --output text_document --append-eod",
      "data prepare --input a.txt.gz b.zst --separator % --output text_document"}},
    {"tokenizer",
     {"tokenizer train --input text.txt --output tokenizer.json --vocab-size 32000",
      "tokenizer inspect --tokenizer-file tokenizer.json",
      "tokenizer encode --tokenizer-file tokenizer.json text.txt"}},
    {"data merge",
     {"data merge a_document b_document --output both_document",
      "data merge a_document --output copy_document --overwrite",
      "data merge a_document b_document --output both_document -o json"}},
    {"data split",
     {"data split text_document --shares 9,1 --output part",
      "data split text_document --shares 969,30,1 --output part --overwrite",
      "data split text_document --shares 1,1 --output half -o json"}},
    {"data import",
     {"data import --input train.bin --eod 50256 --output text_document",
      "data import --input a.bin b.bin --vocab vocab.json --merges merges.txt --output "
      "text_document",
      "data import --input a.ds b.ds --tokenizer tokenizer.json --output text_document"}},
    {"dev", {"dev up --data-root data", "dev status", "dev down"}},
    {"context",
     {"context set lab --endpoint head:7070 --namespace team", "context use lab", "context list"}},
    {"completion", {"completion bash", "completion zsh", "completion fish"}},
    {"version", {"version", "version --client", "version -o json"}},
    {"help", {"help submit", "help checkpoint save", "help --man man1"}},
};

const Examples* ExamplesOf(std::string_view path) {
  const auto* at = std::ranges::find(kExamples, path, &Examples::path);
  return at == std::end(kExamples) ? nullptr : at;
}

void AddBelow(CLI::App* app, const std::string& above) {
  for (CLI::App* command : app->get_subcommands([](const CLI::App*) { return true; })) {
    const std::string path = above + (above.empty() ? "" : " ") + command->get_name();
    if (const Examples* examples = ExamplesOf(path)) {
      std::string text = "\nExamples:";
      for (const std::string_view line : examples->lines) text.append("\n  mtctl ").append(line);
      command->footer(text);
    }
    AddBelow(command, path);
  }
}

}  // namespace

void AddExamples(CLI::App* root) { AddBelow(root, ""); }

std::string FirstExample(std::string_view path) {
  const Examples* examples = ExamplesOf(path);
  const size_t above = path.rfind(' ');
  if (examples == nullptr)
    return above == std::string_view::npos ? "" : FirstExample(path.substr(0, above));
  return std::string("mtctl ").append(examples->lines[0]);
}

}  // namespace mt::client
