// Where threads meet: requests come in, events go out, and one thread at a time makes the steps. Whoever waits for an
// event and finds nobody stepping does it, for everybody; so an engine needs no thread of its own. Everything behind
// the desk is single-threaded.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "engine/host.hpp"
#include "engine/request_loop.hpp"

namespace adze::engine {

// One request on its way. Its owner's thread reads it through the desk.
struct Ticket {
  RequestId id = 0;
  std::uint64_t seed = 0;
  std::function<bool()> cancelled;                      // GenerateOptions; asked by the owner's thread
  double submitted = 0, first_token = 0, finished = 0;  // Host::seconds
  std::deque<RequestEvent> events;
  bool ended = false;  // its last event is among `events`, or was taken
};

class Desk {
 public:
  // Both outlive the desk.
  Desk(RequestLoop& loop, const Host& host) : loop_(loop), host_(host) {}

  // Requests of one call get ids in order and are planned together. `start_within` and `finish_within` of the specs are
  // relative and become deadlines here. Errors: limit_exceeded when the waiting line is full, with its length.
  struct Order {
    RequestSpec spec;
    std::uint64_t seed = 0;
    std::function<bool()> cancelled{};
    bool copy = false;  // of the one before, whose prompt it shares
  };
  Result<std::vector<std::shared_ptr<Ticket>>> submit(std::vector<Order> orders);
  void cancel(const Ticket& ticket);
  // Waits for the ticket's next event and moves it to `event`. False: it has ended, and its last event was taken.
  bool next(Ticket& ticket, RequestEvent& event);

  // Runs `work` while no step is made: it may use everything behind the desk.
  template <class F>
  auto alone(F work) const {
    const Turn turn(*this);
    return work();
  }

 private:
  // The turn of one thread to use what is behind the desk.
  class Turn {
   public:
    explicit Turn(const Desk& desk);
    ~Turn();
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    const Desk& desk_;
  };
  void make_step(std::unique_lock<std::mutex>& lock);
  void deliver(std::vector<RequestEvent>& events, double now);

  RequestLoop& loop_;
  Host host_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  mutable bool busy_ = false;     // somebody has the turn
  mutable int turns_wanted_ = 0;  // by threads that want it for something else than a step; they come first
  double now_ = 0;                // the latest that was read of the clock
  RequestId last_id_ = 0;
  std::size_t waiting_ = 0;  // in the loop, after its last step
  std::vector<RequestSpec> inbox_;
  std::vector<RequestId> cancels_;
  std::vector<std::shared_ptr<Ticket>> tickets_;  // not ended
};

}  // namespace adze::engine
