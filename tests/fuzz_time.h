// How long a fuzzer goes on and from which seed: so many rounds from a fixed one (with
// MT_LONG_TESTS forty times as many), or with MT_FUZZ_SECONDS so long from a new one, which
// MT_FUZZ_SEED repeats. scripts/fuzz.sh runs them so, side by side, under sanitizers: there a
// fixed seed has a tenth of the rounds.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <random>
#include <string>

#include <gtest/gtest.h>

#include "tests/sanitized.h"

namespace mt {

// In a test: FuzzTime time(1000, 7); Mutator mutator(time.seed()); while (time.Next()) { ... }
class FuzzTime {
 public:
  FuzzTime(int64_t rounds, uint64_t seed) : seed_(seed) {
    const auto of = [](const char* name) {
      const char* const value = std::getenv(name);
      return value == nullptr ? std::string() : std::string(value);
    };
    const std::string seconds = of("MT_FUZZ_SECONDS");
    if (seconds.empty()) {
      rounds_ = (kSanitized ? rounds / 10 : rounds) * (of("MT_LONG_TESTS").empty() ? 1 : 40);
      return;
    }
    timed_ = true;
    end_ = std::chrono::steady_clock::now() + std::chrono::seconds(std::stoll(seconds));
    const std::string given = of("MT_FUZZ_SEED");
    seed_ = given.empty() ? std::random_device()() : std::stoull(given);
    // Before the first round, since one may end the process.
    std::cout << "seed " << seed_ << ": MT_FUZZ_SEED=" << seed_ << " repeats these inputs"
              << std::endl;
  }
  FuzzTime(const FuzzTime&) = delete;
  FuzzTime& operator=(const FuzzTime&) = delete;
  ~FuzzTime() {
    if (testing::Test::HasFailure()) {
      std::cout << "failed in round " << round_ << " of seed " << seed_ << std::endl;
    } else if (timed_) {
      std::cout << round_ << " rounds of seed " << seed_ << std::endl;
    }
  }

  // True while there is another round; false after a failure.
  bool Next() {
    if (testing::Test::HasFailure()) return false;
    if (timed_ ? std::chrono::steady_clock::now() >= end_ : round_ >= rounds_) return false;
    ++round_;
    return true;
  }
  int64_t round() const { return round_; }  // from 1
  uint64_t seed() const { return seed_; }

 private:
  uint64_t seed_;
  int64_t rounds_ = 0;
  int64_t round_ = 0;
  bool timed_ = false;
  std::chrono::steady_clock::time_point end_{};
};

}  // namespace mt
