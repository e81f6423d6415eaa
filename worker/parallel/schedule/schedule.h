// A pipeline schedule as data: for each stage the list of its actions, in the order in which it
// runs them. Generators make one (generate.h), the checker proves it sound (check.h), the printer
// draws it (print.h), one executor runs it. Pure values.
//
// Legend: p stages, m microbatches, v chunks per stage; position = chunk * p + stage is a chunk's
// place in the model. A stage has four links: activations in from stage - 1, out to stage + 1;
// gradients in from stage + 1, out to stage - 1, all modulo p (with v > 1 the last stage's chunk c
// feeds the first stage's chunk c + 1).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace mt::parallel {

enum class ScheduleKind : uint8_t { kGPipe, kOneFOneB, kInterleaved };
// "gpipe", "1f1b" or "interleaved".
std::string_view Name(ScheduleKind kind);

enum class ActionKind : uint8_t { kForward, kBackward };

// One forward or backward of a microbatch through a chunk of one stage.
struct Action {
  ActionKind kind = ActionKind::kForward;
  int microbatch = 0;
  int chunk = 0;  // index on this stage
  // The chunk's activation slot that the microbatch occupies from its forward to its backward.
  // Incoming tensors are written directly into it.
  int slot = 0;
  bool receives = false;  // its input arrives over a link
  bool sends = false;     // its output is sent over a link
  int peer_chunk = 0;     // if it sends: the receiver's chunk and slot
  int peer_slot = 0;
  bool operator==(const Action&) const = default;
};

// A complete schedule of one step or one evaluation pass.
struct Schedule {
  ScheduleKind kind = ScheduleKind::kOneFOneB;
  int stages = 1;
  int microbatches = 1;
  int chunks = 1;                            // per stage
  bool forward_only = false;                 // evaluation: a slot is free after its forward
  std::vector<std::vector<Action>> actions;  // [stage], in execution order
  std::vector<std::vector<int>> slots;       // [stage][chunk] most microbatches in flight
  // Positions between the model's ends whose chunks have no layers: they send the buffers on that
  // they receive.
  std::vector<int> hand_on;

  int position(int stage, int chunk) const { return chunk * stages + stage; }
  int num_positions() const { return stages * chunks; }
  int next_stage(int stage) const { return (stage + 1) % stages; }
  int previous_stage(int stage) const { return (stage + stages - 1) % stages; }
};

// "F3", or with more than one chunk "F3.1" (microbatch 3, chunk 1).
std::string ActionLabel(const Schedule& schedule, const Action& action);

}  // namespace mt::parallel
