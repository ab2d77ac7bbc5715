#include "lockstep/comm/job/process.h"

#include <fcntl.h>
#include <mutex>
#include <pthread.h>
#include <set>
#include <unistd.h>

namespace lockstep::comm::job {
namespace {

struct Descriptors {
  Descriptors();

  std::mutex mutex;
  std::set<int> kept;
};

// Never destroyed: sockets may be closed while the program ends.
Descriptors& descriptors() {
  static auto* all = new Descriptors;
  return *all;
}

void lock_all() { descriptors().mutex.lock(); }

void unlock_all() { descriptors().mutex.unlock(); }

void replace_all() {
  const int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
  for (const int descriptor : descriptors().kept) dup3(nothing, descriptor, O_CLOEXEC);
  close(nothing);
  unlock_all();
}

Descriptors::Descriptors() { pthread_atfork(&lock_all, &unlock_all, &replace_all); }

}  // namespace

void keep_from_children(int descriptor) {
  const std::lock_guard lock(descriptors().mutex);
  descriptors().kept.insert(descriptor);
}

void close_descriptor(int descriptor) {
  const std::lock_guard lock(descriptors().mutex);
  descriptors().kept.erase(descriptor);
  close(descriptor);
}

}  // namespace lockstep::comm::job
