#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <ATen/Parallel.h>
#include <c10/util/Exception.h>

#include "lockstep/comm/exchange_group.h"
#include "lockstep/comm/group.h"
#include "lockstep/comm/rendezvous.h"

namespace lockstep::tests {

/// Runs `body(rank)` for every rank on a thread of its own, as replicas do: a rank that ends leaves the rendezvous.
/// Returns what each rank threw, null where it threw nothing. The rendezvous is reset first.
inline std::vector<std::exception_ptr> run_ranks(comm::Rendezvous& rendezvous, const std::function<void(int)>& body) {
  rendezvous.reset();
  std::vector<std::exception_ptr> errors(static_cast<size_t>(rendezvous.size()));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < rendezvous.size(); ++rank) {
    threads.emplace_back([&, rank] {
      at::set_num_threads(1);
      auto& error = errors[static_cast<size_t>(rank)];
      try {
        body(rank);
      } catch (...) {
        error = std::current_exception();
      }
      rendezvous.leave(rank, error);
    });
  }
  for (auto& thread : threads) thread.join();
  return errors;
}

/// Returns the message of an error without its backtrace, or an empty text.
inline std::string message_of(const std::exception_ptr& error) {
  if (!error) return "";
  try {
    std::rethrow_exception(error);
  } catch (const c10::Error& e) {
    return e.what_without_backtrace();
  } catch (const std::exception& e) {
    return e.what();
  }
}

/// Runs `body(group)` for every rank of a new group of `size`; the first error of any rank is thrown here.
inline void run_groups(int size, const std::function<void(const comm::Group&)>& body) {
  const auto rendezvous = std::make_shared<comm::Rendezvous>(size, "test");
  const auto groups = comm::make_local_groups(rendezvous);
  const auto errors = run_ranks(*rendezvous, [&](int rank) { body(groups[static_cast<size_t>(rank)]); });
  for (const auto& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

}  // namespace lockstep::tests
