// Independent pieces of work on a few threads. Blocking.
#pragma once

#include <cstdint>
#include <functional>

namespace mt::checkpoint {

// Calls `task(i)` for every i in [0, count), each once, on `threads` threads (at least one, at most
// `count`), in rising order of their beginnings. After a task that throws no other begins; what was
// thrown first is thrown again here, once all threads are done.
void RunTasks(int64_t count, int threads, const std::function<void(int64_t task)>& task);
// As many threads as the machine has cores.
int AllCores();

}  // namespace mt::checkpoint
