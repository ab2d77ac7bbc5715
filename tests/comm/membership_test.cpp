// The rules by which views of an elastic job are issued: single cases, and random events.

#include "lockstep/comm/views/membership.h"

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::comm::views {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<uint64_t> workers_of(const View& view) {
  std::vector<uint64_t> workers;
  for (const ViewMember& member : view.members) workers.push_back(member.worker);
  return workers;
}

class MembershipTest : public ::testing::Test {
 protected:
  void start(std::initializer_list<uint64_t> workers) {
    for (const uint64_t worker : workers) membership.start(worker, now);
  }
  void start_at(uint64_t machine, std::initializer_list<uint64_t> workers) {
    for (const uint64_t worker : workers) membership.start(worker, now, machine);
  }
  void ask(std::initializer_list<uint64_t> workers, AskReason reason = AskReason::Start) {
    for (const uint64_t worker : workers) membership.ask(worker, "host:" + std::to_string(worker), {}, now, reason);
  }

  Time now = Time() + std::chrono::hours(1);
  Membership membership{{.at_least = 2, .grace = 10s, .grace_of_silent = 1s, .start_time = 100s, .settle_time = 2s}};
};

TEST_F(MembershipTest, TheFirstViewWaitsForAllThatWereStarted) {
  start({5, 6, 7});
  ask({7, 5});
  EXPECT_FALSE(membership.issue());
  ask({6});
  const auto view = membership.issue();
  ASSERT_TRUE(view);
  EXPECT_EQ(view->number, 1u);
  EXPECT_THAT(workers_of(*view), ElementsAre(5, 6, 7));
  EXPECT_EQ(view->members[1].address, "host:6");
  EXPECT_FALSE(membership.issue());
}

TEST_F(MembershipTest, SurvivorsDoNotWaitForReplacementsAndKeepTheirOrder) {
  start({5, 6, 7});
  ask({5, 6, 7});
  ASSERT_TRUE(membership.issue());
  membership.end(5, false, now);
  start({8});
  ask({7});
  EXPECT_FALSE(membership.issue());
  ask({6});
  const auto second = membership.issue();
  ASSERT_TRUE(second);
  EXPECT_THAT(workers_of(*second), ElementsAre(6, 7));
  EXPECT_FALSE(membership.change_is_pending(now));
  ask({8});
  EXPECT_TRUE(membership.change_is_pending(now));
  EXPECT_FALSE(membership.issue());
  ask({6, 7});
  const auto third = membership.issue();
  ASSERT_TRUE(third);
  EXPECT_THAT(workers_of(*third), ElementsAre(6, 7, 8));
}

TEST_F(MembershipTest, BelowTheLeastNumberSurvivorsWaitForReplacements) {
  start({5, 6});
  ask({5, 6});
  ASSERT_TRUE(membership.issue());
  membership.end(5, false, now);
  ask({6});
  EXPECT_FALSE(membership.issue());
  start({8});
  EXPECT_FALSE(membership.issue());
  ask({8});
  const auto view = membership.issue();
  ASSERT_TRUE(view);
  EXPECT_THAT(workers_of(*view), ElementsAre(6, 8));
}

TEST_F(MembershipTest, WhoDoesNotAskInTimeIsOverdue) {
  start({5, 6, 7});
  ask({5, 6, 7});
  ASSERT_TRUE(membership.issue());
  membership.ask(5, "host:1", /*silent=*/7, now);
  EXPECT_THAT(membership.overdue(now), IsEmpty());
  EXPECT_EQ(membership.next_deadline(now), now + 1s);
  EXPECT_THAT(membership.overdue(now + 1s), ElementsAre(7));
  EXPECT_THAT(membership.overdue(now + 10s), ElementsAre(6, 7));
  start({9});
  EXPECT_THAT(membership.overdue(now + 100s), ElementsAre(6, 7, 9));
}

TEST_F(MembershipTest, NewWorkersWaitForOthersThatAreStartingButNotLong) {
  start({5, 6});
  ask({5, 6});
  ASSERT_TRUE(membership.issue());
  start({7, 8});
  ask({7});
  EXPECT_FALSE(membership.change_is_pending(now));
  EXPECT_EQ(membership.next_deadline(now), now + 2s);
  EXPECT_TRUE(membership.change_is_pending(now + 2s));
  ask({8});
  EXPECT_TRUE(membership.change_is_pending(now));
}

TEST_F(MembershipTest, WhenAWorkerHasFinishedTheOthersMayEndWithFewer) {
  start({5, 6});
  ask({5, 6});
  ASSERT_TRUE(membership.issue());
  membership.end(5, true, now);
  EXPECT_THAT(membership.overdue(now + 50s), IsEmpty());
  ask({6});
  const auto view = membership.issue();
  ASSERT_TRUE(view);
  EXPECT_THAT(workers_of(*view), ElementsAre(6));
}

TEST_F(MembershipTest, WhoComesAfterTheFirstHasFinishedIsNotTakenIn) {
  start({5, 6});
  ask({5, 6});
  ASSERT_TRUE(membership.issue());
  start({7, 8});
  ask({7});
  membership.end(5, true, now);
  EXPECT_FALSE(membership.change_is_pending(now + 50s));
  EXPECT_THAT(membership.overdue(now), ElementsAre(7, 8));
  ask({8});
  EXPECT_THAT(membership.overdue(now), ElementsAre(7, 8));
  ask({6});
  const auto view = membership.issue();
  ASSERT_TRUE(view);
  EXPECT_THAT(workers_of(*view), ElementsAre(6));
  membership.end(6, true, now);
  EXPECT_FALSE(membership.issue());
}

TEST_F(MembershipTest, DeadlinesThatArePastAreNotTheNextOne) {
  start({5, 6});
  ask({5, 6});
  ASSERT_TRUE(membership.issue());
  ask({5});
  EXPECT_EQ(membership.next_deadline(now), now + 10s);
  EXPECT_EQ(membership.next_deadline(now + 10s), Time::max());
  EXPECT_THAT(membership.overdue(now + 10s), ElementsAre(6));
}

TEST_F(MembershipTest, WhoIsAskedToEndMayGoOnWithFewer) {
  start({5, 6});
  ask({5, 6});
  ASSERT_TRUE(membership.issue());
  membership.end(5, false, now);
  ask({6});
  EXPECT_FALSE(membership.issue());
  membership.allow_fewer();
  EXPECT_TRUE(membership.issue());
}

// Those who cannot read the memory of the survivors come in the view after the next, when the state is on disk.
TEST_F(MembershipTest, AfterALossThoseWhoNeedTheDiskWait) {
  start({5, 6, 7});
  ask({5, 6, 7});
  ASSERT_TRUE(membership.issue());
  start_at(1, {8});
  ask({8});
  EXPECT_TRUE(membership.newcomers_need_disk());
  membership.end(5, false, now);
  ask({6, 7}, AskReason::Failure);
  EXPECT_THAT(workers_of(membership.issue().value()), ElementsAre(6, 7));
  EXPECT_TRUE(membership.change_is_pending(now));
  // They left without a checkpoint: one that can read their memory comes, the other does not.
  start({9});
  ask({9});
  ask({6, 7}, AskReason::Change);
  EXPECT_THAT(workers_of(membership.issue().value()), ElementsAre(6, 7, 9));
  EXPECT_TRUE(membership.change_is_pending(now));
  EXPECT_TRUE(membership.newcomers_need_disk());
  ask({6}, AskReason::Change);  // it does not see the checkpoint that others see
  ask({7, 9}, AskReason::Saved);
  EXPECT_THAT(workers_of(membership.issue().value()), ElementsAre(6, 7, 9, 8));
  EXPECT_FALSE(membership.newcomers_need_disk());
}

TEST_F(MembershipTest, MemoryOutlivesTheWorkersOfAMachine) {
  start({5});
  start_at(1, {6});
  ask({5, 6});
  ASSERT_TRUE(membership.issue());
  membership.end(5, false, now);
  start({7});
  ask({7});
  EXPECT_FALSE(membership.newcomers_need_disk());
  ask({6}, AskReason::Failure);
  EXPECT_THAT(workers_of(membership.issue().value()), ElementsAre(6, 7));
  // All are lost at once: who can read what they have left goes on without the others.
  membership.end(6, false, now);
  membership.end(7, false, now);
  start({8, 9});
  start_at(2, {10});
  ask({8, 9, 10});
  EXPECT_THAT(workers_of(membership.issue().value()), ElementsAre(8, 9));
}

TEST_F(MembershipTest, BelowTheLeastNumberThoseWhoNeedTheDiskAreTaken) {
  start({5, 6});
  ask({5, 6});
  ASSERT_TRUE(membership.issue());
  membership.end(5, false, now);
  start_at(1, {7});
  ask({7});
  start({8});
  ask({6}, AskReason::Failure);
  EXPECT_FALSE(membership.issue()) << "worker 8 can read the memory, and comes";
  membership.end(8, false, now);
  EXPECT_THAT(workers_of(membership.issue().value()), ElementsAre(6, 7));
}

// Random starts, questions, ends and pauses. Whatever happens, a number belongs to one view, its members were alive and
// asked for it, and once the events stop, everybody who is overdue is ended and every wait has an end.
class RandomEvents {
 public:
  explicit RandomEvents(uint32_t seed) : random_(seed), at_least_(draw(1, 3)), membership_({.at_least = at_least_}) {}

  void run() {
    for (int event = 0; event < 300; ++event) {
      act();
      check_issue();
    }
    end_all_waits();
  }

 private:
  int draw(int from, int to) { return std::uniform_int_distribution(from, to)(random_); }

  std::optional<uint64_t> any(const std::set<uint64_t>& set) {
    if (set.empty()) return std::nullopt;
    return *std::next(set.begin(), draw(0, static_cast<int>(set.size()) - 1));
  }

  void ask(uint64_t worker) {
    const auto silent = draw(0, 9) == 0 ? any(live_) : std::nullopt;
    // Most of those who leave have saved where that is needed.
    const bool saves = membership_.newcomers_need_disk() && draw(0, 4) != 0;
    membership_.ask(worker, "a:" + std::to_string(++address_), silent, now_,
                    saves ? AskReason::Saved : AskReason::Failure);
    waiting_[worker] = address_;
  }

  void end(uint64_t worker, bool finished) {
    membership_.end(worker, finished, now_);
    live_.erase(worker);
    waiting_.erase(worker);
  }

  void act() {
    now_ += std::chrono::milliseconds(draw(0, 3000));
    const int choice = draw(0, 9);
    const auto worker = any(live_);
    if (choice < 2 && live_.size() < 5) {
      live_.insert(++last_);
      membership_.start(last_, now_, static_cast<uint64_t>(draw(0, 2)));
    } else if (choice < 3 && worker) {
      end(*worker, draw(0, 19) == 0);
    } else if (choice < 4) {
      for (const uint64_t late : membership_.overdue(now_)) end(late, false);
    } else if (worker && !waiting_.contains(*worker)) {
      ask(*worker);
    }
  }

  void check_issue() {
    const auto view = membership_.issue();
    if (!view) return;
    ASSERT_EQ(view->number, ++last_view_);
    ASSERT_FALSE(view->members.empty());
    std::set<uint64_t> seen;
    for (const ViewMember& member : view->members) {
      ASSERT_TRUE(seen.insert(member.worker).second);
      ASSERT_TRUE(waiting_.contains(member.worker)) << member.worker;
      ASSERT_EQ(member.address, "a:" + std::to_string(waiting_[member.worker]));
      waiting_.erase(member.worker);
    }
    ASSERT_TRUE(membership_.has_finished() || static_cast<int>(seen.size()) >= at_least_);
    for (const uint64_t member : members_) {
      ASSERT_TRUE(!live_.contains(member) || seen.contains(member)) << "a member was left out";
    }
    members_ = seen;
  }

  // Workers in a view leave it when a change is pending or a member is lost; those that hang become overdue.
  void end_all_waits() {
    for (int round = 0; round < 1000 && !waiting_.empty(); ++round) {
      const bool is_below = !membership_.has_finished() && static_cast<int>(live_.size()) < at_least_;
      if (is_below) return;  // the launcher starts others, or ends the job
      now_ = std::max(now_ + 1ms, std::min(membership_.next_deadline(now_), now_ + std::chrono::hours(1)));
      for (const uint64_t late : membership_.overdue(now_)) end(late, false);
      if (membership_.change_is_pending(now_)) {
        for (const uint64_t worker : members_) {
          if (live_.contains(worker) && !waiting_.contains(worker) && draw(0, 3) != 0) ask(worker);
        }
      }
      check_issue();
    }
    EXPECT_TRUE(waiting_.empty()) << waiting_.size() << " workers wait for ever";
  }

  std::mt19937 random_;
  int at_least_;
  Membership membership_;
  Time now_ = Time() + std::chrono::hours(1);
  std::set<uint64_t> live_;
  std::map<uint64_t, int> waiting_;
  std::set<uint64_t> members_;
  uint64_t last_ = 0;
  uint64_t last_view_ = 0;
  int address_ = 0;
};

TEST(MembershipPropertyTest, EveryNumberIsOneViewAndEveryWaitEnds) {
  for (uint32_t seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE(seed);
    RandomEvents(seed).run();
    if (::testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace lockstep::comm::views
