#include "bench/own_process.h"

#include <csignal>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

namespace lockstep::bench {
namespace {

// The end of the pipe shows that no process has it any more.
TEST(OwnProcessTest, EndsWithItsParent) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t parent = fork();
  if (parent == 0) {
    close(ends[0]);
    in_own_process("a test", [&] {
      [[maybe_unused]] const ssize_t told = write(ends[1], "s", 1);
      pause();
    });
    _exit(0);
  }
  close(ends[1]);
  char byte = 0;
  ASSERT_EQ(read(ends[0], &byte, 1), 1) << "it must start";
  kill(parent, SIGKILL);
  waitpid(parent, nullptr, 0);
  pollfd entry{ends[0], POLLIN, 0};
  ASSERT_EQ(poll(&entry, 1, 60'000), 1) << "it still runs";
  EXPECT_EQ(read(ends[0], &byte, 1), 0);
  close(ends[0]);
}

}  // namespace
}  // namespace lockstep::bench
